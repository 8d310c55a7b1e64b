"""The work folder of a pack: its plan, and an entry for each finished shard; so an interrupted pack goes on.

Note [publishing]
A shard is written under a temporary name and synced, and gets its name; then its entry appears in DST/.pack, which
names the state of its sources in its own name. So a final name never holds an unfinished file, and shards are made in
any order, by anyone, again and again: the same sources give the same bytes. When all are there, index.npy, the columns
of fields, rejected.jsonl and, last, dataset.json follow; then the work folder goes. A folder without dataset.json is
unfinished.

A dataset that is replaced stays until there is something to take its place: then its dataset.json goes first, so there
is no moment at which old and new shards are a dataset.

Note [entry]
An entry is a line of JSON; behind it the shard's index records, and its pieces of the fields' columns. So a shard is
done when one file is there, and publishing reads all shards' records, and then all pieces of each column, as ranges of
these files.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import PackError
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.layout import (
    DATASET_FILE,
    INDEX_DTYPE,
    INDEX_FILE,
    REJECTED_FILE,
    SOURCES_FILE,
    WORK_FOLDER,
    shard_number,
)
from fastpipe.packing.fields.agreement import Agreed
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.files import LOCK_FILE, PARTIAL, WorkFolder
from fastpipe.store.store import Store

PLAN_FILE = f"{WORK_FOLDER}/plan.json"
SPOOL_FOLDER = f"{WORK_FOLDER}/spool"
KEPT = ". What is packed stays"
SOURCES = "", "sources"  # the part of sources.npy, as if it were that of a column of a field without a name
_HEAD_BYTES = 4096  # read at once: the line of most entries
_CHUNK_BYTES = 1 << 20
_KEPT_TOGETHER = 256


@dataclass(slots=True)
class Tally:
    """What became of a run of sources. Pictures are counted by the reason of a change, and by what became PNG."""

    source_bytes: int = 0
    packed_bytes: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    pngs: dict[str, int] = field(default_factory=dict)
    oriented: int = 0
    assumed_shown: int = 0  # pictures whose values were taken as of the picture as shown, by the format's rule
    stray_bytes: int = 0  # pictures whose source had bytes that belong to no segment
    multi_frame: int = 0  # pictures whose source has more frames, of which the first was packed
    transparent: int = 0  # pictures with pixels that are not opaque, which keep their alpha
    rejected: list[tuple[str, str]] = field(default_factory=list)

    def count(self, packed: Packed) -> None:
        self.packed_bytes += len(packed.data)
        for counts, reason in ((self.changes, packed.change), (self.pngs, packed.png_of)):
            if reason is not None:
                counts[reason] = counts.get(reason, 0) + 1
        self.oriented += packed.orientation != 1
        self.assumed_shown += packed.assumed_shown
        self.stray_bytes += packed.stray_bytes
        self.multi_frame += packed.multi_frame
        self.transparent += packed.transparent

    def add(self, other: Tally) -> None:
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                setattr(self, each.name, dict(Counter(mine) + Counter(theirs)))
            else:
                setattr(self, each.name, mine + theirs)


def entry_name(number: int, state: str) -> str:
    """The file in the work folder that says that a shard is finished, of sources in this state."""
    return f"shard-{number:06d}-{state}.done"


@dataclass(frozen=True, slots=True)
class Entry:
    """A shard that is done; or several, of sources that give more than twice --shard-size. Note [entry]"""

    name: str
    tars: tuple[Tar, ...]
    tally: Tally
    agreed: dict[str, Any] = field(default_factory=dict)  # `Agreement.state` after it
    parts: tuple[tuple[str, str, int], ...] = ()  # field, part and size of its pieces of columns
    body_at: int = 0  # where the records begin in the file

    @property
    def samples(self) -> int:
        return sum(tar.samples for tar in self.tars)

    def line(self) -> bytes:
        said = {name: value for name, value in asdict(self).items() if name not in ("name", "body_at")}
        return json.dumps(said).encode() + b"\n"

    def records(self, store: Store) -> NDArray[np.void]:
        """(samples,) of INDEX_DTYPE; `shard` counts the entry's tars from 0."""
        size_bytes = self.samples * INDEX_DTYPE.itemsize
        data = store.read(f"{WORK_FOLDER}/{self.name}", self.body_at, self.body_at + size_bytes)
        return np.frombuffer(data, INDEX_DTYPE).copy()

    def part_bytes(self, of: str, part: str) -> int:
        """The size of the piece of a column."""
        return next(size_bytes for name, which, size_bytes in self.parts if (name, which) == (of, part))

    def part(self, store: Store, of: str, part: str) -> Iterator[Callable[[], bytes]]:
        """Functions that read the piece of a column, chunk by chunk."""
        at = self.body_at + self.samples * INDEX_DTYPE.itemsize
        for name, which, size_bytes in self.parts:
            if (name, which) == (of, part):
                for start in range(at, at + size_bytes, _CHUNK_BYTES):
                    stop = min(start + _CHUNK_BYTES, at + size_bytes)
                    yield partial(store.read, f"{WORK_FOLDER}/{self.name}", start, stop)
            at += size_bytes


class Entries:
    """Entries that have shards, held in little memory, for there may be a million; see Pieces. Any entry is tallied."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.tally = Tally()
        self._kept: list[bytes] = []  # some entries each, compressed: they are much alike
        self._count = 0
        tallied = self._tallied(entries)
        while few := list(islice(tallied, _KEPT_TOGETHER)):
            self._kept.append(zlib.compress(json.dumps(few).encode(), 1))
            self._count += len(few)

    def _tallied(self, entries: Iterable[Entry]) -> Iterator[tuple[Any, ...]]:
        for entry in entries:
            self.tally.add(entry.tally)
            if entry.tars:
                yield entry.name, entry.tars, entry.agreed, entry.parts, entry.body_at

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for kept in self._kept:
            for name, tars, agreed, parts, body_at in json.loads(zlib.decompress(kept)):
                yield Entry(name, tuple(Tar(*tar) for tar in tars), Tally(), agreed, tuple(map(tuple, parts)), body_at)

    def clear(self) -> None:
        self._kept, self._count = [], 0


def read_entry(store: Store, name: str, there: Mapping[str, int]) -> Entry | None:
    """The shard of an entry; None: it is not there as it was finished. `there` has the sizes of shards, by name."""
    try:
        path = f"{WORK_FOLDER}/{name}"
        head = store.read(path, 0, _HEAD_BYTES)
        if b"\n" not in head:
            head = store.read(path)
        line = head[: head.index(b"\n") + 1]
        said = json.loads(line)
        tally = Tally(**said["tally"])
        tally.rejected = [(where, reason) for where, reason in tally.rejected]
        tars = tuple(Tar(*tar) for tar in said["tars"])
        parts = tuple((of, part, size_bytes) for of, part, size_bytes in said["parts"])
        for one in said["agreed"].values():
            Agreed(**one)  # TypeError: it is of another version of fastpipe
        entry = Entry(name, tars, tally, said["agreed"], parts, len(line))
        whole = all(there.get(tar.name) == tar.size_bytes for tar in tars)
        return entry if whole else None
    except Exception:  # whatever is wrong with this file, the shard is made again
        return None


class Journal:
    """The work of one pack into a store; locked where it is used in a `with`. A fault of the store is a PackError."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._work: WorkFolder | None = None

    def __enter__(self) -> Journal:
        self._work = WorkFolder(self.store.scratch, self.store.place)
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of the lock, and removes the work folder if there is no work in it."""
        assert self._work is not None  # it was entered
        for left in self.store.scratch.glob(f"*{PARTIAL}"):
            with contextlib.suppress(OSError):
                left.unlink()
        self._work.release()
        self.store.close()

    def description(self) -> dict[str, Any] | None:
        """The content of the dataset.json that is there; None: there is none, or it is none of ours."""
        return _object(_read(self.store, DATASET_FILE))

    def plan(self) -> dict[str, Any] | None:
        """What the unfinished pack is about; None: there is none."""
        return _object(_read(self.store, PLAN_FILE))

    def begin(self, plan: dict[str, Any]) -> None:
        """Writes down what this pack is about. What an earlier one has made stays as long as it fits."""
        old, data = _read(self.store, PLAN_FILE), json.dumps(plan, sort_keys=True).encode()
        if data != old and not self.store.swap(PLAN_FILE, data, old):
            raise another(self.store, PLAN_FILE, "has changed meanwhile")

    def begin_growth(self, plan: dict[str, Any]) -> bool:
        """Writes down what is done to the dataset that is there; False: it is there already.

        In a folder the lock keeps others out, so a plan that is there is of a program that has ended.
        """
        old = _read(self.store, PLAN_FILE)
        there = _object(old)
        if there == plan:
            return False
        ended = there is None or ("grows" in there and isinstance(self.store.place, Path))
        if ended and self.store.swap(PLAN_FILE, json.dumps(plan, sort_keys=True).encode(), old):
            return True
        raise PackError(
            f"{self.store.place} is in use: {(self.plan() or {}).get('command', 'fastpipe pack')} has begun there, and "
            "has not ended. Wait for it, or run it again if it was interrupted. To give it up, remove "
            f"{self.store.place / PLAN_FILE}"
        )

    def give_up(self) -> None:
        """Removes the plan; shards that are finished stay for the next run."""
        self.store.remove([PLAN_FILE])

    def make_way(self) -> None:
        """Removes the dataset that this pack replaces, if there is one; dataset.json first."""
        if self.description() is not None:
            self.store.remove([DATASET_FILE])
            self.store.remove([INDEX_FILE, REJECTED_FILE, SOURCES_FILE])
            number = 1
            while number == 1 or self.store.sizes(f"v{number}"):
                self._empty(f"v{number}/{FIELDS_FOLDER}", f"v{number}")
                number += 1

    def entries(self) -> set[str]:
        """The names of all entries; whether their shards are as they were is not looked at."""
        return {name for name in self.store.sizes(WORK_FOLDER) if name.endswith(".done")}

    def finished(self, names: Iterable[str]) -> Iterator[Entry | None]:
        """The shards of some entries, in order; None: it is not there, whole."""
        entries, there = self.entries(), self.store.sizes()
        return self.store.each(lambda name: read_entry(self.store, name, there) if name in entries else None, names)

    def check(self, entries: Iterable[Entry]) -> None:
        """Looks whether all shards are there: others may write to a bucket, too. An entry without its shard goes."""
        there = self.store.sizes()
        tars = ((entry.name, tar) for entry in entries for tar in entry.tars)
        for (entry, tar), note in self.store.each(lambda each: (each, self.store.note(each[1].name)), tars):
            if there.get(tar.name) != tar.size_bytes or note not in ("", tar.xxh3_64):
                self.store.remove([f"{WORK_FOLDER}/{entry}"])
                raise another(self.store, tar.name, "is not what this pack has written there", KEPT)

    def clean(self, entries: Iterable[Entry], base: int = 0) -> None:
        """Removes shards, of this number and above, that belong to none of these entries, and all other entries."""
        ours = {tar.number for entry in entries for tar in entry.tars}
        stale = [name for name in self.store.sizes() if (at := shard_number(name)) >= base and at not in ours]
        self.store.remove(stale)
        del ours
        names = {entry.name for entry in entries}
        self.store.remove([f"{WORK_FOLDER}/{name}" for name in self.entries() if name not in names])

    def clear(self) -> None:
        """Empties the work folder, but for the lock."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.store.scratch / "spool")
        self._empty(SPOOL_FOLDER, WORK_FOLDER)

    def _empty(self, *folders: str) -> None:
        for folder in folders:
            self.store.remove([f"{folder}/{name}" for name in self.store.sizes(folder) if name != LOCK_FILE])


def another(store: Store, name: str, how: str, more: str = "") -> PackError:
    """The error where another program writes to the dataset."""
    return PackError(
        f"{store.place}/{name} {how}: another program writes to {store.place}. Wait until it ends, then run the same "
        f"command again, or choose another folder{more}"
    )


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _object(data: bytes | None) -> dict[str, Any] | None:
    try:
        said = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
