"""Several datasets -> one index: their samples and shards one behind the other, and one numbering
of their labels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Int64s, Records, Uint64s
from fastpipe.dataset.format.array_file import common_shape
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.folder import Place, Url
from fastpipe.dataset.format.index import Index, ReadableShard
from fastpipe.dataset.format.layout import (
    COEFFICIENTS_STORAGE,
    NO_LABEL,
    index_dtype,
)
from fastpipe.dataset.format.parts import (
    JoinedColumn,
    gather_from_parts,
    part_and_number,
    parts_of,
    renumbered,
    split_by_part,
    starts_of,
)
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.dataset.format.shard_list import Shards
from fastpipe.errors import DatasetError, SampleError

UNKNOWN_TIME = -1  # the engine's word for a file of which no time is recorded


class JoinedIndex(Index):
    """Several datasets as one. One part: a dataset with other labels.

    Args:
        parts: the datasets.
        new_labels: for each part the new labels of its classes, and at the end that of NO_LABEL.
        classes: the names of the new labels.
    """

    def __init__(
        self,
        parts: Sequence[Index],
        new_labels: Sequence[Int64s],
        classes: Sequence[str],
    ) -> None:
        self.parts = tuple(parts)
        self._new_labels = list(new_labels)
        sample_counts = [len(part) for part in parts]
        shard_counts = [len(part.shards) for part in parts]
        self.starts = starts_of(sample_counts)
        self._first_shards = starts_of(shard_counts)

        self.folder = parts[0].folder
        paths = [part.path for part in parts]
        fingerprints = [part.fingerprint for part in parts]
        contents = [part.content for part in parts]
        self.path = _join_paths(paths)
        self.version = 0
        if len(parts) == 1:
            self.version = parts[0].version
        self.packed = all(part.packed for part in parts)
        self.fingerprint = _join_names(fingerprints)
        self.content = _join_names(contents)

        self.classes = list(classes)
        self.class_counts = self._count_classes()
        joined_fields = join_fields(parts)
        self.fields = joined_fields.fields
        self.unjoined_fields = joined_fields.reasons
        self._field_labels = joined_fields.new_labels

        shards_of_parts = [part.shards for part in parts]
        self.shards = Shards.joined(shards_of_parts)
        self.shard_sizes = self.shards.sizes
        self.shard_starts = self.shards.starts
        storages = {part.storage for part in parts}
        self.storage = " and ".join(sorted(storages))
        self.jpeg_bytes = sum(part.jpeg_bytes for part in parts)
        self.stored_bytes = sum(part.stored_bytes for part in parts)
        self.form_counts = Counter[PixelForm]()
        for part in parts:
            self.form_counts += part.form_counts
        self.counts = {}
        for name in ("rejected", "converted"):
            total = 0
            for part in parts:
                # A packed dataset has no "converted".
                total += int(part.counts.get(name, 0))
            self.counts[name] = total
        self.can_be_large = any(part.can_be_large for part in parts)
        self.is_wide = any(part.is_wide for part in parts)

        # One of each shard. In a folder that is not packed, each file is a shard.
        times = [part.mtimes_ns for part in parts]
        self.mtimes_ns = _concatenate(times, shard_counts, UNKNOWN_TIME)
        needs_conversion = [part.needs_conversion for part in parts]
        self.needs_conversion = _concatenate(needs_conversion, sample_counts, False)
        if any(part.convert is not None for part in parts):
            self.convert = _Conversion(self.parts, self.starts)

    def _count_classes(self) -> list[int]:
        # The last count is that of NO_LABEL, which is -1 and so the last index.
        num_counts = len(self.classes) + 1
        counts = np.zeros(num_counts, dtype=np.int64)
        for part, new_labels in zip(self.parts, self._new_labels, strict=True):
            labels_of_classes = new_labels[:-1]
            # Not counts[...] += ..., which counts once if two classes become one.
            np.add.at(counts, labels_of_classes, part.class_counts)
        counts_of_classes = counts[:-1]
        class_counts: list[int] = counts_of_classes.tolist()
        return class_counts

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def records(self) -> Records:
        all_samples = np.arange(len(self), dtype=np.int64)
        return self.records_of(all_samples)

    def records_of(self, samples: Int64s) -> Records:
        def read_part(part: int, numbers: Int64s) -> Records:
            records = self.parts[part].records_of(numbers)
            return self._renumber(part, records)

        records = gather_from_parts(self.starts, samples.ravel(), read_part)
        return records.reshape(samples.shape)

    def read(self, samples: Int64s) -> Records:
        def read_part(part: int, numbers: Int64s) -> Records:
            records = self.parts[part].read(numbers)
            return self._renumber(part, records)

        return gather_from_parts(self.starts, samples, read_part)

    def _renumber(self, part: int, records: Records) -> Records:
        """Records of a part with the labels and shards of the whole."""
        # A copy: an index that is in memory may return its own array.
        dtype = index_dtype(is_wide=self.is_wide)
        records = records.astype(dtype)
        new_labels = self._new_labels[part]
        first_shard = np.uint32(self._first_shards[part])
        records["label"] = renumbered(records["label"], new_labels)
        records["shard"] += first_shard
        return records

    def check_pixels(self, samples: Int64s, records: Records) -> None:
        """See Index; the message counts the pictures of one part."""
        for group in split_by_part(self.starts, samples):
            part = self.parts[group.part]
            records_of_part = records[group.positions]
            part.check_pixels(group.numbers, records_of_part)

    def check_same(self) -> None:
        for part in self.parts:
            part.check_same()

    def refuse_replaced(self) -> None:
        for part in self.parts:
            part.refuse_replaced()

    def list_hashed_files(
        self, fields: Iterable[str]
    ) -> Iterator[tuple[Path, str, str]]:
        for part in self.parts:
            yield from part.list_hashed_files(fields)

    def column(self, name: str) -> JoinedColumn:
        columns = [part.column(name) for part in self.parts]
        new_labels = self._field_labels.get(name)
        return JoinedColumn(self.starts, columns, new_labels)

    def in_coefficients(self, shards: NDArray[np.uint32]) -> Bools:
        # (parts,) and (n,)
        storages = np.array([part.storage for part in self.parts])
        is_in_coefficients: Bools = storages == COEFFICIENTS_STORAGE
        part_of_shard = parts_of(self._first_shards, shards)
        return is_in_coefficients[part_of_shard]

    def part_of(self, samples: Int64s) -> Int64s:
        return parts_of(self.starts, samples)

    @property
    def is_scattered(self) -> bool:
        return any(part.is_scattered for part in self.parts)

    def samples_at(self, places: Int64s) -> Int64s:
        def read_part(part: int, numbers: Int64s) -> Int64s:
            samples_of_part = self.parts[part].samples_at(numbers)
            samples = samples_of_part + self.starts[part]
            return np.asarray(samples)

        return gather_from_parts(self.starts, places, read_part)

    def paths_of(self, samples: Int64s) -> Sequence[str | None]:
        def read_part(part: int, numbers: Int64s) -> Sequence[str | None]:
            return self.parts[part].paths_of(numbers)

        return gather_from_parts(self.starts, samples, read_part)

    def hashes(self, samples: Int64s, name: str) -> Uint64s:
        def read_part(part: int, numbers: Int64s) -> Uint64s:
            return self.parts[part].hashes(numbers, name)

        return gather_from_parts(self.starts, samples, read_part)

    def sample_at(self, shard: int, offset: int) -> int | None:
        part, number = part_and_number(self._first_shards, shard)
        sample = self.parts[part].sample_at(number, offset)
        if sample is None:
            return None
        return sample + int(self.starts[part])

    def open_shard(self, number: int) -> ReadableShard:
        part, shard = part_and_number(self._first_shards, number)
        return self.parts[part].open_shard(shard)

    def where(self, sample: int) -> tuple[str, str, int]:
        part, number = part_and_number(self.starts, sample)
        return self.parts[part].where(number)

    def source_path_of(self, sample: int) -> str:
        part, number = part_and_number(self.starts, sample)
        return self.parts[part].source_path_of(number)

    def sample_error(
        self,
        sample: int,
        reason: str | Exception,
        more: str = "",
        *,
        replace: bool = False,
    ) -> SampleError:
        """See Index; it names the sample's number in its own dataset."""
        part_index, number = part_and_number(self.starts, sample)
        part = self.parts[part_index]
        return part.sample_error(number, reason, more, replace=replace)

    def reader(self, mixture: Index | None = None) -> object | None:
        for part in self.parts:
            if isinstance(part.path, Url):
                return part.reader(self)
        return None


@dataclass(frozen=True)
class _Conversion:
    """Index.convert of several datasets.

    It has no reference to the JoinedIndex, which would keep itself alive by it.
    """

    parts: Sequence[Index]
    starts: Int64s

    def __call__(self, sample: int) -> bytes:
        part_index, number = part_and_number(self.starts, sample)
        part = self.parts[part_index]
        if part.convert is None:
            raise DatasetError(
                f"sample {number} of {part.path} is not an image that can be decoded; pack it again"
            )
        return part.convert(number)


class JoinedFields(NamedTuple):
    """The fields of several datasets."""

    fields: dict[str, Field]  # that all of them have
    reasons: dict[str, str]  # in words, why the others cannot be joined
    # For fields whose class names differ: the new labels of each dataset, as JoinedColumn has them.
    new_labels: dict[str, list[Int64s]]


def join_fields(parts: Sequence[Index]) -> JoinedFields:
    """Which fields several datasets have in common."""
    joined = JoinedFields({}, {}, {})
    # The names of all datasets, each once, in the order in which they come first.
    names: dict[str, None] = {}
    for part in parts:
        names.update(dict.fromkeys(part.fields))
    for name in names:
        lacking = [part.path for part in parts if name not in part.fields]
        if lacking:
            first_lacking = lacking[0]
            joined.reasons[name] = f"{first_lacking} has no field {name!r}"
            continue
        fields = [part.fields[name] for part in parts]
        _join_field(joined, name, fields)
    return joined


def _join_field(joined: JoinedFields, name: str, fields: Sequence[Field]) -> None:
    """Adds to `joined` a field that all datasets have: joined, or why it cannot be."""
    first = fields[0]
    # A batch has one array for a field, so its values must have one form in all datasets.
    first_form = _form_of(first)
    if any(_form_of(field) != first_form for field in fields):
        joined.reasons[name] = (
            f"{name!r} is not of one kind and shape in all of the datasets"
        )
        return

    # The names of the classes, and how many there are.
    distinct_classes = {(field.names, field.classes) for field in fields}
    if len(distinct_classes) == 1:
        # Where the datasets differ about mirrored points, the user has to say which change.
        distinct_pairs = {field.flip_pairs for field in fields}
        flip_pairs = first.flip_pairs
        if len(distinct_pairs) > 1:
            flip_pairs = ()
        shape = common_shape(field.shape for field in fields)
        # The files are those of one dataset: each part reads its own.
        joined.fields[name] = replace(
            first, files={}, flip_pairs=flip_pairs, shape=shape
        )
        return

    class_names = [field.names for field in fields]
    has_classes = first.kind in ("classes", "boxes")
    if not has_classes or not all(class_names):
        joined.reasons[name] = (
            f"the classes of {name!r} have other names, or none, in some of the datasets"
        )
        return
    # Classes are joined by name, as the classes of images are.
    all_names, joined.new_labels[name] = union(class_names)
    class_count = 0
    if first.classes:  # only a field of kind "classes" has a count of them
        class_count = len(all_names)
    names = tuple(all_names)
    joined.fields[name] = replace(first, names=names, classes=class_count, files={})


def _form_of(field: Field) -> Field:
    """A field with what decides the form of its values alone."""
    num_axes = len(field.shape)
    shape: tuple[int | None, ...] = (None,) * num_axes
    if field.kind == "map":
        # Their height and width may differ, their channels may not.
        channels = field.shape[2:]
        shape = (None, None, *channels)
    return Field(
        field.name,
        field.kind,
        width=field.width,
        points=field.points,
        labelled=field.labelled,
        dtype=field.dtype,
        shape=shape,
    )


def union(names: Sequence[Sequence[str]]) -> tuple[list[str], list[Int64s]]:
    """Joins lists of class names.

    Returns:
        Each name once; and for each list the new labels of its names, and at the end NO_LABEL.
    """
    numbers: dict[str, int] = {}
    new_labels = []
    for part_names in names:
        labels = [numbers.setdefault(name, len(numbers)) for name in part_names]
        labels.append(NO_LABEL)
        new_labels.append(np.array(labels))
    return list(numbers), new_labels


def _join_paths(paths: Sequence[Place]) -> Place:
    if len(paths) == 1:
        return paths[0]
    text = " + ".join(str(path) for path in paths)
    if any(isinstance(path, Url) for path in paths):
        # A Path would turn the two slashes of a URL into one.
        return Url(text)
    return Path(text)


def _join_names(names: list[str]) -> str:
    """One fingerprint for several."""
    if len(names) == 1:
        return names[0]
    text = json.dumps(names)
    digest = xxhash.xxh3_128_hexdigest(text.encode())
    return f"mixed-{digest}"


def _concatenate(
    arrays: Sequence[NDArray[Any] | None], lengths: Sequence[int], missing: object
) -> NDArray[Any] | None:
    """Arrays one behind the other; `missing` stands for those that are None. None if all are."""
    if all(array is None for array in arrays):
        return None
    filled = []
    for array, length in zip(arrays, lengths, strict=True):
        if array is None:
            array = np.full(length, missing)
        filled.append(array)
    return np.concatenate(filled)
