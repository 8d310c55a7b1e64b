"""The list of a source's files -> columns: what is found out of each file, and kept for the next start."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError, readable
from fastpipe.format.layout import MAX_SAMPLE_BYTES
from fastpipe.packing.source.listing import Listing, Source

# How the engine gets a picture of a file: as it lies; by way of `convert`; not at all; no header has been read.
PLAIN, ODD, REJECTED, UNKNOWN = 0, 1, 2, 3

_STATE = ("sizes", "mtimes_ns", "offsets")  # a file that has another one has changed

# A tar: its path below the source's folder, its size and its time.
Archive = tuple[str, int, int]


class Texts:
    """Many short texts in one piece of memory.

    Args:
        data: all of them, in the file system's bytes.
        ends: (n,) int64: where each ends.
    """

    def __init__(self, data: bytes, ends: NDArray[np.int64]) -> None:
        self.data = data
        self.ends = ends

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Gathers them."""
        encoded = [os.fsencode(text) for text in texts]
        return cls(b"".join(encoded), np.cumsum([len(text) for text in encoded], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def bytes_at(self, number: int) -> bytes:
        """One of them, as bytes."""
        return self.data[int(self.ends[number - 1]) if number else 0 : int(self.ends[number])]

    def __getitem__(self, number: int) -> str:
        return os.fsdecode(self.bytes_at(number))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Texts) and self.data == other.data and np.array_equal(self.ends, other.ends)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Columns:
    """A source's files, in packing order without shuffle.

    Attributes:
        source: what it is called: an absolute path, or a pattern.
        folder: absolute path of the folder that paths are relative to.
        classes: names, in the order of the labels.
        archives: the tars; None: each file lies by itself.
        paths: of the files, as packing has them.
        labels: (n,) int64.
        sizes: (n,) uint64, in bytes.
        mtimes_ns: (n,) int64: of the file, or of its tar.
        shards: (n,) uint32: number of the tar; of a file by itself, its own number.
        offsets: (n,) uint64: of the first byte in the tar.
        widths, heights: (n,) uint16, in pixels; 0 while not known.
        identities: (n,) uint64: of pictures, see format/identity.py; 0 while not known.
        kinds: (n,) uint8: PLAIN, ODD, REJECTED or UNKNOWN.
        reasons: why files are rejected, by their number.
        further: fields that packing would keep: their names.
        unread: numbers of the files that could not be read. The next scan tries again: permissions are no part of a
            file's state here.
    """

    source: str
    folder: Path
    classes: list[str]
    archives: list[Archive] | None
    paths: Texts
    labels: NDArray[np.int64]
    sizes: NDArray[np.uint64]
    mtimes_ns: NDArray[np.int64]
    shards: NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    widths: NDArray[np.uint16]
    heights: NDArray[np.uint16]
    kinds: NDArray[np.uint8]
    identities: NDArray[np.uint64]
    reasons: dict[int, str] = field(default_factory=dict)
    further: list[str] = field(default_factory=list)
    unread: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.paths)

    def file_of(self, number: int) -> bytes:
        """Absolute path of the file that holds a picture's bytes."""
        name = self.paths.bytes_at(number)
        if self.archives is not None:
            name = os.fsencode(self.archives[int(self.shards[number])][0])
        return os.path.join(os.fsencode(self.folder), name)

    @property
    def unknown(self) -> NDArray[np.int64]:
        """Numbers of the files whose headers have to be read."""
        return np.flatnonzero(self.kinds == UNKNOWN)

    def take_over(self, before: Columns) -> bool:
        """Fills in what an earlier scan found out of the files that have not changed since.

        Returns:
            Whether the source is the same as it was then.
        """
        same = (self.archives, self.paths) == (before.archives, before.paths) and all(
            np.array_equal(getattr(self, name), getattr(before, name)) for name in ("labels", *_STATE)
        )
        if same:
            mine = theirs = np.flatnonzero((self.kinds == UNKNOWN) & (before.kinds != UNKNOWN))
        else:
            mine, theirs = self._unchanged(before)
        for name in ("widths", "heights", "kinds", "identities"):
            getattr(self, name)[mine] = getattr(before, name)[theirs]
        for number, other in zip(mine.tolist(), theirs.tolist(), strict=True):
            if other in before.reasons:
                self.reasons[number] = before.reasons[other]
        return same and self.classes == before.classes and not len(self.unknown)

    def _unchanged(self, before: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of files here and there."""
        numbers = {before.paths.bytes_at(number): number for number in np.flatnonzero(before.kinds != UNKNOWN).tolist()}
        wanted = self.unknown
        found = np.array([numbers.get(self.paths.bytes_at(number), -1) for number in wanted.tolist()], dtype=np.int64)
        known = found >= 0
        for name in _STATE:
            known &= getattr(self, name)[wanted] == getattr(before, name)[found]
        return wanted[known], found[known]

    def reject(self, number: int, reason: str) -> None:
        """Takes a file out of the samples."""
        self.kinds[number] = REJECTED
        self.reasons[number] = reason


def columns_of(name: str, listing: Listing, archives: list[Archive] | None) -> Columns:
    """The columns of a listing, with no header read.

    Args:
        name: of the source.
        listing: in packing order.
        archives: its tars, in order; None: there are none.

    Raises:
        DatasetError: a sample is in another tar.
    """
    sources, count = listing.sources, len(listing.sources)
    root = Path(os.path.abspath(str(listing.root)))
    if archives is None:
        shards = np.arange(count, dtype=np.uint32)
    else:
        numbers = {name: number for number, (name, _, _) in enumerate(archives)}
        of_tars = (numbers[source.archive or root.name] for source in sources)  # "" where the source is the tar
        try:
            shards = np.fromiter(of_tars, np.uint32, count)
        except KeyError as new:
            raise DatasetError(
                f"{readable(str(root))} has changed while it was scanned: {readable(new.args[0])} is new. Try "
                "again when no program writes there"
            ) from new

    def column(values: Iterable[int], dtype: type) -> NDArray[np.generic]:
        return np.fromiter(values, dtype, count)

    found = Columns(
        source=name,
        folder=root if root.is_dir() else root.parent,
        classes=list(listing.classes),
        archives=archives,
        paths=Texts.of(source.path for source in sources),
        labels=column((source.label for source in sources), np.int64),  # type: ignore[arg-type]
        sizes=column((source.size_bytes for source in sources), np.uint64),  # type: ignore[arg-type]
        mtimes_ns=column((source.mtime_ns for source in sources), np.int64),  # type: ignore[arg-type]
        shards=shards,
        offsets=column((source.offset_bytes for source in sources), np.uint64),  # type: ignore[arg-type]
        widths=np.zeros(count, dtype=np.uint16),
        heights=np.zeros(count, dtype=np.uint16),
        kinds=np.full(count, UNKNOWN, dtype=np.uint8),
        identities=column((source.identity or 0 for source in sources), np.uint64),  # type: ignore[arg-type]
        further=[each.name for each in listing.fields],
    )
    for number, source in enumerate(sources):
        problem = source.problem or _too_large(source)
        if problem is not None:
            found.reject(number, problem)
    return found


def _too_large(source: Source) -> str | None:
    if source.size_bytes <= MAX_SAMPLE_BYTES:
        return None
    return f"{source.size_bytes:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}"
