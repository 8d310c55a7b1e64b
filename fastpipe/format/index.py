"""A packed dataset's folder -> its description and its memory-mapped index."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError, SampleError
from fastpipe.format import tar_writer as tar
from fastpipe.format.columns import open_column
from fastpipe.format.description import REPACK, file_hash, read_info
from fastpipe.format.fields import FIELDS_FOLDER, MOST_VALUE_BYTES, read_fields
from fastpipe.format.folder import Place, dataset_folder
from fastpipe.format.layout import (
    COEFFICIENTS_STORAGE,
    DATASET_FILE,
    INDEX_DTYPE,
    INDEX_FILE,
    NO_LABEL,
    PICTURE_ENDINGS,
    SOURCES_FILE,
    WITHOUT_HASHES,
    shard_number,
    version_folder,
)
from fastpipe.format.open_file import RESTORE, OpenFile, Rows, open_npy
from fastpipe.format.pixel_form import possible_forms, read_forms
from fastpipe.format.sample_layout import BEFORE_BYTES, sample_key
from fastpipe.format.shard_list import ShardColumns, a_list, count, one_of, text

_NOTE_BYTES = 512  # most often all of KEY.json, read together with its header
_MOST_OPEN = 32  # shards


class NoRecordsError(DatasetError):
    """A dataset's index.npy cannot be opened, while its dataset.json is as it should be."""


class ReadableShard(Protocol):
    """The bytes of a shard; `path` is for messages."""

    @property
    def path(self) -> Place: ...
    def read(self, offset_bytes: int, size_bytes: int) -> bytes: ...


class Index:
    """The description of a stored dataset, without its pixels; this one of a packed dataset in a folder. Records are
    read when they are needed, so a billion samples open at once: Note [records of the index] in open_file.py.

    `version` None: the newest. `max_pixels`: to read the record of a larger image is an error; None: no limit.
    `shown_as`: where the dataset really is, if the folder is a cache of it.
    """

    packed = True  # by `fastpipe pack`; mtimes_ns, odd and convert are for other sources: scan/index.py
    scattered = False  # in the order of `samples_at`: nothing is gained by reading neighbours together
    lineage = ""  # a packed dataset's: the same for all of its versions, and for no other dataset
    in_tars = True  # or else each sample is a file
    in_deeper_folders = False  # files that are not packed, and lie in folders of class folders
    may_be_large = True  # there may be pictures of more than max_pixels
    restored_by = RESTORE
    why_not: Mapping[str, str] = {}  # of several datasets, fields that not all have, or that do not go together
    mtimes_ns: NDArray[np.int64] | None = None  # (shards,) when each was last written, which reading it checks again
    odd: NDArray[np.bool_] | None = None  # (samples,) pictures to be converted before the engine reads them
    convert: Callable[[int], bytes] | None = None  # makes a PNG or JPEG of a sample; ImageError, OSError, DatasetError

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        version: int | None = None,
        max_pixels: int | None = None,
        shown_as: Place | None = None,
    ) -> None:
        self.folder = Path(os.path.abspath(dataset_folder(path)))  # of the shards; programs change their folder
        self.path: Place = shown_as or dataset_folder(path)  # for messages
        self._max_pixels = max_pixels
        columns = ShardColumns()
        info = read_info(dataset_folder(path), columns.take, version)
        try:
            self.classes = [text(name) for name in a_list(info["classes"])]
            self.version = info["version"]  # from 1 on; 0: not packed
            self.fingerprint = text(info["fingerprint"])  # names content and order, byte by byte
            self.content = text(info["content"])  # names identities, sizes and labels, whatever the storage
            self._index_hash = text(info["index"]["file_xxh3_64"])
            self.fields = read_fields(info)
            self.storage = one_of(info["storage"], PICTURE_ENDINGS)
            self.jpeg_bytes = count(info["jpeg_bytes"])
            self.stored_bytes = count(info["stored_bytes"])
            self.shards = columns.of(self.folder, info["shards"])
            samples = count(info["samples"])
            self.class_counts = [count(each) for each in a_list(info["class_counts"])]
            self.form_counts = read_forms(a_list(info["forms"]))
            self.least_label = NO_LABEL if sum(self.class_counts) < samples else 0
            self.counts: dict[str, Any] = info["counts"]  # of packing: docs/format.md
            count(self.counts["rejected"])
            if info.get("packs"):
                first = json.dumps(info["packs"][0], sort_keys=True).encode()
                self.lineage = xxhash.xxh3_64_hexdigest(first)
            self.may_be_large = max_pixels is not None and max_pixels < max(
                (count(each["options"].get("max_pixels", 0)) for each in a_list(info.get("packs", []))), default=0
            )
            if len(self.class_counts) != len(self.classes):
                raise ValueError("class_counts and classes have different lengths")
            if samples != self.shards.samples:
                raise ValueError("samples differs from the sum of the shards' samples")
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise DatasetError(
                f"{self.path / DATASET_FILE} has a missing or invalid field ({problem!r}); {REPACK}"
            ) from problem
        self.shard_sizes, self.shard_starts = self.shards.sizes, self.shards.starts
        self.files = self.folder / version_folder(self.version)  # of index and columns
        try:
            rows, _ = open_npy(self.files / INDEX_FILE, INDEX_DTYPE, samples)
            self._records_file, self.records = rows.file.identity, rows.mapped(samples)
        except DatasetError as problem:
            raise NoRecordsError(str(problem)) from problem.__cause__

    @cached_property
    def info(self) -> dict[str, Any]:
        """The content of dataset.json, read again, for a loader does not need most of it. DatasetError: another one."""
        info = read_info(self.folder, version=self.version)
        refuse_other(self.path, self.fingerprint, info.get("fingerprint"))
        return info

    def hashed_files(self, fields: Iterable[str]) -> Iterator[tuple[Path, str, str]]:
        """dataset.json, index.npy and the columns of some fields, with their hashes, and how to restore them."""
        if not self.packed:
            return
        yield self.folder / DATASET_FILE, "", self.restored_by
        yield self.files / INDEX_FILE, self._index_hash, self.restored_by
        for field in (self.fields[name] for name in fields if name in self.fields):
            for file, expected in field.files.items():
                yield self.files / FIELDS_FOLDER / file, expected, self.restored_by

    def sources(self) -> NDArray[np.void]:
        """(n,) of SOURCES_DTYPE, mapped into memory. DatasetError: the file has changed."""
        file = self.files / SOURCES_FILE
        if file_hash(file) != self.info["sources"]["file_xxh3_64"]:
            raise DatasetError(f"{file} has changed since it was packed; find the damage with fastpipe verify first")
        return np.lib.format.open_memmap(file, mode="r")

    def check_same(self) -> None:
        """DatasetError: index.npy is gone, or the folder now holds a different dataset."""
        self._opened()

    def _opened(self) -> Rows:
        file = OpenFile(self.files / INDEX_FILE)
        if file.identity != self._records_file:  # a copy of the same dataset may have taken its place
            refuse_other(self.path, self.fingerprint, self.info.get("fingerprint"))
        return Rows(file, self.records.offset, INDEX_DTYPE)

    _rows = cached_property(_opened)  # when records are first read; of use to forked children, too

    def __len__(self) -> int:
        return len(self.records)

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: label for label, name in enumerate(self.classes)}

    def class_name(self, label: int) -> str:
        """The name of a label; "" of NO_LABEL."""
        return self.classes[label] if label != NO_LABEL else ""

    def __repr__(self) -> str:
        return (
            f"<fastpipe dataset {str(self.path)!r}: {len(self)} samples, "
            f"{len(self.classes)} {'class' if len(self.classes) == 1 else 'classes'}, "
            f"{len(self.shards)} {'shard' if len(self.shards) == 1 else 'shards'}>"
        )

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """Copies the records of samples, in the same shape, unchecked; see `Rows.take`."""
        return self._rows.take(samples)

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """(n,) records; DatasetError: one cannot be read, or does not fit between its neighbours, or cannot be true."""
        rows, places = self._rows.around(samples, len(self))
        records: NDArray[np.void]
        before, records, behind = (rows.take(places + each, mode="clip") for each in (-1, 0, 1))  # faster than rows[]
        shard = np.searchsorted(self.shard_starts, samples, side="right") - 1
        first = samples == self.shard_starts[shard]
        last = np.searchsorted(self.shard_starts, samples + 1, side="right") - 1 != shard
        last |= samples == len(self) - 1
        size_bytes = self.shard_sizes[shard]
        placed = (records["shard"] == shard) & _inside(records, size_bytes)
        # A neighbour that lies about its own place says nothing about this one's.
        placed &= first | ~_inside(before, size_bytes) | (before["offset"] + before["size"] <= records["offset"])
        placed &= last | ~_inside(behind, size_bytes) | (records["offset"] + records["size"] <= behind["offset"])
        width, height = records["width"].astype(np.int64), records["height"].astype(np.int64)
        # No memory is made for a picture that cannot be there: a byte of a JPEG has 4 blocks of 8 x 8 pixels at most,
        # one of a PNG 1,032 bytes (zlib.net/zlib_tech.html) of 8 pixels each: 129 blocks.
        blocks = (width + 7) // 8 * ((height + 7) // 8)
        real = (width > 0) & (height > 0) & possible_forms(records) & (blocks <= 129 * records["size"].astype(np.int64))
        labelled = (records["label"] >= self.least_label) & (records["label"] < len(self.classes))
        good = placed & real & labelled
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            found = ", ".join(f"{name} {records[name][at]}" for name in WITHOUT_HASHES)
            raise DatasetError(
                f"{self.files / INDEX_FILE}: the record of sample {int(samples[at])} is impossible: {found}; expected "
                f"shard {int(shard[at])}, a byte range inside it that overlaps no other sample, at least 1 x 1 pixels "
                "but no more than these bytes can hold, 1, 3 or 4 channels of 8 or 16 bits, and a label below "
                f"{len(self.classes)}. The index is damaged: {REPACK}"
            )
        self.check_pixels(samples, records)
        return records

    def check_pixels(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> None:
        """Raises DatasetError if a picture has more than max_pixels; `records` have at least the samples' sides."""
        pixels = records["width"].astype(np.int64) * records["height"]
        large = 0 if self._max_pixels is None else int((pixels > self._max_pixels).sum())
        if large:
            at = int(np.argmax(pixels))
            raise DatasetError(
                f"{large:,} of {len(samples):,} samples have too many pixels: {self.name_of(int(samples[at]))} has "
                f"{records['width'][at]} x {records['height'][at]} pixels; expected at most {self._max_pixels:,}. If "
                "you trust the dataset, pass a larger max_pixels to fastpipe.open; or leave these out, with "
                f"data.select(lambda c: c['width'] * c['height'] <= {self._max_pixels})"
            )

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at places of the order that shuffled epochs are cut from: of a packed dataset, shard order."""
        return places

    def paths_of(self, samples: NDArray[np.int64]) -> Sequence[str | None]:
        """The paths of the sources of (n,) samples; None where the shards have them: see SourcePaths."""
        return [None] * len(samples)

    def hashes(self, samples: NDArray[np.int64], name: str) -> NDArray[np.uint64]:
        """(n,) the "identity" of each picture, or the hash of each "key", as of sample_layout.py."""
        return np.asarray(self.records_of(samples)[name])

    def sample_at(self, shard: int, offset: int) -> int | None:
        """The sample whose image begins at a byte of a shard, if any. DatasetError: the index cannot be read."""
        offsets = self.records_of_shard(shard)["offset"]
        place = int(np.searchsorted(offsets, offset))
        there = place < len(offsets) and int(offsets[place]) == offset
        return int(self.shard_starts[shard]) + place if there else None

    def records_of_shard(self, shard: int) -> NDArray[np.void]:
        first = int(self.shard_starts[shard])
        return self.records_of(np.arange(first, first + self.shards[shard].samples))

    def part_of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) which of several datasets each sample is of: of one dataset, 0."""
        return np.zeros(len(samples), dtype=np.int64)

    def column(self, name: str) -> Any:
        """The column of a field: format/columns.py. DatasetError: a file is missing, damaged, or of another dataset."""
        self.fetch_columns([name])
        return open_column(self.files / FIELDS_FOLDER, len(self), self.fields[name])

    def fetch_columns(self, names: Iterable[str]) -> None:
        """Brings the files of some fields here, where they are behind a URL."""

    def reader(self, of: Index | None = None) -> object | None:
        """The store.remote.reader.Reader of shards that are not here, also for a mixture `of` which this is a part."""
        return None

    def in_coefficients(self, shards: NDArray[np.uint32]) -> NDArray[np.bool_] | bool:
        return self.storage == COEFFICIENTS_STORAGE

    def open_shard(self, number: int) -> ReadableShard:
        """A shard, to read notes in it. DatasetError: it cannot be opened."""
        return OpenFile(self.shards[number].path)

    def where(self, sample: int) -> tuple[str, str, int]:
        """Shard path, WebDataset key and byte offset of a sample, for messages."""
        record = self.records_of(np.array(sample))[()]
        name = self.shards[int(record["shard"])].name
        key = sample_key(shard_number(name), int(record["offset"]) - BEFORE_BYTES)
        return str(self.path / name), key, int(record["offset"])

    def damage(self, size_of: Callable[[str], int]) -> str | None:
        """A shard that is gone or of another size; `size_of` gives the size of a file, by name, or raises OSError."""
        for shard in self.shards:
            try:
                size = size_of(shard.name)
            except OSError as problem:
                return f"{shard.name}: {problem.strerror}"
            if size != shard.size_bytes:
                return f"{shard.name} has {size:,} bytes, expected {shard.size_bytes:,}"
        return None

    def name_of(self, sample: int) -> str:
        shard, key, _ = self.where(sample)
        return f"sample {sample} (key {key} of {shard})"

    def sample_error(
        self, sample: int, reason: str | Exception, more: str = "", *, replace: bool = False
    ) -> SampleError:
        """The error for a sample that cannot be read or decoded, or, as was to be done, replaced."""
        shard, key, offset = self.where(sample)
        words = f"{reason}{more}"
        return SampleError(shard=shard, key=key, sample=sample, offset=offset, reason=words, replace=replace)


def refuse_other(path: Place, expected: str, found: object) -> None:
    """Raises DatasetError if the fingerprints differ: what was read of the one dataset says nothing about the other."""
    if found != expected:
        raise DatasetError(
            f"{path} now holds a different dataset: expected fingerprint {expected}, got {found}. Open it again. "
            "While a dataset is in use, pack into another folder"
        )


class SourcePaths:
    """Reads the paths of samples' sources in KEY.json, behind the pictures; for threads and forked children, too."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._shard = lru_cache(_MOST_OPEN)(index.open_shard)  # what is dropped closes itself

    def of(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> list[str]:
        """The paths of samples with these records (docs/format.md). DatasetError: a shard or a note is damaged."""
        places = zip(self._index.paths_of(samples), records[["shard", "offset", "size"]].tolist(), strict=True)
        return [
            _path(self._shard(shard), offset, tar.padded(offset + size, tar.BLOCK)) if known is None else known
            for known, (shard, offset, size) in places
        ]


def _path(shard: ReadableShard, offset: int, at: int) -> str:
    """The path in the note whose header begins at byte `at`, of the sample whose image begins at `offset`."""
    key = sample_key(shard_number(str(shard.path).rpartition("/")[2]), offset - BEFORE_BYTES)
    data = shard.read(at, tar.BLOCK + _NOTE_BYTES)  # a shard ends with more than that
    header = data[: tar.BLOCK]
    try:
        size = int(header[tar.SIZE_FIELD], 8)
        if size > MOST_VALUE_BYTES or header != tar.header(key + ".json", size):
            raise ValueError("it does not begin with its header")
        note = data[tar.BLOCK :] if size <= _NOTE_BYTES else shard.read(at + tar.BLOCK, size)
        path = json.loads(note[:size])["path"]
        if not isinstance(path, str):
            raise TypeError(f"its path is {path!r:.40}")
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise DatasetError(
            f"{shard.path}: {key}.json is damaged ({problem}); expected a note with the path of the source at byte "
            f"{at}. Restore it (fastpipe verify DATA --repair SRC)"
        ) from problem
    return path


def _inside(records: NDArray[np.void], size_bytes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each has bytes, inside a shard of that size."""
    offset, size = records["offset"], records["size"]
    return np.asarray((size > 0) & (offset <= size_bytes) & (size <= size_bytes - offset))
