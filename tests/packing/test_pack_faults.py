"""One kill, one full disk, one interrupted write of each command that writes a dataset: it goes on, to the same bytes.

Each call of each command is in tests/long/packing.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.faults.forks import Forks
from support.faults.injector import Fault
from support.faults.pack_cases import CASES
from support.faults.packs import (
    CHANGING,
    Packs,
    assert_refused,
    faults_at,
    find_packs,
    small_source,
)
from support.running.soak import Tried

pytestmark = pytest.mark.new_python("a kill")  # of the programs that the fixture `programs` forks

FULL, BROKEN = errno.ENOSPC, errno.EIO
# The sync of a shard that is being written begins after 32 MB else.
SYNCING = {"fastpipe.packing.shard.tar._SYNC_BYTES": 20_000}


@pytest.mark.parametrize("name", CASES)
def test_a_command_that_is_killed_goes_on(programs: Forks, place: Path, name: str) -> None:
    packs = CASES[name].make(programs, place)
    for fault, point in faults_at(packs, *CASES[name].kills):
        ended = packs.run(fault)
        assert ended.code == -9, f"{point}: {ended}"
        packs.assert_whole_files()
        packs.assert_goes_on()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.refusals])
def test_a_command_that_the_disk_refuses_goes_on(programs: Forks, place: Path, name: str) -> None:
    """The first call meets a full disk, the others one that is broken from then on."""
    packs = CASES[name].make(programs, place)
    for number, (fault, point) in enumerate(
        faults_at(packs, *CASES[name].refusals, kind="error", number=FULL)
    ):
        refusal = replace(fault, number=BROKEN, each=True) if number else fault
        assert_refused(packs, packs.run(refusal), refusal.number, point)
        packs.assert_whole_files()
        packs.assert_goes_on()


@pytest.fixture
def source(place: Path) -> Path:
    return small_source(place / "source")


@pytest.fixture
def packs(programs: Forks, source: Path, place: Path) -> Packs:
    """The pack of the source, into an empty destination."""
    packs = find_packs(programs, source, place / "packed")
    packs.fresh()
    return packs


def test_a_write_that_is_torn(packs: Packs) -> None:
    for fault, point in faults_at(packs, "write shard-000001.tar", kind="torn"):
        assert packs.run(fault).code == -9, point
        packs.assert_whole_files()
        packs.assert_goes_on()


def test_a_disk_that_loses_what_it_had_taken(packs: Packs) -> None:
    """Only a sync tells that an earlier write has failed."""
    ended = packs.run(
        Fault(packs.destination, ("fdatasync",), "error", at=0, number=BROKEN), setting=SYNCING
    )
    assert_refused(packs, ended, BROKEN, "fdatasync")
    packs.assert_whole_files()
    packs.assert_goes_on()


def test_a_disk_that_takes_half_of_each_write(packs: Packs) -> None:
    ended = packs.run(Fault(packs.destination, ("write",), "short", at=0, each=True))
    assert ended.code == 0, ended.err
    packs.assert_done()


def test_files_that_may_not_grow(packs: Packs) -> None:
    """RLIMIT_FSIZE: as a full disk, which takes a part of a file."""
    assert packs.run().code == 0
    size = (packs.destination / "shard-000000.tar").stat().st_size
    packs.fresh()
    assert_refused(packs, packs.run(largest_file=size - 1), errno.EFBIG, "RLIMIT_FSIZE")
    assert not list(packs.destination.rglob("*.partial"))
    packs.assert_whole_files()
    packs.assert_goes_on()


def test_a_file_is_on_the_disk_before_it_gets_its_name(packs: Packs, tried: Tried) -> None:
    """A power cut needs that, and no kill can show it: the file is synced before the rename, its folder after it."""
    work = packs.destination / ".pack"
    synced: set[Path] = set()
    read_names = None
    names = 0
    for line in packs.calls(*CHANGING):
        _, call, name = line.split(" ", 2)
        path = Path(name)
        if call == "fsync":
            synced.add(path)
            read_names = None if path == read_names else read_names
        elif call == "write":  # the next shard is written by another thread meanwhile
            synced.discard(path)
        elif call == "rename":
            assert read_names is None, f"{line}: before {read_names} was synced"
            assert any(
                each.parent == work and each.name.startswith(f"{path.name}.") for each in synced
            ), line
            read_names = path.parent
            names += 1
    assert read_names is None, "the last name was not synced"
    assert (
        names == 2 * 3 + 5
    )  # a shard and its note; the plan, the index, the sources, the rejected ones, the dataset
    tried("rename of `pack`", names, "the file is synced before it, its folder after it")


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_a_source_that_the_disk_does_not_give(packs: Packs, source: Path, code: int) -> None:
    for call, at in (("pread", 3), ("open", 0)):
        packs.fresh()
        ended = packs.run(Fault(source, (call,), "error", at=at, number=code))
        assert ended.code == 1
        assert f"cannot read {source}" in ended.err
        assert f": {os.strerror(code)}" in ended.err
        packs.assert_whole_files()
        packs.assert_goes_on()


def test_a_source_that_the_disk_gives_in_pieces(packs: Packs, source: Path) -> None:
    ended = packs.run(Fault(source, ("pread",), "short", at=0, each=True))
    assert ended.code == 0, ended.err
    packs.assert_done()
