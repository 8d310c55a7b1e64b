"""A packed dataset's folder -> its description and its memory-mapped index."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Int64s, Records, Uint64s
from fastpipe.dataset.format.columns import Column, open_column
from fastpipe.dataset.format.description import REPACK, file_hash, read_info
from fastpipe.dataset.format.fields import FIELDS_FOLDER, read_fields
from fastpipe.dataset.format.folder import Place, dataset_folder
from fastpipe.dataset.format.index import (
    Index,
    ReadableShard,
    check_pixel_limit,
    refuse_other,
)
from fastpipe.dataset.format.layout import (
    COEFFICIENTS_STORAGE,
    DATASET_FILE,
    INDEX_FILE,
    NO_LABEL,
    PICTURE_ENDINGS,
    SOURCES_FILE,
    WITHOUT_HASHES,
    WORK_FOLDER,
    index_dtype,
    shard_name,
    shard_number,
    version_folder,
)
from fastpipe.dataset.format.open_file import RESTORE, OpenFile, Rows, open_npy
from fastpipe.dataset.format.parts import parts_of
from fastpipe.dataset.format.pixel_form import possible_forms, read_forms
from fastpipe.dataset.format.sample_layout import BEFORE_BYTES, sample_key
from fastpipe.dataset.format.shard_list import ShardColumns, a_list, count, one_of, text
from fastpipe.dataset.format.source_paths import SourcePaths
from fastpipe.errors import DatasetError, FastpipeError, SampleError, closed_path

_LOG = logging.getLogger("fastpipe")


class PackedIndex(Index):
    """The description of a packed dataset in a folder.

    Records are read when they are needed, so that a billion samples open at once: see
    Note [records of the index] in open_file.py.

    Args:
        path: the dataset's folder.
        version: of the dataset; None: the newest.
        max_pixels: reading the record of a larger picture is an error; None: no limit.
        shown_as: the place of the dataset for messages, if the folder is a cache of it.
        records_error: the class of the error if index.npy cannot be opened, while dataset.json is as
            it should be.

    Raises:
        DatasetError: there is no dataset, or it is damaged.
    """

    packed = True
    restored_by = RESTORE  # advice on damaged files, for messages

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        version: int | None = None,
        max_pixels: int | None = None,
        shown_as: Place | None = None,
        records_error: type[DatasetError] = DatasetError,
    ) -> None:
        folder = dataset_folder(path)
        # Shards are opened later. So the path is absolute: the program may change its folder.
        self.folder = Path(os.path.abspath(folder))
        self.path = shown_as or folder
        self._max_pixels = max_pixels
        # Shards are collected while the JSON is parsed: as objects, thousands would take megabytes.
        shard_columns = ShardColumns()
        info = read_info(folder, shard_columns.take, version)
        try:
            self._read_description(info, shard_columns)
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise DatasetError(
                f"{self.path / DATASET_FILE} has a missing or invalid field ({problem!r}); {REPACK}"
            ) from problem

        self.files = self.folder / version_folder(self.version)  # of index and columns
        samples = self.shards.samples
        try:
            rows, _ = open_npy(self.files / INDEX_FILE, self._dtype, samples)
            self._records_file = rows.file.identity
            self._records = rows.mapped(samples)
        except DatasetError as problem:
            raise records_error(str(problem)) from problem.__cause__

        if version is None and shown_as is None:
            self._warn_of_other_shard(info)

    def find_beside(self, name: str) -> bytes | None:
        """The content of a small file of its folder that dataset.json does not know; None: there is
        none.

        Raises:
            OSError: it cannot be read.
        """
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def file_beside(self, name: str, hash_text: str) -> Path:
        """A file of its folder that `find_beside` led to. Its XXH3-64 is checked where it comes by
        URL; on this machine the file may be large, and stays unread.

        Raises:
            DatasetError: it cannot be fetched.
        """
        return self.folder / name

    def _warn_of_other_shard(self, info: dict[str, Any]) -> None:
        """Says if the folder has a shard more than the dataset: somebody may have copied it there.

        A pack or an add under way writes such shards, too; it has a work folder. Shards of earlier
        versions stay beside those of this one, and no later version uses their numbers again.
        """
        next_number = info.get("next_shard")
        if not isinstance(next_number, int):
            return
        name = shard_name(max(next_number, len(self.shards)))
        if not (self.folder / name).exists() or (self.folder / WORK_FOLDER).exists():
            return
        _LOG.warning(
            "%s is no shard of this dataset, and is not read. To add samples: fastpipe add SRC %s",
            self.folder / name,
            self.path,
        )

    def _read_description(
        self, info: dict[str, Any], shard_columns: ShardColumns
    ) -> None:
        """Takes what loaders need from dataset.json.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: an entry is missing or impossible.
        """
        classes = a_list(info["classes"])
        self.classes = [text(name) for name in classes]
        self.version = info["version"]
        self.fingerprint = text(info["fingerprint"])
        self.content = text(info["content"])
        self.fields = read_fields(info)
        self.storage = one_of(info["storage"], PICTURE_ENDINGS)
        self.jpeg_bytes = count(info["jpeg_bytes"])
        self.stored_bytes = count(info["stored_bytes"])
        class_counts = a_list(info["class_counts"])
        self.class_counts = [count(value) for value in class_counts]
        self.form_counts = read_forms(a_list(info["forms"]))
        self.counts = info["counts"]
        count(self.counts["rejected"])
        self._index_hash = text(info["index"]["file_xxh3_64"])
        self.is_wide = bool(info["index"].get("is_wide", False))
        self._dtype = index_dtype(is_wide=self.is_wide)

        self.shards = shard_columns.of(self.folder, info["shards"])
        self.shard_sizes = self.shards.sizes
        self.shard_starts = self.shards.starts
        samples = count(info["samples"])
        if samples != self.shards.samples:
            raise ValueError("samples differs from the sum of the shards' samples")
        if len(self.class_counts) != len(self.classes):
            raise ValueError("class_counts and classes have different lengths")
        # NO_LABEL is possible only if not all samples are counted in a class.
        self.least_label = NO_LABEL if sum(self.class_counts) < samples else 0

        # A loader's state is recognised by the lineage: all versions of a dataset have the same
        # first pack.
        packs = a_list(info.get("packs", []))
        if packs:
            first_pack = json.dumps(packs[0], sort_keys=True)
            self.lineage = xxhash.xxh3_64_hexdigest(first_pack.encode())
        shuffles = [pack["options"].get("shuffle") is True for pack in packs]
        self.is_shuffled = bool(shuffles) and all(shuffles)
        longest_sides = [pack["options"].get("max_size") for pack in packs]
        if longest_sides and None not in longest_sides:
            self.max_size = max(count(side) for side in longest_sides)
        packed_limits = []
        for pack in packs:
            pack_limit = pack["options"].get("max_pixels", 0)
            packed_limits.append(count(pack_limit))
        # Whether a record may have more pixels than this process allows (max_pixels).
        limit = self._max_pixels
        largest_packed = max(packed_limits, default=0)
        self.can_be_large = limit is not None and limit < largest_packed

    @cached_property
    def info(self) -> dict[str, Any]:
        """All of dataset.json. It is read again, since a loader does not need most of it.

        Raises:
            DatasetError: the folder now holds a different dataset.
        """
        info = read_info(self.folder, version=self.version)
        refuse_other(self.path, self.fingerprint, info.get("fingerprint"))
        return info

    def list_hashed_files(
        self, fields: Iterable[str]
    ) -> Iterator[tuple[Path, str, str]]:
        """See Index: dataset.json, index.npy and columns, with advice on restoring them."""
        yield self.folder / DATASET_FILE, "", self.restored_by
        yield self.files / INDEX_FILE, self._index_hash, self.restored_by
        for name in fields:
            if name not in self.fields:
                continue
            for file_name, expected in self.fields[name].files.items():
                file = self.files / FIELDS_FOLDER / file_name
                yield file, expected, self.restored_by

    def sources(self) -> Records:
        """(n,) of SOURCES_DTYPE, mapped into memory. DatasetError: the file has changed."""
        file = self.files / SOURCES_FILE
        if file_hash(file) != self.info["sources"]["file_xxh3_64"]:
            raise DatasetError(
                f"{file} has changed since it was packed; find the damage with fastpipe verify "
                "first"
            )
        return np.lib.format.open_memmap(file, mode="r")

    def check_same(self) -> None:
        self._open_rows()

    def refuse_replaced(self) -> None:
        try:
            info = read_info(self.folder, version=self.version)
        except DatasetError:
            return  # it cannot be told
        refuse_other(self.path, self.fingerprint, info.get("fingerprint"))

    def _open_rows(self) -> Rows:
        """Opens index.npy. DatasetError: it is gone, or the folder holds a different dataset."""
        # The file is opened when it is first read, perhaps long after the description was. In
        # between, somebody may have packed another dataset into the folder.
        file = OpenFile(self.files / INDEX_FILE)
        if file.identity != self._records_file:
            # Another file is not yet another dataset: it may be a copy of the same one.
            refuse_other(self.path, self.fingerprint, self.info.get("fingerprint"))
        return Rows(file, self._records.offset, self._dtype)

    @cached_property
    def _rows(self) -> Rows:
        """index.npy, opened when records are first read. Forked children can use it, too."""
        return self._open_rows()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> np.memmap[tuple[int], np.dtype[Any]]:
        """See Index; a map of index.npy."""
        return self._records

    def records_of(self, samples: Int64s) -> Records:
        return self._rows.take(samples)

    def read(self, samples: Int64s) -> Records:
        # The neighbours of each record show whether two samples overlap.
        rows, positions = self._rows.around(samples, len(self))
        # `take` with "clip" is faster than rows[positions]. It also serves the first and the last
        # record, which lack a neighbour; `_are_placed` does not look at what they get.
        records: Records = rows.take(positions, mode="clip")
        before = rows.take(positions - 1, mode="clip")
        behind = rows.take(positions + 1, mode="clip")
        shards = parts_of(self.shard_starts, samples)

        is_good = self._are_placed(samples, shards, before, records, behind)
        is_good &= self._are_possible(records)
        if not is_good.all():
            row = int(np.flatnonzero(~is_good)[0])
            sample = int(samples[row])
            shard = int(shards[row])
            raise self._impossible_record(sample, shard, records[row])
        self.check_pixels(samples, records)
        return records

    def _are_placed(
        self,
        samples: Int64s,
        shards: NDArray[np.intp],
        before: Records,
        records: Records,
        behind: Records,
    ) -> Bools:
        """(n,) whether records lie in their shards, between the records before and behind them."""
        # (n,) whether a sample is the first or the last of its shard.
        is_first = samples == self.shard_starts[shards]
        next_shards = parts_of(self.shard_starts, samples + 1)
        is_last_of_all = samples == len(self) - 1
        is_last = (next_shards != shards) | is_last_of_all
        sizes = self.shard_sizes[shards]

        is_in_shard = records["shard"] == shards
        is_placed = is_in_shard & _are_inside(records, sizes)
        # A neighbour whose own place is impossible proves nothing about this record.
        before_ends = before["offset"] + before["size"]
        is_behind = before_ends <= records["offset"]
        has_wrong_before = ~_are_inside(before, sizes)
        is_placed &= is_first | has_wrong_before | is_behind
        ends = records["offset"] + records["size"]
        is_before = ends <= behind["offset"]
        has_wrong_behind = ~_are_inside(behind, sizes)
        is_placed &= is_last | has_wrong_behind | is_before
        return np.asarray(is_placed)

    def _are_possible(self, records: Records) -> Bools:
        """(n,) whether such pictures and labels can exist."""
        width = records["width"].astype(np.int64)
        height = records["height"].astype(np.int64)
        # No memory is allocated for a picture that cannot exist: a byte of a JPEG has at most 4
        # blocks of 8 x 8 pixels. A byte of a PNG has 1,032 bytes (zlib.net/zlib_tech.html) of 8
        # pixels each: 129 blocks.
        blocks_across = (width + 7) // 8
        blocks_down = (height + 7) // 8
        num_blocks = blocks_across * blocks_down
        most_blocks = 129 * records["size"].astype(np.int64)
        is_possible = possible_forms(records)
        is_possible &= num_blocks <= most_blocks
        label = records["label"]
        is_possible &= label >= self.least_label
        is_possible &= label < len(self.classes)
        return np.asarray(is_possible)

    def _impossible_record(
        self, sample: int, shard: int, record: np.void
    ) -> DatasetError:
        values = ", ".join(f"{name} {record[name]}" for name in WITHOUT_HASHES)
        return DatasetError(
            f"{self.files / INDEX_FILE}: the record of sample {sample} is impossible: {values}; "
            f"expected shard {shard}, a byte range inside it that overlaps no other sample, at "
            "least 1 x 1 pixels but no more than these bytes can hold, 1, 3 or 4 channels of 8 or "
            f"16 bits, and a label below {len(self.classes)}. The index is damaged: {REPACK}"
        )

    def check_pixels(self, samples: Int64s, records: Records) -> None:
        check_pixel_limit(self, self._max_pixels, samples, records)

    def paths_of(self, samples: Int64s) -> Sequence[str | None]:
        return [None] * len(samples)

    def hashes(self, samples: Int64s, name: str) -> Uint64s:
        return np.asarray(self.records_of(samples)[name])

    def sample_at(self, shard: int, offset: int) -> int | None:
        offsets = self.records_of_shard(shard)["offset"]
        position = int(np.searchsorted(offsets, offset))
        is_last = position == len(offsets)
        if is_last or int(offsets[position]) != offset:
            return None
        return int(self.shard_starts[shard]) + position

    def column(self, name: str) -> Column:
        self.fetch_columns([name])
        folder = self.files / FIELDS_FOLDER
        return open_column(folder, len(self), self.fields[name])

    def in_coefficients(self, shards: NDArray[np.uint32]) -> bool:
        return self.storage == COEFFICIENTS_STORAGE

    def open_shard(self, number: int) -> ReadableShard:
        return OpenFile(self.shards[number].path)

    def where(self, sample: int) -> tuple[str, str, int]:
        record = self.records_of(np.array(sample))[()]
        name = self.shards[int(record["shard"])].name
        offset = int(record["offset"])
        member = sample_key(shard_number(name), offset - BEFORE_BYTES)
        return str(self.path / name), member, offset

    def source_path_of(self, sample: int) -> str:
        if not isinstance(self.path, Path):
            return ""  # an error should not wait for one more request
        numbers = np.array([sample])
        try:
            records = self.records_of(numbers)
            shard = self.shards[int(records["shard"][0])]
            # Another kind of file in its place, such as a pipe, could block for ever.
            if not shard.path.is_file():
                return ""
            (path,) = SourcePaths(self).of(numbers, records)
        except (FastpipeError, OSError):
            return ""  # the shard may be what is damaged
        return path

    def damage(self, size_of: Callable[[str], int]) -> str | None:
        """In words, the first shard that is missing or of another size; None: all are right.

        Args:
            size_of: gives the size of a file, by name, or raises OSError.
        """
        for shard in self.shards:
            try:
                size = size_of(shard.name)
            except OSError as problem:
                return f"{shard.name}: {problem.strerror}"
            if size != shard.size_bytes:
                return f"{shard.name} has {size:,} bytes, expected {shard.size_bytes:,}"
        return None

    def sample_error(
        self,
        sample: int,
        reason: str | Exception,
        more: str = "",
        *,
        replace: bool = False,
    ) -> SampleError:
        self.refuse_replaced()
        shard, member, offset = self.where(sample)
        remedy = ""
        if isinstance(self.path, Path):
            # A shard that may not be read needs no repair.
            remedy = closed_path(shard)
        return SampleError(
            shard=shard,
            key=self.source_path_of(sample),
            member=member,
            sample=sample,
            offset=offset,
            reason=f"{reason}{more}",
            replace=replace,
            remedy=remedy,
        )


def _are_inside(records: Records, sizes: Uint64s) -> Bools:
    """(n,) whether records have bytes, inside shards of these sizes. No sum here can wrap."""
    offset = records["offset"]
    size = records["size"]
    # Unsigned: where the offset is beyond the end, the difference means nothing, and the first
    # comparison is False.
    starts_inside = offset <= sizes
    ends_inside = size <= sizes - offset
    return np.asarray((size > 0) & starts_inside & ends_inside)
