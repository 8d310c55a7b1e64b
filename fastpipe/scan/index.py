"""The columns of a scan -> an index, with which a loader reads photos and tars where they lie.

Note [unpacked sources]
The engine makes a row of (shard, offset, size, crop, flip). A file of a folder is a shard with one JPEG at byte 0; a
tar is a shard with many. So loading without packing needs only another index. Its samples are those of `fastpipe pack
--no-shuffle`, in the same order, so that the batches are the same, too. But packing reads files to their end: those
that are damaged behind their header are still samples here.
Shuffled epochs are cut from another order. A packed dataset is shuffled once, by packing; a folder is sorted by class,
and a window of it would hold few classes. So the samples of a folder are permuted as a whole in each epoch: files lie
anywhere, so nothing is gained by reading neighbours together. So are those of tars that are sorted by class. Other tars
are read in chunks, as shards of ours are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import DatasetError, ImageError, SampleError, readable
from fastpipe.format.identity import key_hash
from fastpipe.format.index import Index
from fastpipe.format.layout import INDEX_DTYPE, JPEG_STORAGE, NO_LABEL
from fastpipe.format.read_at import read_at
from fastpipe.format.records import Records
from fastpipe.format.shard_list import ShardColumns, Shards
from fastpipe.plan.order import permute
from fastpipe.scan.cache import save
from fastpipe.scan.columns import ODD, REJECTED, Columns
from fastpipe.scan.headers import identities, read_files

_PERMUTATION = 0x0F0E0D0C0B0A0908  # any: epochs permute again
# Neighbours of one class, compared with how many there would be by chance, at which tars count as sorted.
_SORTED = 0.5
# What the engine says of shards -> the same of files as they lie.
_WORDS = {
    "the shard has changed since it was packed": "the file has changed since it was scanned",
    "the shard cannot be opened": "the file cannot be opened",
    "the shard cannot be read": "the file cannot be read",
    "the sample is beyond the end of the shard": "the picture is beyond the end of the file",
}


class UnpackedIndex(Index):
    """The description of an unpacked source: an `Index` whose records are in memory, made by a scan.

    See Note [unpacked sources]. A sample's key is the path of its file.

    Args:
        path: what the user passed.
        columns: of the scan.
        max_pixels: as of `Index`.

    Raises:
        DatasetError: there is no picture.
    """

    packed = False
    version = 0

    def __init__(self, path: Path, columns: Columns, *, max_pixels: int | None = None) -> None:
        self.path = path
        self._max_pixels = max_pixels
        self._columns = columns
        self.folder = columns.folder
        self._limit = max(max_pixels or 0, MAX_PIXELS)
        large = (columns.kinds != REJECTED) & (columns.widths.astype(np.int64) * columns.heights > self._limit)
        too_large = {number: self._too_large(number) for number in np.flatnonzero(large).tolist()}
        self._reasons = {**columns.reasons, **too_large}
        kept = np.flatnonzero((columns.kinds != REJECTED) & ~large)
        self._numbers = kept  # of the samples, among the files
        if not len(kept):
            raise DatasetError(f"{path} is not a packed dataset, and has no image that can be loaded{self.rejected()}")
        self.classes = columns.classes
        self.fields = {}
        self.least_label = NO_LABEL
        self.odd = columns.kinds[kept] == ODD if (columns.kinds == ODD).any() else None
        self.records = self._records(kept)
        self.storage = JPEG_STORAGE
        self.jpeg_bytes = self.stored_bytes = int(self.records["size"].sum(dtype=np.int64))
        labels = self.records["label"]
        self.class_counts = np.bincount(labels[labels >= 0], minlength=len(self.classes)).tolist()
        self.counts = {
            "rejected": len(columns) - len(kept),
            "converted": 0 if self.odd is None else int(self.odd.sum()),
        }
        self.shards, self.mtimes_ns = self._shards()
        self.shard_sizes, self.shard_starts = self.shards.sizes, self.shards.starts
        self.fingerprint = self.content = self._fingerprint(kept)

    def _too_large(self, number: int) -> str:
        size = f"{self._columns.widths[number]} x {self._columns.heights[number]}"
        return f"{size} is over the limit of {self._limit:,} pixels; if you trust the image, pass a larger max_pixels"

    def _records(self, kept: NDArray[np.int64]) -> Any:
        columns = self._columns
        records = np.zeros(len(kept), dtype=INDEX_DTYPE)
        # A file that lies by itself is the shard of its sample's number.
        records["shard"] = np.arange(len(kept)) if columns.archives is None else columns.shards[kept]
        for name, column in (
            ("offset", columns.offsets),
            ("size", columns.sizes),
            ("width", columns.widths),
            ("height", columns.heights),
            ("label", columns.labels),
        ):
            records[name] = column[kept]
        records.flags.writeable = False
        return records

    def _shards(self) -> tuple[Shards, NDArray[np.int64]]:
        columns, made = self._columns, ShardColumns()
        if columns.archives is None:
            numbers = self._numbers
            names = [columns.paths.bytes_at(number) for number in numbers.tolist()]
            sizes, mtimes = columns.sizes[numbers].tolist(), columns.mtimes_ns[numbers]
            counts = [1] * len(names)
        else:
            names = [os.fsencode(name) for name, _, _ in columns.archives]
            sizes = [size for _, size, _ in columns.archives]
            mtimes = np.array([mtime for _, _, mtime in columns.archives], dtype=np.int64)
            counts = np.bincount(self.records["shard"], minlength=len(names)).tolist()
        made.names = bytearray(b"".join(names))
        made.name_ends.extend(np.cumsum([len(name) for name in names]).tolist())
        made.sample_ends.extend(np.cumsum(counts).tolist())
        made.sizes.extend(sizes)
        return Shards(self.folder, made), mtimes

    def _fingerprint(self, kept: NDArray[np.int64]) -> str:
        """Of classes, paths, sizes, labels, and the places in tars, which decide the order of reading: a copy elsewhere
        has the same.
        """
        digest = xxhash.xxh3_128()
        for name in self.classes:
            digest.update(os.fsencode(name) + b"\0")
        columns = self._columns
        for part in (
            np.frombuffer(columns.paths.data, np.uint8),
            columns.paths.ends,
            columns.sizes,
            columns.labels,
            kept,
            *(() if columns.archives is None else (columns.shards, columns.offsets)),
        ):
            digest.update(part.tobytes())
        return f"unpacked-{digest.hexdigest()}"

    @cached_property
    def info(self) -> dict[str, Any]:
        """What dataset.json of a packed dataset would say, as far as it is known."""
        return {
            "format": "unpacked",
            "samples": len(self),
            "classes": self.classes,
            "class_counts": self.class_counts,
            "counts": self.counts,
            "fingerprint": self.fingerprint,
        }

    @property
    def further(self) -> list[str]:
        """Fields that packing would keep, such as captions in tars."""
        return list(self._columns.further)

    def rejected(self, most: int = 3) -> str:
        """How many files are no samples, and why; "" if there are none."""
        reasons = self._reasons
        if not reasons:
            return ""
        paths = self._columns.paths
        shown = [f"\n  {readable(paths[number])}: {reasons[number]}" for number in sorted(reasons)[:most]]
        more = f"\n  and {len(reasons) - most:,} more" if len(reasons) > most else ""
        return f": {len(reasons):,} files are left out{''.join(shown)}{more}"

    def open_records(self) -> None:
        """The records are in memory."""

    def read(self, samples: NDArray[np.int64], records: Records | None = None) -> NDArray[np.void]:
        """Copies the records of some samples.

        Raises:
            DatasetError: a picture has too many pixels.
        """
        found = self.records_of(samples)
        self.check_pixels(samples, found)
        return found

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """Copies the records of some samples."""
        found: NDArray[np.void] = self.records[samples]
        return found

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """See Note [unpacked sources]."""
        found: NDArray[np.int64] = self._reading_order[places]
        return found

    @cached_property
    def _reading_order(self) -> NDArray[np.int64]:
        """A fixed permutation, so that any part of it is a fair mix of classes; or as the samples lie in tars."""
        if self.scattered:
            return permute(np.arange(len(self), dtype=np.int64), len(self), _PERMUTATION)
        return self._as_they_lie()

    def _as_they_lie(self) -> NDArray[np.int64]:
        return np.lexsort((self.records["offset"], self.records["shard"]))

    @cached_property
    def scattered(self) -> bool:
        """Whether samples are files, or lie sorted by class in tars."""
        if self._columns.archives is None:
            return True
        labels = self.records["label"][self._as_they_lie()]
        if len(labels) < 2 or len(self.classes) < 2:
            return False
        shares = np.bincount(labels - NO_LABEL) / len(labels)
        chance = float((shares**2).sum())
        together = float((labels[1:] == labels[:-1]).mean())
        return together > chance + _SORTED * (1 - chance)

    def paths_of(self, samples: NDArray[np.int64]) -> list[str]:
        """The paths of some samples, as packing would note them."""
        paths = self._columns.paths
        return [readable(paths[number]) for number in self._numbers[samples].tolist()]

    def identities(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> NDArray[np.uint64]:
        """See Index. The first time all files are read, in part, which takes about as long as the first scan.

        Raises:
            DatasetError: one cannot be read.
        """
        known = self._columns.identities
        unknown = self._numbers[known[self._numbers] == 0]
        if len(unknown):
            read_files(self._columns, unknown, identities)
            save(self._columns)
        found: NDArray[np.uint64] = known[self._numbers[samples]]
        return found

    def key_hashes(self, samples: NDArray[np.int64]) -> NDArray[np.uint64]:
        """See Index."""
        return np.array([key_hash(path) for path in self.paths_of(samples)], dtype=np.uint64)

    def sample_at(self, shard: int, offset: int) -> int | None:
        """The sample whose bytes begin there."""
        found = np.flatnonzero((self.records["shard"] == shard) & (self.records["offset"] == offset))
        return int(found[0]) if len(found) else None

    def where(self, sample: int) -> tuple[str, str, int]:
        """Path of the file or tar, key and byte offset of a sample, for messages."""
        record = self.records[sample]
        return str(self.shards[int(record["shard"])].path), self.paths_of(np.array([sample]))[0], int(record["offset"])

    def sample_error(self, sample: int, reason: str, *, replace: bool = False) -> SampleError:
        """See Index; it names the file."""
        shard, key, offset = self.where(sample)
        for ours, theirs in _WORDS.items():
            reason = reason.replace(ours, theirs)
        advice = (
            "on_error='replace' found no other sample for its place: remove the damaged files"
            if replace
            else "to train without it: fastpipe.loader(..., on_error='replace'), or remove the file"
        )
        advice += ". `fastpipe pack` reads every file once, and leaves out and lists the damaged ones"
        if "has changed since" in reason:
            advice = "make the loader again: it scans files that have changed. Change no file while a loader uses it"
        message = (
            f"sample {sample} ({key}) cannot be decoded: {reason}\n  at byte {offset} of {readable(shard)}\n  {advice}"
        )
        return SampleError(message, shard=shard, key=key, sample=sample, offset=offset, reason=reason)

    def __repr__(self) -> str:
        return (
            f"<fastpipe unpacked {str(self.path)!r}: {len(self)} samples, "
            f"{len(self.classes)} {'class' if len(self.classes) == 1 else 'classes'}>"
        )

    @property
    def convert(self) -> Callable[[int], bytes]:  # type: ignore[override]
        """Makes the JPEG of a sample that `fastpipe pack` would store."""
        return self._convert

    def _convert(self, sample: int) -> bytes:
        from fastpipe.packing.picture.convert import EncodeOptions, convert

        packed = convert(self._bytes_of(sample), EncodeOptions(max_pixels=self._limit))
        record = self.records[sample]
        if (packed.width, packed.height) != (record["width"], record["height"]):
            raise ImageError(
                f"{packed.width} x {packed.height} pixels; its header said {record['width']} x {record['height']}"
            )
        return packed.jpeg

    def _bytes_of(self, sample: int) -> bytes:
        """The file or member, which must be as it was scanned."""
        record = self.records[sample]
        number, size = int(record["shard"]), int(record["size"])
        shard = self.shards[number]
        assert self.mtimes_ns is not None  # of every unpacked source
        handle = os.open(shard.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if (status.st_size, status.st_mtime_ns) != (shard.size_bytes, self.mtimes_ns[number]):
                raise ImageError("the file has changed since it was scanned")
            data = read_at(handle, size, int(record["offset"]))
        finally:
            os.close(handle)
        if len(data) != size:
            raise ImageError(f"the file has changed since it was scanned: needs {size:,} bytes, found {len(data):,}")
        return data
