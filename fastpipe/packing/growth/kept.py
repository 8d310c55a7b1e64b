"""A version of a dataset, and which of its samples stay -> pieces of the next version, which have no shards to make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import PackError
from fastpipe.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.format.index import Index
from fastpipe.format.intact import file_hash
from fastpipe.format.layout import SOURCES_DTYPE, SOURCES_FILE, shard_number
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.fields.columns import LENGTHS, columns
from fastpipe.packing.shard.entry import SOURCES
from fastpipe.packing.shard.tar import Tar
from fastpipe.store.store import Store


class Columns:
    """The columns of a version, mapped into memory.

    Args:
        index: of the version, whose files are here.

    Raises:
        PackError: a file has changed since it was written.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        sources = index.files / SOURCES_FILE
        expected_of = {file: expected for file, expected, _ in index.hashed_files(index.fields)}
        for file, expected in {**expected_of, sources: index.info["sources"]["file_xxh3_64"]}.items():
            try:
                good = not expected or file_hash(file) == expected
            except OSError as problem:
                raise PackError(f"{file} cannot be read: {problem.strerror or problem}") from problem
            if not good:
                raise PackError(f"{file} has changed since it was written; find the damage with fastpipe verify first")
        self.sources: NDArray[np.void] = np.lib.format.open_memmap(sources, mode="r")
        if self.sources.shape != (len(index),) or self.sources.dtype != SOURCES_DTYPE:
            raise PackError(f"{sources} does not belong to the dataset; pack the source again")

    @cached_property
    def of_fields(self) -> dict[tuple[str, str], NDArray[Any]]:
        """By field and part."""
        return {
            (field.name, column.part): np.lib.format.open_memmap(self._index.files / FIELDS_FOLDER / name, mode="r")
            for field in self._index.fields.values()
            for name, column in zip(sidecars(field), columns(field), strict=True)
        }


def agreed_in(index: Index) -> dict[str, Any]:
    """What the values of fields of a version share: `Agreement.state` after its last sample."""
    agreed = Agreement.of(index.fields.values()).state()
    for name, field in index.fields.items():
        if field.kind == "classes":
            agreed[name] |= {"classes": field.classes, "names": list(field.names)}
    return agreed


class Kept:
    """A shard of a version, of which some samples stay; see Piece.

    Args:
        index: of the version.
        shard: its number there.
        xxh3_64, removed: what dataset.json says of it.
        stays: (samples,) which of its samples stay.
        columns: of the version.
        first: it is the first piece of the new version.
    """

    def __init__(
        self,
        index: Index,
        shard: int,
        entry: dict[str, Any],
        stays: NDArray[np.bool_],
        columns: Columns,
        *,
        first: bool,
    ) -> None:
        self._columns, self._stays, self._index = columns, stays, index
        self._start = int(index.shard_starts[shard])
        self.samples = int(stays.sum())
        gone = len(stays) - self.samples + entry.get("removed", 0)
        self.tars = (Tar(shard_number(entry["name"]), self.samples, entry["size_bytes"], entry["xxh3_64"], gone),)
        # Numbers of class names stay what they are, for these pieces come first.
        self.agreed = agreed_in(index) if first else {}

    def records(self, store: Store) -> NDArray[np.void]:
        """(samples,) of INDEX_DTYPE; `shard` is 0."""
        records = np.array(self._index.records[self._rows])[self._stays]
        records["shard"] = 0
        return records

    def part(self, store: Store, of: str, part: str) -> Iterator[Callable[[], bytes]]:
        """A function that reads its piece of a column."""
        yield lambda: self._part(of, part)

    def _part(self, of: str, part: str) -> bytes:
        if (of, part) == SOURCES:
            return self._columns.sources[self._rows][self._stays].tobytes()
        offsets = self._offsets(of)
        if offsets is None:
            return self._columns.of_fields[of, part][self._rows][self._stays].tobytes()
        lengths = np.diff(offsets)
        if part == LENGTHS:
            return lengths[self._stays].astype("<i8").tobytes()
        values = self._columns.of_fields[of, part][int(offsets[0]) : int(offsets[-1])]
        return (values if self._stays.all() else values[np.repeat(self._stays, lengths)]).tobytes()

    def part_bytes(self, of: str, part: str) -> int:
        """Its size."""
        values, offsets = self._columns.of_fields.get((of, part)), self._offsets(of)
        if part == LENGTHS or values is None:  # boxes without labels
            return 8 * self.samples if part == LENGTHS else 0
        count = self.samples if offsets is None else int(np.diff(offsets)[self._stays].sum())
        return count * values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))

    @property
    def _rows(self) -> slice:
        return slice(self._start, self._start + len(self._stays))

    def _offsets(self, of: str) -> NDArray[np.int64] | None:
        found = self._columns.of_fields.get((of, LENGTHS))
        return None if found is None else np.array(found[self._start : self._start + len(self._stays) + 1])


def kept_pieces(index: Index, columns: Columns, stays: NDArray[np.bool_]) -> list[Kept]:
    """The shards of a version, of which samples stay.

    Args:
        index: of the version.
        columns: of it.
        stays: (n,) which of its samples stay.
    """
    found: list[Kept] = []
    starts = index.shard_starts.tolist()
    for number, (entry, start) in enumerate(zip(index.info["shards"], starts, strict=True)):
        ours = stays[start : start + entry["samples"]]
        if ours.any():
            found.append(Kept(index, number, entry, ours, columns, first=not found))
    return found
