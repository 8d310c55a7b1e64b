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

import logging
import os
from functools import cached_property
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import DatasetError, ImageError, SampleError, readable
from fastpipe.format.index import Index
from fastpipe.format.layout import INDEX_DTYPE, JPEG_STORAGE, NO_LABEL, WITHOUT_HASHES
from fastpipe.format.pixel_form import count_forms
from fastpipe.format.sample_layout import key_hash
from fastpipe.format.shard_list import Shards, Texts
from fastpipe.packing.source.files import LocalFile
from fastpipe.plan.order import permute
from fastpipe.scan.cache import load, save
from fastpipe.scan.columns import ODD, Columns, columns_of, headers, identities, read_files
from fastpipe.scan.source import Source

_LOG = logging.getLogger("fastpipe")
_told: set[str] = set()
_PERMUTATION = 0x0F0E0D0C0B0A0908  # any: epochs permute again
# Neighbours of one class, compared with how many there would be by chance, at which tars count as sorted.
_SORTED = 0.5


def scanned(path: Path, source: Source, max_pixels: int | None, fingerprint: str | None) -> UnpackedIndex:
    """As `open_data`, of an unpacked source. Files that have not changed since the last scan are not read again."""
    before = load(source.name)
    if before is not None and fingerprint is not None and not len(before.unknown):
        index = UnpackedIndex(path, before, max_pixels=max_pixels)
        if index.fingerprint == fingerprint:
            return index
    archives = source.archives()
    if before is not None and archives is not None and before.archives == archives and not len(before.unknown):
        columns = before  # tars are walked only if one of them has changed
    else:
        columns = columns_of(source.name, source.listing(), archives)
        if before is None or not columns.take_over(before):
            read_files(columns, columns.unknown, headers)
            save(columns)
    index = UnpackedIndex(path, columns, max_pixels=max_pixels)
    if index.counts["rejected"] and index.fingerprint not in _told:
        _told.add(index.fingerprint)
        _LOG.warning("%s%s", path, index.rejected())
    return index


class UnpackedIndex(Index):
    """The description of an unpacked source, whose records are in memory, made by a scan; see Note [unpacked sources].
    DatasetError: there is no picture.
    """

    packed = False
    version = 0
    storage = JPEG_STORAGE
    least_label = NO_LABEL
    mtimes_ns: NDArray[np.int64]
    records: NDArray[np.void]  # type: ignore[assignment]

    def __init__(self, path: Path, columns: Columns, *, max_pixels: int | None = None) -> None:
        self.path, self.folder, self.classes = path, columns.folder, columns.classes
        self._columns, self._max_pixels, self.fields = columns, max_pixels, {}
        self._limit = max(max_pixels or 0, MAX_PIXELS)
        files = columns.files
        good = files["kind"] <= ODD
        large = good & (files["width"].astype(np.int64) * files["height"] > self._limit)
        self._reasons = columns.reasons | {
            number: f"{files['width'][number]} x {files['height'][number]} is over the limit of {self._limit:,} "
            "pixels; if you trust the image, pass a larger max_pixels"
            for number in np.flatnonzero(large).tolist()
        }
        self._numbers = np.flatnonzero(good & ~large)  # of the samples, among the files
        kept = files[self._numbers]
        if not len(kept):
            raise DatasetError(f"{path} is not a packed dataset, and has no image that can be loaded{self.rejected()}")
        self.odd = kept["kind"] == ODD
        self.counts = {"rejected": len(files) - len(kept), "converted": int(self.odd.sum())}
        self.class_counts = np.bincount(kept["label"][kept["label"] >= 0], minlength=len(self.classes)).tolist()
        self.jpeg_bytes = self.stored_bytes = int(kept["size"].sum(dtype=np.int64))
        self.records = np.zeros(len(kept), dtype=INDEX_DTYPE)
        for name in WITHOUT_HASHES:
            self.records[name] = kept[name]
        if columns.archives is None:  # a file that lies by itself is the shard of its sample's number
            self.records["shard"] = np.arange(len(kept))
            names = Texts.of(map(columns.paths.bytes_at, self._numbers.tolist()))
            self.shard_sizes, self.mtimes_ns = kept["size"].copy(), kept["mtime_ns"].copy()
        else:
            names = Texts.of(name for name, _, _ in columns.archives)
            self.shard_sizes = np.array([size for _, size, _ in columns.archives], dtype=np.uint64)
            self.mtimes_ns = np.array([mtime_ns for _, _, mtime_ns in columns.archives], dtype=np.int64)
        self.form_counts = count_forms(self.records)
        self.records.flags.writeable = False
        bounds = np.concatenate([[0], np.cumsum(np.bincount(self.records["shard"], minlength=len(names)))])
        self.shards = Shards([(self.folder, names)], bounds, self.shard_sizes)
        self.shard_starts = self.shards.starts
        self.fingerprint = self.content = self._fingerprint()

    def _fingerprint(self) -> str:
        """Of classes, paths, sizes, labels and places in tars, which decide the order; copies have the same."""
        files, paths = self._columns.files, self._columns.paths
        digest = xxhash.xxh3_128(b"".join(os.fsencode(name) + b"\0" for name in self.classes))
        digest.update(paths.data)
        in_tars = () if self._columns.archives is None else (files["shard"], files["offset"])
        for values in (paths.bounds[1:], files["size"], files["label"], self._numbers, *in_tars):
            digest.update(values.tobytes())
        return f"unpacked-{digest.hexdigest()}"

    def rejected(self, most: int = 3) -> str:
        """How many files are no samples, and why."""
        reasons, paths = self._reasons, self._columns.paths
        shown = [f"\n  {readable(paths[number])}: {reasons[number]}" for number in sorted(reasons)[:most]]
        more = f"\n  and {len(reasons) - most:,} more" if len(reasons) > most else ""
        return f": {len(reasons):,} files are left out{''.join(shown)}{more}"

    def check_same(self) -> None:
        """The records are in memory."""

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        found = self.records_of(samples)
        self.check_pixels(samples, found)
        return found

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        return self.records[samples]

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._reading_order[places]

    @cached_property
    def _reading_order(self) -> NDArray[np.int64]:
        """A fixed permutation, so that any part of it is a fair mix of classes; or as the samples lie in tars."""
        if not self.scattered:
            return self._as_they_lie()
        return permute(np.arange(len(self), dtype=np.int64), len(self), _PERMUTATION)

    def _as_they_lie(self) -> NDArray[np.int64]:
        return np.lexsort((self.records["offset"], self.records["shard"]))

    @cached_property
    def scattered(self) -> bool:  # type: ignore[override]
        """Whether samples are files, or lie sorted by class in tars."""
        if self._columns.archives is None or len(self) < 2 or len(self.classes) < 2:
            return self._columns.archives is None
        labels = self.records["label"][self._as_they_lie()]
        chance = float(((np.bincount(labels - NO_LABEL) / len(labels)) ** 2).sum())
        return float((labels[1:] == labels[:-1]).mean()) > chance + _SORTED * (1 - chance)

    def paths_of(self, samples: NDArray[np.int64]) -> list[str]:
        paths = self._columns.paths
        return [readable(paths[number]) for number in self._numbers[samples].tolist()]

    def hashes(self, samples: NDArray[np.int64], name: str) -> NDArray[np.uint64]:
        """See Index. The first time that identities are asked for, all files are read in part, as long as a scan.
        DatasetError: one cannot be read.
        """
        if name == "key":
            return np.array([key_hash(path) for path in self.paths_of(samples)], dtype=np.uint64)
        known = self._columns.files["identity"]
        unknown = self._numbers[known[self._numbers] == 0]
        if len(unknown):
            read_files(self._columns, unknown, identities)
            save(self._columns)
        return known[self._numbers[samples]]

    def sample_at(self, shard: int, offset: int) -> int | None:
        found = np.flatnonzero((self.records["shard"] == shard) & (self.records["offset"] == offset))
        return int(found[0]) if len(found) else None

    def where(self, sample: int) -> tuple[str, str, int]:
        """See Index; the key is the path."""
        record = self.records[sample]
        return str(self.shards[int(record["shard"])].path), self.paths_of(np.array([sample]))[0], int(record["offset"])

    def sample_error(self, sample: int, reason: str, *, replace: bool = False) -> SampleError:
        shard, key, offset = self.where(sample)
        # What the engine says of a shard is of a file here.
        reason = reason.replace("the shard", "the file").replace("since it was packed", "since it was scanned")
        if "has changed since" in reason:
            advice = "make the loader again: it scans files that have changed. Change no file while a loader uses it"
        else:
            advice = "to train without it: fastpipe.loader(..., on_error='replace'), or remove the file"
            if replace:
                advice = "on_error='replace' found no other sample for its place: remove the damaged files"
            advice += ". `fastpipe pack` reads every file once, and leaves out and lists the damaged ones"
        message = (
            f"sample {sample} ({key}) cannot be decoded: {reason}\n  at byte {offset} of {readable(shard)}\n  {advice}"
        )
        return SampleError(message, shard=shard, key=key, sample=sample, offset=offset, reason=reason)

    def convert(self, sample: int) -> bytes:
        """Makes what `fastpipe pack` would store of a sample. The file must be as it was scanned."""
        from fastpipe.packing.picture.convert import EncodeOptions, convert

        record = self.records[sample]
        number, size = int(record["shard"]), int(record["size"])
        with LocalFile(self.shards[number].path) as file:
            same = file.state[:2] == (self.shard_sizes[number], self.mtimes_ns[number])
            data = file.read_at(size, int(record["offset"])) if same else b""
        if len(data) != size:
            raise ImageError("the file has changed since it was scanned")
        packed = convert(data, EncodeOptions(max_pixels=self._limit))
        if (packed.width, packed.height) != (record["width"], record["height"]):
            raise ImageError(
                f"{packed.width} x {packed.height} pixels; its header said {record['width']} x {record['height']}"
            )
        return packed.data
