"""A finished shard, the counts of its sources, and the entry of the journal that records both.

Note [entry]
An entry is a file of the work folder: a line of JSON; then the shard's index records; then the
shard's pieces of the fields' columns. One file says that a shard is finished, and publishing reads
the records of all shards, and then all pieces of a column, as ranges of these files.
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

from fastpipe.arrays import Records
from fastpipe.dataset.format.layout import WORK_FOLDER, index_dtype
from fastpipe.dataset.format.tiled_file import TILED_MAGIC
from fastpipe.packing.fields.agreement import Agreed
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.store import Store

# The piece of sources.npy is stored like a piece of a column, of a field without a name.
SOURCES = ("", "sources")

# One read of so many bytes gets the line of most entries.
_HEAD_BYTES = 4096
_CHUNK_BYTES = 1 << 20
# Entries that are compressed together.
_BLOCK_ENTRIES = 256


@dataclass(slots=True)
class Tally:
    """Counts of what became of some sources.

    Attributes:
        source_bytes, packed_bytes: of the pictures, before and after.
        changes: pictures that were encoded again, by the reason.
        pngs: pictures that became PNGs, by their format before.
        oriented: pictures with an EXIF orientation.
        assumed_shown: pictures whose values were taken to be of the picture as shown, by the rule
            of the format.
        assumed_stored: pictures whose values were taken to be of the picture as stored, by the size
            in the annotations alone.
        stray_bytes: pictures whose source had bytes that belong to no segment.
        multi_frame: pictures whose source has several frames. The first one was packed.
        transparent: pictures that keep an alpha channel with pixels that are not opaque.
        deep: pictures of 16 bits a channel, by the number of bits of their largest value.
        cut_boxes: boxes that were cut at the border of their picture.
        tiled: pictures that are stored in tiles.
        dropped_boxes: boxes that were dropped, as they could not be cut or read.
        rejected: path and reason of each source that could not be packed.
    """

    source_bytes: int = 0
    packed_bytes: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    pngs: dict[str, int] = field(default_factory=dict)
    oriented: int = 0
    assumed_shown: int = 0
    assumed_stored: int = 0
    stray_bytes: int = 0
    multi_frame: int = 0
    transparent: int = 0
    deep: dict[str, int] = field(default_factory=dict)
    cut_boxes: int = 0
    dropped_boxes: int = 0
    tiled: int = 0
    rejected: list[tuple[str, str]] = field(default_factory=list)

    def count(self, packed: Packed) -> None:
        """Counts a picture that was packed."""
        self.packed_bytes += len(packed.data)
        if packed.change is not None:
            num_before = self.changes.get(packed.change, 0)
            self.changes[packed.change] = num_before + 1
        if packed.png_of is not None:
            num_before = self.pngs.get(packed.png_of, 0)
            self.pngs[packed.png_of] = num_before + 1
        self.oriented += packed.orientation != 1
        self.assumed_shown += packed.assumed_shown
        self.assumed_stored += packed.assumed_stored
        self.stray_bytes += packed.stray_bytes
        self.multi_frame += packed.multi_frame
        self.transparent += packed.transparent
        if packed.deep_bits:
            bits = str(packed.deep_bits)
            self.deep[bits] = self.deep.get(bits, 0) + 1
        self.tiled += packed.data.startswith(TILED_MAGIC)
        self.cut_boxes += packed.cut_boxes
        self.dropped_boxes += packed.dropped_boxes

    def add(self, other: Tally) -> None:
        """Adds the counts of other sources."""
        for counted in fields(self):
            ours = getattr(self, counted.name)
            theirs = getattr(other, counted.name)
            if isinstance(ours, dict):
                total: Any = dict(Counter(ours) + Counter(theirs))
            else:
                total = ours + theirs
            setattr(self, counted.name, total)


def entry_name(number: int, state: str) -> str:
    """The name of the entry of a finished shard. `state` names the state of its sources."""
    return f"shard-{number:06d}-{state}.done"


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished shard. Note [entry]

    Attributes:
        name: of the entry's file in the work folder.
        tars: one, or several if the sources gave more than twice --shard-size.
        tally: of the shard's sources.
        agreed: `Agreement.state` after the shard.
        parts: field, part of its columns, and size in bytes of each piece in the file.
        body_at: offset in the file at which the index records begin.
        is_wide: the index records are of WIDE_INDEX_DTYPE.
    """

    name: str
    tars: tuple[Tar, ...]
    tally: Tally
    agreed: dict[str, Any] = field(default_factory=dict)
    parts: tuple[tuple[str, str, int], ...] = ()
    body_at: int = 0
    is_wide: bool = False

    @property
    def samples(self) -> int:
        return sum(tar.samples for tar in self.tars)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the index records."""
        return index_dtype(is_wide=self.is_wide)

    def line(self) -> bytes:
        """The line of JSON with which the file begins."""
        recorded = asdict(self)
        del recorded["name"]
        del recorded["body_at"]
        return json.dumps(recorded).encode() + b"\n"

    def records(self, store: Store) -> Records:
        """(samples,) of `dtype`; `shard` counts the entry's tars from 0."""
        size_bytes = self.samples * self.dtype.itemsize
        path = f"{WORK_FOLDER}/{self.name}"
        data = store.read(path, self.body_at, self.body_at + size_bytes)
        return np.frombuffer(data, self.dtype).copy()

    def piece_size(self, field: str, part: str) -> int:
        """The size in bytes of the shard's piece of a column."""
        for field_name, part_name, size_bytes in self.parts:
            if (field_name, part_name) == (field, part):
                return size_bytes
        raise KeyError((field, part))

    def piece_readers(
        self, store: Store, field: str, part: str
    ) -> Iterator[Callable[[], bytes]]:
        """Functions that read the shard's piece of a column, chunk by chunk."""
        path = f"{WORK_FOLDER}/{self.name}"
        # The pieces lie behind the records, in the order of `parts`.
        offset = self.body_at + self.samples * self.dtype.itemsize
        for field_name, part_name, size_bytes in self.parts:
            end = offset + size_bytes
            if (field_name, part_name) == (field, part):
                for start in range(offset, end, _CHUNK_BYTES):
                    stop = min(start + _CHUNK_BYTES, end)
                    yield partial(store.read, path, start, stop)
            offset = end


class Entries:
    """The entries of a pack that have shards, in order, and the tally of all entries.

    A pack may have a million shards, so the entries are kept compressed.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.tally = Tally()
        self._blocks: list[bytes] = []
        self._count = 0
        rows = self._tally_and_select(entries)
        while block := list(islice(rows, _BLOCK_ENTRIES)):
            # Entries are much alike, so that the fastest level of zlib is enough.
            data = json.dumps(block).encode()
            self._blocks.append(zlib.compress(data, 1))
            self._count += len(block)

    def _tally_and_select(self, entries: Iterable[Entry]) -> Iterator[tuple[Any, ...]]:
        for entry in entries:
            self.tally.add(entry.tally)
            if entry.tars:
                yield (
                    entry.name,
                    entry.tars,
                    entry.agreed,
                    entry.parts,
                    entry.body_at,
                    entry.is_wide,
                )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        """The entries, with empty tallies."""
        for block in self._blocks:
            rows = json.loads(zlib.decompress(block))
            for name, recorded_tars, agreed, recorded_parts, body_at, is_wide in rows:
                tars = _parse_tars(recorded_tars)
                parts = _parse_parts(recorded_parts)
                yield Entry(name, tars, Tally(), agreed, parts, body_at, is_wide)

    def clear(self) -> None:
        """Frees the memory."""
        self._blocks = []
        self._count = 0


def read_entry(store: Store, name: str, shard_sizes: Mapping[str, int]) -> Entry | None:
    """The shard of an entry; None if the entry is damaged, or if a tar is missing or has another
    size.

    `shard_sizes` has the sizes in bytes of the files beside the work folder, by name.
    """
    try:
        path = f"{WORK_FOLDER}/{name}"
        head = store.read(path, 0, _HEAD_BYTES)
        if b"\n" not in head:
            head = store.read(path)
        line_bytes = head.index(b"\n") + 1
        line = head[:line_bytes]
        recorded = json.loads(line)
        tally = Tally(**recorded["tally"])
        tally.rejected = [
            (source_path, reason) for source_path, reason in tally.rejected
        ]
        for agreed in recorded["agreed"].values():
            # Raises TypeError if another version of fastpipe wrote the entry.
            Agreed(**agreed)
        tars = _parse_tars(recorded["tars"])
        parts = _parse_parts(recorded["parts"])
        entry = Entry(
            name,
            tars,
            tally,
            recorded["agreed"],
            parts,
            len(line),
            recorded["is_wide"],
        )
    except Exception:
        # The shard can always be made again, whatever is wrong with this file.
        return None
    is_whole = all(shard_sizes.get(tar.name) == tar.size_bytes for tar in tars)
    return entry if is_whole else None


def _parse_tars(recorded: list[list[Any]]) -> tuple[Tar, ...]:
    return tuple(Tar(*tar) for tar in recorded)


def _parse_parts(recorded: list[list[Any]]) -> tuple[tuple[str, str, int], ...]:
    return tuple((field, part, size_bytes) for field, part, size_bytes in recorded)
