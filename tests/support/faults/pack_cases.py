"""The commands that write a dataset, each as a Packs whose calls can fail; for tests/packing and tests/long/packing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from support.faults.forks import Ended, Forks
from support.faults.injector import Fault
from support.faults.packs import Packs, faults_at, finals, find_packs, small_shards, small_source
from support.sources.pack_sources import digests, write_large_folder
from support.sources.tables import write_table
from support.sources.tars import write_tar

import fastpipe
from fastpipe.sources.kinds import list_sources
from fastpipe.tools.verify.verification import verify

# Several spool files of a small source.
_SMALL_RUNS = {"fastpipe.packing.pipeline.exchange._SPOOLED_BYTES": 40_000}
_LAST = "rename /dataset.json"


def source_with_fields(root: Path) -> Path:
    """A WebDataset of 8 pictures with texts and notes, which fill three shards."""
    pictures = sorted(write_large_folder(root / "made", images=8).rglob("*.jpg"))
    members: dict[str, bytes] = {}
    for number, picture in enumerate(pictures):
        members[f"{number}.jpg"] = picture.read_bytes()
        members[f"{number}.json"] = b'{"n": %d}' % number
        if number % 3:
            members[f"{number}.txt"] = b"x" * number
    (root / "tars").mkdir()
    write_tar(root / "tars" / "a.tar", members)
    return root / "tars"


def tables_source(root: Path) -> Path:
    """Two tables whose samples fill three shards; one row has no image."""
    photos = [
        path.read_bytes()
        for path in sorted(write_large_folder(root / "photos", images=8).glob("*/*.jpg"))
    ]
    write_table(root / "tables" / "a.parquet", photos[:4], rows_per_group=3, text=list("abcd"))
    write_table(
        root / "tables" / "b.parquet", [*photos[4:], None], rows_per_group=3, text=list("efghi")
    )
    return root / "tables"


class TablePacks(Packs):
    """A pack of tables, with small runs."""

    def run(self, fault: Fault | None = None, **how: Any) -> Ended:
        return super().run(fault, setting=_SMALL_RUNS, **how)

    def assert_goes_on(self) -> None:
        """And no run is converted again."""
        before = {path.name for path in (self.destination / ".pack" / "spool").glob("run-*")}
        log = self.destination.parent / "renames.log"
        log.unlink(missing_ok=True)
        assert self.run(Fault(self.destination, ("rename",), log=log)).code == 0
        self.assert_done()
        lines = (
            log.read_text().splitlines() if log.exists() else []
        )  # none where only tidying was left
        paths = [Path(line.split(" ", 2)[2]) for line in lines]
        made = {path.name for path in paths if path.parent.name == "spool"}
        assert not made & before, "runs were converted again"


class Repairs(Packs):
    """A repair of a damaged dataset."""

    def assert_whole_files(self) -> None:
        for name, digest in finals(self.destination).items():
            assert digest in (self.whole[name], self.before.get(name)), (
                f"{name} is neither the damaged one nor whole"
            )

    def assert_done(self) -> None:
        assert finals(self.destination) == self.whole
        assert verify(self.destination, workers=1).sound


class Adds(Packs):
    """Two samples that are added to eight: dataset.json has times, so that samples are compared."""

    def assert_whole_files(self) -> None:
        data = fastpipe.open(self.destination)
        assert len(data) == {1: 8, 2: 10}[data.version]
        assert verify(self.destination).sound

    def assert_done(self) -> None:
        data = fastpipe.open(self.destination)
        assert (data.version, len(set(data["key"]))) == (2, 10)
        assert not (self.destination / ".pack").exists()


def _killed_at_its_end(packs: Packs) -> None:
    """Leaves an unfinished pack."""
    ((fault, _),) = faults_at(packs, _LAST)
    assert packs.run(fault).code == -9


def _over(
    packs: Packs, command: tuple[object, ...], *, whole: dict[str, str] | None = None
) -> Packs:
    """Another command where the dataset lies that `packs` has left there."""
    copy = packs.destination.with_name("copy")
    packs.destination.rename(copy)
    if whole is None:
        whole = find_packs(
            packs.forks, Path(str(command[1])), packs.destination, *command[7:]
        ).whole
    return Packs(packs.forks, command, packs.destination, whole, copy, finals(copy))


def _pack(forks: Forks, place: Path) -> Packs:
    return find_packs(forks, small_source(place / "source"), place / "packed")


def _fields(forks: Forks, place: Path) -> Packs:
    packs = find_packs(forks, source_with_fields(place), place / "packed")
    columns = {"fields/txt.bytes.npy", "fields/txt.offsets.npy", "fields/json.bytes.npy"}
    assert columns | {"shard-000002.tar"} <= packs.whole.keys()
    return packs


def _tables(forks: Forks, place: Path) -> Packs:
    packs = TablePacks(
        forks, small_shards(tables_source(place), place / "packed"), place / "packed", {}
    )
    assert packs.run().code == 0
    return replace(packs, whole=digests(packs.destination))


def _overwrite(forks: Forks, place: Path, *, unfinished: bool) -> Packs:
    """A pack in the place of another dataset, or of an unfinished one."""
    packs = _pack(forks, place)
    if unfinished:
        _killed_at_its_end(packs)
    return _over(
        packs, small_shards(place / "source", packs.destination, "--overwrite", "--seed", 1)
    )


def _overwrite_of_fields(forks: Forks, place: Path) -> Packs:
    """The old columns go, which an unfinished pack has left."""
    packs = _fields(forks, place)
    _killed_at_its_end(packs)
    assert (packs.destination / "fields").exists()
    return _over(
        packs, small_shards(small_source(place / "source"), packs.destination, "--overwrite")
    )


def _changed(forks: Forks, place: Path) -> Packs:
    """Of an unfinished pack only some shards stay, since a source is another now."""
    packs = _pack(forks, place)
    _killed_at_its_end(packs)
    file = place / "source" / list_sources(place / "source", 0).sources[4].path
    data = bytearray(file.read_bytes())
    data[-300] ^= 0x10  # as many bytes: the sources are cut as before
    file.write_bytes(data)
    changed = _over(packs, packs.command)
    assert changed.whole["shard-000000.tar"] == changed.before["shard-000000.tar"]
    return changed


def _repair(forks: Forks, place: Path) -> Packs:
    packs = _pack(forks, place)
    os.truncate(packs.destination / "shard-000000.tar", 5000)
    (packs.destination / "shard-000002.tar").unlink()
    (packs.destination / "index.npy").write_bytes(b"")
    command = ("verify", packs.destination, "--repair", place / "source")
    return Repairs(**vars(_over(packs, command, whole=packs.whole)))


def _add(forks: Forks, place: Path) -> Packs:
    packs = _pack(forks, place)
    for number, file in enumerate(
        sorted(write_large_folder(place / "more", images=2).rglob("*.jpg"))
    ):
        shutil.copy(file, place / "source" / "class-0" / f"new-{number}.jpg")
    command = ("add", place / "source", packs.destination, "--workers", 2)
    return Adds(**vars(_over(packs, command, whole={})))


class Case(NamedTuple):
    """A command.

    Attributes:
        make: prepares it in an empty folder.
        kills, refusals: calls, as `faults_at` takes them, at which the gate kills it, or has the disk refuse it.
    """

    make: Callable[[Forks, Path], Packs]
    kills: tuple[str, ...]
    refusals: tuple[str, ...] = ()


CASES = {
    "pack": Case(
        _pack,
        ("rename .pack/plan.json", "fsync shard-000001-", _LAST, "unlink plan.json"),
        (
            "write shard-000001.tar",
            "fsync shard-000000.tar",
            "rename /index.npy",
            "write dataset.json",
        ),
    ),
    "pack of tables": Case(
        _tables, ("rename /spool/run-", "rename /shard-000001.tar"), ("write /spool/run-",)
    ),
    "pack with fields": Case(
        _fields, ("rename /fields/txt.bytes.npy", _LAST), ("write txt.bytes.npy",)
    ),
    "overwrite": Case(
        partial(_overwrite, unfinished=False),
        ("unlink /dataset.json", _LAST),
        ("write shard-000001.tar",),
    ),
    "overwrite of an unfinished pack": Case(
        partial(_overwrite, unfinished=True), ("rename /shard-000001.tar",)
    ),
    "overwrite of fields": Case(_overwrite_of_fields, (_LAST,)),
    "pack of changed sources": Case(_changed, ("rename /shard-000001.tar",)),
    "repair": Case(_repair, ("rename /shard-000002.tar", "rename /index.npy")),
    "add": Case(_add, ("rename /v2/index.npy", "rename /dataset.json", "fsync /packed")),
}
