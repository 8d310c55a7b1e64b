"""A small source, what an undisturbed pack makes of it, and what must hold of the destination whatever has happened."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.faults.forks import Ended, Forks, forks
from support.faults.injector import WRITING, Fault
from support.programs.cli_run import succeeded
from support.running.soak import long_form
from support.sources.pack_sources import digests, write_large_folder

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions

# Of the calls that a packer makes, those that change something.
CHANGING = tuple(call for call in WRITING if call != "open")

Digests = dict[str, str]
_MEMORY = "/dev/shm"


@pytest.fixture(scope="module")
def programs() -> Iterator[Forks]:
    """Runs `fastpipe` commands, each with a fault of its own."""
    if sys.platform != "linux":
        pytest.skip("calls.c is made for Linux's loader")
    with forks() as program:
        yield program


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """An empty folder. In the gate it is in memory if it can be: syncing to a disk would take most of the time."""
    if long_form() or not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="fastpipe-test-", dir=_MEMORY) as folder:
        yield Path(folder)


def small_source(root: Path) -> Path:
    """8 pictures that fill three shards, and a file that is none."""
    write_large_folder(root, images=8)
    (root / "class-0" / "bad").write_bytes(b"bad")
    return root


SMALL = PackOptions(shard_size=100_000, workers=2)


def assert_as_packed_anew(source: Path, packed: Path) -> None:
    """The bytes are those of an undisturbed pack of what is there now."""
    fresh = packed.with_name("fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    pack(source, fresh, SMALL)
    assert digests(packed) == digests(fresh)


def small_shards(source: Path, destination: Path, *options: object) -> tuple[object, ...]:
    """The command that packs it."""
    return ("pack", source, destination, "--shard-size", "100000", "--workers", "2", *options)


def finals(destination: Path) -> Digests:
    """What lies under final names: all that is not in the work folder."""
    return {
        name: digest
        for name, digest in digests(destination).items()
        if not name.startswith(".pack/")
    }


@dataclass(frozen=True)
class Packs:
    """A command that writes a dataset, with faults.

    Attributes:
        forks: runs commands.
        command: what is run.
        destination: the dataset's folder.
        whole: what an undisturbed run gives.
        copy: what is in the destination before; None: nothing.
        before: the final names in that.
    """

    forks: Forks
    command: tuple[object, ...]
    destination: Path
    whole: Digests
    copy: Path | None = None
    before: Digests = field(default_factory=dict)

    def run(self, fault: Fault | None = None, **how: Any) -> Ended:
        return self.forks.run(*self.command, fault=fault, **how)

    def fresh(self) -> None:
        """Brings the destination back to what it was."""
        shutil.rmtree(self.destination, ignore_errors=True)
        if self.copy is not None:
            shutil.copytree(self.copy, self.destination)

    def calls(self, *names: str, **how: Any) -> list[str]:
        """The lines of the log, "number call path", of all calls of these names that an undisturbed run makes."""
        log = self.destination.parent / "calls.log"
        log.unlink(missing_ok=True)
        self.fresh()
        ended = self.run(Fault(self.destination, names, log=log), **how)
        assert ended.code == 0, ended.err
        self.assert_done()
        return log.read_text().splitlines()

    def assert_whole_files(self) -> None:
        """Each final name holds a whole file, and the folder is one whole dataset or is refused as unfinished."""
        found = finals(self.destination)
        for name, digest in found.items():
            assert digest in (self.whole.get(name), self.before.get(name)), (
                f"{name} is neither the old nor the new"
            )
        if "dataset.json" in found:
            assert found in (self.whole, self.before)
            PackedIndex(self.destination)
        else:
            with pytest.raises(
                DatasetError, match=r"unfinished pack|does not exist|is not a packed dataset"
            ):
                PackedIndex(self.destination)

    def assert_done(self) -> None:
        """The bytes are those of an undisturbed run, and nothing else is there."""
        assert digests(self.destination) == self.whole

    def assert_goes_on(self) -> None:
        """The same command ends well, with the bytes of an undisturbed run. In this process, which takes less time."""
        succeeded(*self.command)
        self.assert_done()


def assert_refused(packs: Packs, ended: Ended, code: int, point: str) -> None:
    """Exit code 1, and an error that names a file of the destination, says why and what to do."""
    assert ended.code == 1, f"{point}: {ended}"
    assert ended.err.startswith("fastpipe: "), point
    assert str(packs.destination) in ended.err, point
    assert os.strerror(code) in ended.err, point
    assert "run the same command again" in ended.err, point


def find_packs(forks: Forks, source: Path, destination: Path, *options: object) -> Packs:
    """Packing a small source into an empty destination."""
    command = small_shards(source, destination, *options)
    ended = forks.run(*command)
    assert ended.code == 0, ended.err
    return Packs(forks, command, destination, digests(destination))


def faults_at_each(
    packs: Packs, calls: tuple[str, ...], step: int = 1, **fault: Any
) -> Iterator[tuple[Fault, str]]:
    """A fault at each of these calls, or every `step`-th, and the call's line in the log; in a folder as before."""
    for at, line in list(enumerate(packs.calls(*calls)))[::step]:
        packs.fresh()
        yield Fault(packs.destination, calls, at=at, **fault), line


def faults_at(packs: Packs, *points: str, **fault: Any) -> Iterator[tuple[Fault, str]]:
    """A fault at each of some calls, in a folder as before; much cheaper than one at every call.

    Args:
        packs: what is run.
        points: a call and a part of its path each, such as "rename /index.npy": the first such call of an undisturbed
            run.
        fault: what goes wrong there; a kill if nothing else is said.
    """
    calls = [line.split(" ", 2)[1:] for line in packs.calls(*CHANGING)]
    for point in points:
        name, _, part = point.partition(" ")
        paths = [path for call, path in calls if call == name]
        at = next(number for number, path in enumerate(paths) if part in path)
        packs.fresh()
        yield Fault(packs.destination, (name,), at=at, **fault), point
