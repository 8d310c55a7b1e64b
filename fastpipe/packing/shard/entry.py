"""What is known of a finished shard <-> one file of the journal.

Note [entry]
A line of JSON; behind it the shard's index records, and its pieces of the fields' columns. So a shard is done when one
file is there, and publishing reads all shards' records, and then all pieces of each column, as ranges of these files.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.layout import INDEX_DTYPE, WORK_FOLDER
from fastpipe.packing.fields.agreement import Agreed
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.store import Store


@dataclass(slots=True)
class Tally:
    """What became of a run of sources. Pictures are counted by the reason of a change, and by what became PNG."""

    source_bytes: int = 0
    packed_bytes: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    pngs: dict[str, int] = field(default_factory=dict)
    oriented: int = 0
    stray_bytes: int = 0  # pictures whose source had bytes that belong to no segment
    multi_frame: int = 0  # pictures whose source has more frames, of which the first was packed
    rejected: list[tuple[str, str]] = field(default_factory=list)

    def count(self, packed: Packed) -> None:
        self.packed_bytes += len(packed.data)
        for counts, reason in ((self.changes, packed.change), (self.pngs, packed.png_of)):
            if reason is not None:
                counts[reason] = counts.get(reason, 0) + 1
        self.oriented += packed.orientation != 1
        self.stray_bytes += packed.stray_bytes
        self.multi_frame += packed.multi_frame

    def add(self, other: Tally) -> None:
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                setattr(self, each.name, dict(Counter(mine) + Counter(theirs)))
            else:
                setattr(self, each.name, mine + theirs)


SOURCES = "", "sources"  # the part of sources.npy, as if it were that of a column of a field without a name
_HEAD_BYTES = 4096  # read at once: the line of most entries
_CHUNK_BYTES = 1 << 20
_KEPT_TOGETHER = 256


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
