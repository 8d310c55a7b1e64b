"""A scan -> an index, with which a loader reads photos and tars where they lie.

Note [unpacked sources]
A file of a folder is a shard with one image at byte 0; a tar is a shard with many. So loading
without packing needs only another index. Its samples are those of `fastpipe pack --no-shuffle`, in
the same order, so that the batches are the same, too. But packing reads files to their end: files
that are damaged behind their header are still samples here.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from fastpipe.arrays import Int64s, Records, Uint64s
from fastpipe.dataset.format.index import Index, ReadableShard, check_pixel_limit
from fastpipe.dataset.format.layout import (
    INDEX_DTYPE,
    JPEG_STORAGE,
    NO_LABEL,
    WITHOUT_HASHES,
)
from fastpipe.dataset.format.open_file import OpenFile
from fastpipe.dataset.format.parts import starts_of
from fastpipe.dataset.format.pixel_form import count_forms
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.dataset.format.shard_list import Shards, Texts
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import DatasetError, ImageError, SampleError, readable
from fastpipe.native import _engine
from fastpipe.plan.order import permute
from fastpipe.sources.files import LocalFile
from fastpipe.sources.scan import reading
from fastpipe.sources.scan.cache import save_scan
from fastpipe.sources.scan.scanned_files import CONVERTED, Scan

# Channels of a record.
RGB = 3
WITH_ALPHA = 4

# Any value will do, since epochs permute again.
_PERMUTATION_SEED = 0x0F0E0D0C0B0A0908
# Tars count as sorted by class if this share of neighbours is of one class, beyond those that are
# by chance.
_SORTED_SHARE = 0.5
# The engine's own messages speak of shards, which an unpacked source does not have.
_MESSAGES = {
    _engine.Code.open_failed: "the file cannot be opened",
    _engine.Code.shard_changed: "the file has changed since it was scanned",
    _engine.Code.read_failed: "the file cannot be read",
    _engine.Code.shard_too_short: "the sample is beyond the end of the file",
}
_MAX_SHOWN_REASONS = 3


class UnpackedIndex(Index):
    """The description of an unpacked source; see Note [unpacked sources].

    Args:
        path: as the user passed it, for messages.
        scan: the files of the source.
        max_pixels: reading the record of a larger picture is an error; None: no limit.
        background: "#rrggbb", on which transparent images are put; None: they keep their alpha.

    Raises:
        DatasetError: no file can be loaded.
    """

    packed = False
    version = 0
    storage = JPEG_STORAGE
    mtimes_ns: Int64s

    def __init__(
        self,
        path: Path,
        scan: Scan,
        *,
        max_pixels: int | None = None,
        background: str | None = None,
    ) -> None:
        self.path = path
        self.folder = scan.folder
        self.classes = scan.classes
        self.fields = {}
        self._scan = scan
        self._max_pixels = max_pixels
        self._background = background

        # Pictures over packing's limit are left out, unless the user allows larger ones.
        self._convert_max_pixels = max(max_pixels or 0, MAX_PIXELS)
        files = scan.files
        # The other kinds are REJECTED and UNKNOWN.
        is_usable = files["kind"] <= CONVERTED
        widths = files["width"].astype(np.int64)
        pixels = widths * files["height"]
        is_large = is_usable & (pixels > self._convert_max_pixels)
        self._reasons = dict(scan.reasons)
        for number in np.flatnonzero(is_large).tolist():
            self._reasons[number] = (
                f"{files['width'][number]} x {files['height'][number]} is over the limit of "
                f"{self._convert_max_pixels:,} pixels; if you trust the image, pass a larger "
                "max_pixels"
            )
        # (samples,) the number of each sample among the files.
        self._file_numbers = np.flatnonzero(is_usable & ~is_large)
        samples = files[self._file_numbers]
        if not len(samples):
            raise DatasetError(
                f"{path} is not a packed dataset, and has no image that can be loaded"
                f"{self.describe_rejected()}"
            )

        # The engine would keep alpha, so pictures that get a background are converted to RGB first.
        gets_background = (samples["channels"] == WITH_ALPHA) & (background is not None)
        self.needs_conversion = (samples["kind"] == CONVERTED) | gets_background
        self.counts = {
            "rejected": len(files) - len(samples),
            "converted": int(self.needs_conversion.sum()),
        }
        labels = samples["label"][samples["label"] >= 0]
        class_counts = np.bincount(labels, minlength=len(self.classes))
        self.class_counts = class_counts.tolist()
        self.jpeg_bytes = int(samples["size"].sum(dtype=np.int64))
        self.stored_bytes = self.jpeg_bytes

        records = np.zeros(len(samples), dtype=INDEX_DTYPE)
        for name in WITHOUT_HASHES:
            records[name] = samples[name]
        records["channels"][gets_background] = RGB
        if scan.archives is None:
            # The shards are the files of samples. The scan has numbered those left out, too.
            records["shard"] = np.arange(len(samples))
        # All loaders of this index share the records.
        records.flags.writeable = False
        self._records = records
        self.form_counts = count_forms(records)
        self._list_shards(samples)
        self.fingerprint = self._fingerprint()
        self.content = self.fingerprint

    def _list_shards(self, samples: Records) -> None:
        """Makes a shard of each tar, or of each file; `samples` are the records of the scan."""
        archives = self._scan.archives
        if archives is None:
            paths = self._scan.paths
            numbers = self._file_numbers.tolist()
            names = Texts.of(map(paths.bytes_at, numbers))
            # Copies, since a column by itself would keep all of `samples` in memory.
            self.shard_sizes = samples["size"].copy()
            self.mtimes_ns = samples["mtime_ns"].copy()
        else:
            names = Texts.of(archive.path for archive in archives)
            sizes = [archive.size_bytes for archive in archives]
            mtimes_ns = [archive.mtime_ns for archive in archives]
            self.shard_sizes = np.array(sizes, dtype=np.uint64)
            self.mtimes_ns = np.array(mtimes_ns, dtype=np.int64)
        sample_counts = np.bincount(self._records["shard"], minlength=len(names))
        # (shards + 1,) the first sample of each shard, and the number of all samples.
        bounds = starts_of(sample_counts)
        self.shards = Shards([(self.folder, names)], bounds, self.shard_sizes)
        self.shard_starts = self.shards.starts

    def _fingerprint(self) -> str:
        """Hashes what decides content and order: classes, paths, sizes, labels, places in tars.

        Times are not part of it, so a copy of the source has the same fingerprint.
        """
        files = self._scan.files
        paths = self._scan.paths
        class_names = b"".join(os.fsencode(name) + b"\0" for name in self.classes)
        digest = xxhash.xxh3_128(class_names)
        digest.update(paths.data)
        digest.update((self._background or "").encode())
        ends_of_paths = paths.bounds[1:]
        arrays = [ends_of_paths, files["size"], files["label"], self._file_numbers]
        if self.is_in_tars:
            arrays += [files["shard"], files["offset"]]
        for array in arrays:
            digest.update(array.tobytes())
        return f"unpacked-{digest.hexdigest()}"

    def describe_rejected(self) -> str:
        """How many files are no samples, and why: the end of a message."""
        count = len(self._reasons)
        message = f": {count:,} files are left out"
        for number in sorted(self._reasons)[:_MAX_SHOWN_REASONS]:
            message += (
                f"\n  {readable(self._scan.paths[number])}: {self._reasons[number]}"
            )
        if count > _MAX_SHOWN_REASONS:
            message += f"\n  and {count - _MAX_SHOWN_REASONS:,} more"
        return message

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> Records:
        return self._records

    def records_of(self, samples: Int64s) -> Records:
        return self._records[samples]

    def read(self, samples: Int64s) -> Records:
        records = self.records_of(samples)
        self.check_pixels(samples, records)
        return records

    def check_pixels(self, samples: Int64s, records: Records) -> None:
        check_pixel_limit(self, self._max_pixels, samples, records)

    def check_same(self) -> None:
        """Nothing can differ, since the records are in memory."""

    def column(self, name: str) -> Any:
        raise KeyError(name)  # it has no fields

    def open_shard(self, number: int) -> ReadableShard:
        return OpenFile(self.shards[number].path)

    def samples_at(self, places: Int64s) -> Int64s:
        return self._reading_order[places]

    @cached_property
    def _reading_order(self) -> Int64s:
        """(samples,) as samples lie in tars; or a fixed permutation.

        Any part of the permutation is a fair mix of classes.
        """
        if self.is_scattered:
            positions = np.arange(len(self), dtype=np.int64)
            return permute(positions, len(self), _PERMUTATION_SEED)
        return self._order_in_tars()

    def _order_in_tars(self) -> Int64s:
        records = self._records
        return np.lexsort((records["offset"], records["shard"]))

    @property
    def is_in_tars(self) -> bool:
        return self._scan.archives is not None

    @property
    def has_deeper_folders(self) -> bool:
        if self.is_in_tars or not self.classes:
            return False
        # A file in a class folder has one slash in its path.
        num_folders = self._scan.paths.data.count(b"/")
        return num_folders > len(self._scan.files)

    @cached_property
    def is_scattered(self) -> bool:
        """Whether samples are files, or lie sorted by class in tars."""
        if not self.is_in_tars:
            return True
        if len(self) < 2 or len(self.classes) < 2:
            return False
        # Two samples drawn at random are of one class with the probability `by_chance`. In tars
        # that are sorted by class, nearly all neighbors are.
        labels = self._records["label"][self._order_in_tars()]
        class_shares = np.bincount(labels - NO_LABEL) / len(labels)
        by_chance = float((class_shares**2).sum())
        is_same = labels[1:] == labels[:-1]
        same_neighbors = float(is_same.mean())
        return same_neighbors > by_chance + _SORTED_SHARE * (1 - by_chance)

    def paths_of(self, samples: Int64s) -> list[str]:
        paths = self._scan.paths
        numbers = self._file_numbers[samples].tolist()
        return [readable(paths[number]) for number in numbers]

    def hashes(self, samples: Int64s, name: str) -> Uint64s:
        """See Index. The first call for identities reads parts of all files.

        Raises:
            DatasetError: a file cannot be read.
        """
        if name == "key":
            keys = self.paths_of(samples)
            return key_hashes(keys)
        # A view: reading fills it in.
        identities = self._scan.files["identity"]
        unknown = self._file_numbers[identities[self._file_numbers] == 0]
        if len(unknown):
            reading.read_files(self._scan, unknown, reading.read_identities)
            save_scan(self._scan)
        return identities[self._file_numbers[samples]]

    def sample_at(self, shard: int, offset: int) -> int | None:
        is_in_shard = self._records["shard"] == shard
        is_at_offset = self._records["offset"] == offset
        samples = np.flatnonzero(is_in_shard & is_at_offset)
        if not len(samples):
            return None
        return int(samples[0])

    def where(self, sample: int) -> tuple[str, str, int]:
        record = self._records[sample]
        shard = self.shards[int(record["shard"])].path
        return str(shard), "", int(record["offset"])

    def sample_error(
        self,
        sample: int,
        reason: str | Exception,
        more: str = "",
        *,
        replace: bool = False,
    ) -> SampleError:
        shard, _, offset = self.where(sample)
        key = self.source_path_of(sample)
        message = str(reason)
        code = getattr(reason, "code", None)  # an error of the engine has one
        if code in _MESSAGES:
            engine_words = _engine.reason(code, "")
            message = _MESSAGES[code] + message.removeprefix(engine_words)
        message += more
        if self._has_changed(int(self._records["shard"][sample])):
            advice = (
                "make the loader again: it scans files that have changed. Change no file while a "
                "loader uses it"
            )
        else:
            advice = (
                "to train without it: fastpipe.loader(..., on_error='replace'), or remove the "
                "file"
            )
            if replace:
                advice = (
                    "on_error='replace' found no other sample for its place: remove the damaged "
                    "files"
                )
            advice += (
                ". `fastpipe pack` reads every file once, and leaves out and lists the "
                "damaged ones"
            )
        return SampleError(
            f"sample {sample} ({key}) cannot be decoded: {message}\n"
            f"  at byte {offset} of {readable(shard)}\n"
            f"  {advice}",
            shard=shard,
            key=key,
            sample=sample,
            offset=offset,
            reason=message,
        )

    def _has_changed(self, shard: int) -> bool:
        """Whether a file exists, but is not as it was scanned."""
        try:
            state = os.stat(self.shards[shard].path)
        except OSError:
            return False
        return not self._is_as_scanned(shard, state.st_size, state.st_mtime_ns)

    def _is_as_scanned(self, shard: int, size_bytes: int, mtime_ns: int) -> bool:
        return bool(
            size_bytes == self.shard_sizes[shard] and mtime_ns == self.mtimes_ns[shard]
        )

    def convert(self, sample: int) -> bytes:
        """Makes the PNG or JPEG that `fastpipe pack` would store.

        Raises:
            ImageError: the picture cannot be decoded, or is not as it was scanned.
        """
        from fastpipe.sources.picture.convert import EncodeOptions, convert

        record = self._records[sample]
        shard = int(record["shard"])
        size = int(record["size"])
        data = b""
        with LocalFile(self.shards[shard].path) as file:
            state = file.state
            if self._is_as_scanned(shard, state.size_bytes, state.mtime_ns):
                data = file.read_at(size, int(record["offset"]))
        # A file that has changed is not read at all, so that no other picture takes its place.
        if len(data) != size:
            raise ImageError("the file has changed since it was scanned")
        options = EncodeOptions(
            max_pixels=self._convert_max_pixels, background=self._background
        )
        packed = convert(data, options)
        has_width = packed.width == record["width"]
        if not has_width or packed.height != record["height"]:
            raise ImageError(
                f"{packed.width} x {packed.height} pixels; its header said "
                f"{record['width']} x {record['height']}"
            )
        return packed.data
