"""The files of a field -> its values for some samples, checked.

Only the values that are asked for are read: the files may be larger than the memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.array_file import numpy_dtype
from fastpipe.dataset.format.fields import (
    ARRAY_KINDS,
    FIELD_IMAGE_DTYPE,
    JPEG,
    MAX_MAP_SIDE,
    MAX_PICTURES,
    MAX_VALUE_BYTES,
    PICTURE_KINDS,
    PNG,
    Field,
    array_record_dtype,
    sidecars,
)
from fastpipe.dataset.format.open_file import RESTORE, Rows, open_npy
from fastpipe.errors import DatasetError

_INT64 = np.dtype("<i8")
_MAX_HEADER_BYTES = 1 << 12  # of the file of an array
# The types of values of kinds that have no shape of their own.
_SCALAR_TYPES = {
    "int": "<i8",
    "classes": "<i4",
    "text": "u1",
    "json": "u1",
    "bytes": "u1",
}
_PARSERS: dict[str, Callable[[bytes], Any]] = {
    "text": bytes.decode,
    "json": json.loads,
    "bytes": bytes,
}


@dataclass(frozen=True)
class Ragged:
    """Values of n samples, any number for each: sample i has values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[Any]  # (M, ...)
    offsets: Int64s  # (n + 1,)
    labels: Int64s | None = None  # (M,) of boxes


def row_of_values(ragged: Ragged) -> Int64s:
    """(M,) which of the n samples each value belongs to."""
    counts = np.diff(ragged.offsets)
    return np.repeat(np.arange(len(counts)), counts)


class _VariableColumn:
    """A field of which a sample has any number of values: a file of values, a file of offsets."""

    def __init__(self, folder: Path, samples: int, field: Field) -> None:
        self._field = field
        values_name, offsets_name, *labels_names = sidecars(field)
        values_dtype = row_dtype(field)
        self._values, value_count = open_npy(folder / values_name, values_dtype, None)
        self._value_count = value_count
        self._offsets, _ = open_npy(folder / offsets_name, _INT64, samples + 1)
        self._labels: Rows | None = None
        if field.labelled:
            (labels_name,) = labels_names
            self._labels, _ = open_npy(folder / labels_name, _INT64, value_count)

        first_and_last = np.array([0, samples])
        first, last = self._offsets.take(first_and_last).tolist()
        fits = (first, last) == (0, value_count)
        # A row of no bytes is legal only where there are no rows: see row_dtype on keypoints.
        has_empty_rows = value_count > 0 and self._values.row_bytes == 0
        if not fits or has_empty_rows:
            raise DatasetError(
                f"{self._offsets.path}: expected offsets from 0 to {self._value_count}, the number "
                f"of values in {values_name}, got {first} to {last}. The files do not belong "
                f"together: {RESTORE}"
            )

    def _ranges(self, samples: Int64s) -> tuple[Int64s, Int64s]:
        """(n,) the first value of each sample, and (n,) the end of its values. Checked."""
        # One call for both ends of each range.
        both_ends = np.stack([samples, samples + 1])
        begins, ends = self._offsets.take(both_ends)
        is_in_file = (begins >= 0) & (ends <= self._value_count)
        is_good = is_in_file & (begins <= ends)
        value_counts = ends - begins
        value_bytes = value_counts * self._values.row_bytes
        is_good &= value_bytes <= MAX_VALUE_BYTES

        # No value belongs to two samples. So a batch never reads more than the file has, however
        # damaged the offsets are. In the order of the samples' numbers, each range must begin where
        # the one before ends, or later.
        order = np.argsort(samples, kind="stable")
        # A sample that is asked for twice comes twice in this order, with the same range.
        previous = order[:-1]
        following = order[1:]
        is_same_sample = samples[previous] == samples[following]
        is_behind = ends[previous] <= begins[following]
        is_good[following] &= is_same_sample | is_behind

        if not is_good.all():
            row = int(np.flatnonzero(~is_good)[0])
            raise DatasetError(
                f"{self._offsets.path}: sample {int(samples[row])} cannot have the values "
                f"{begins[row]} to {ends[row]}; expected a range of the {self._value_count:,} "
                f"values that overlaps no other sample's, of at most {MAX_VALUE_BYTES:,} bytes. "
                f"The file is damaged: {RESTORE}"
            )
        return begins, ends


class RaggedColumn(_VariableColumn):
    """A field of numbers of which a sample has any number: classes, boxes and keypoints."""

    def take(self, samples: Int64s) -> Ragged:
        """The values of n samples.

        Raises:
            DatasetError: a file cannot be read, or has offsets or values that are impossible.
        """
        begins, ends = self._ranges(samples)
        lengths = ends - begins
        # (n + 1,) where the values of each sample begin in `values`, and their end.
        ends_in_values = np.cumsum(lengths)
        offsets = np.concatenate([[0], ends_in_values])
        values = self._values.ranges(begins, ends)
        self._check(values, samples, offsets)
        labels = None
        if self._labels is not None:
            labels = self._labels.ranges(begins, ends)
        return Ragged(values, offsets, labels)

    def _check(
        self,
        values: NDArray[Any],
        samples: Int64s,
        offsets: Int64s,
    ) -> None:
        field = self._field
        if field.kind == "classes":
            expected = f"numbers of classes from 0 to {field.classes - 1}"
            is_good = (values >= 0) & (values < field.classes)
        else:
            expected = "finite numbers"
            inner_axes = tuple(range(1, values.ndim))
            is_good = np.isfinite(values).all(axis=inner_axes)
        if field.kind == "boxes":
            expected += ", x0 at most x1, y0 at most y1"
            x0, y0, x1, y1 = values.T
            is_good &= (x0 <= x1) & (y0 <= y1)
        if is_good.all():
            return
        row = int(np.flatnonzero(~is_good)[0])
        position = np.searchsorted(offsets, row, side="right") - 1
        sample = int(samples[position])
        raise DatasetError(
            f"{self._values.path}: a value of sample {sample} is impossible: expected {expected}, "
            f"got {values[row].tolist()}. The file is damaged: {RESTORE}"
        )


class PictureLists(_VariableColumn):
    """A field of which a sample has any number of pictures."""

    def take(self, samples: Int64s) -> Ragged:
        """The records of n samples' pictures, (M,) of FIELD_IMAGE_DTYPE.

        Raises:
            DatasetError: as RaggedColumn.take; or a record is of no picture.
        """
        begins, ends = self._ranges(samples)
        counts = ends - begins
        if counts.max(initial=0) > MAX_PICTURES:
            row = int(counts.argmax())
            sample = int(samples[row])
            raise DatasetError(
                f"{self._offsets.path}: sample {sample} cannot have {counts.max():,} pictures; "
                f"expected at most {MAX_PICTURES:,}. The file is damaged: {RESTORE}"
            )
        records = self._values.ranges(begins, ends)
        is_good = np.isin(records["format"], (PNG, JPEG))
        for name in ("width", "height", "size"):
            is_good &= records[name] > 0
        if not is_good.all():
            wrong_rows = np.flatnonzero(~is_good)
            record = records[int(wrong_rows[0])]
            raise DatasetError(
                f"{self._values.path}: the record of a picture is impossible: {record}. The file is "
                f"damaged: {RESTORE}"
            )
        ends_in_records = np.cumsum(counts)
        offsets = np.concatenate([[0], ends_in_records])
        return Ragged(records, offsets)


class BytesColumn(_VariableColumn):
    """A field whose values are texts, JSON or bytes."""

    def take(self, samples: Int64s) -> list[Any]:
        """The value of each of n samples: str, bytes, or the value that the JSON describes.

        Raises:
            DatasetError: as RaggedColumn.take; or a value is not of the field's kind.
        """
        begins, ends = self._ranges(samples)
        # (n,) each: where the value of a sample begins and ends in the data. A row is a byte.
        data, starts = self._values.gather(begins, ends)
        lengths = ends - begins
        stops = starts + lengths
        parse = _PARSERS[self._field.kind]
        values: list[Any] = []
        try:
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                values.append(parse(data[start:stop]))
        except (ValueError, RecursionError) as problem:
            sample = samples[len(values)]
            raise DatasetError(
                f"{self._values.path}: the value of sample {sample} is not valid "
                f"{self._field.kind} ({problem}). The file is damaged: {RESTORE}"
            ) from problem
        return values


class ArrayRecords:
    """Where the arrays of a field are in the shards, and their shapes."""

    def __init__(self, folder: Path, samples: int, field: Field) -> None:
        self._field = field
        (name,) = sidecars(field)
        dtype = row_dtype(field)
        self._rows, _ = open_npy(folder / name, dtype, samples)

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """(n,) of array_record_dtype: the records of n samples.

        Raises:
            DatasetError: the file cannot be read, or has a record that is impossible.
        """
        records = self._rows.take(samples)
        # As float64, because the product of the lengths may be beyond int64.
        shapes = records["shape"].astype(np.float64)
        item_bytes = numpy_dtype(self._field.dtype).itemsize
        value_bytes = item_bytes * shapes.prod(axis=1)
        # The size is that of the .npy file: a header, and then the values.
        header_bytes = records["size"] - value_bytes
        is_good = value_bytes <= MAX_VALUE_BYTES
        is_good &= header_bytes > 0
        is_good &= header_bytes <= _MAX_HEADER_BYTES
        for axis, length in enumerate(self._field.shape):
            if length is not None:
                is_good &= records["shape"][:, axis] == length
        if self._field.kind == "map":
            sides = records["shape"][:, :2]  # height and width
            is_side = (sides >= 1) & (sides <= MAX_MAP_SIDE)
            is_good &= is_side.all(axis=1)
        if is_good.all():
            return records
        row = int(np.flatnonzero(~is_good)[0])
        shape = records["shape"][row].tolist()
        size_bytes = int(records["size"][row])
        raise DatasetError(
            f"{self._rows.path}: the record of sample {int(samples[row])} is impossible: an array of "
            f"shape {shape} in {size_bytes} bytes; expected {self._field.dtype} of shape "
            f"{list(self._field.shape)}. The file is damaged: {RESTORE}"
        )


Column = Rows | RaggedColumn | BytesColumn | ArrayRecords | PictureLists


def open_column(folder: Path, samples: int, field: Field) -> Column:
    """Opens the files of a field of so many samples.

    Raises:
        DatasetError: a file is missing, damaged, or of another dataset.
    """
    if field.kind in _PARSERS:
        return BytesColumn(folder, samples, field)
    if field.kind in ("classes", "boxes", "keypoints"):
        return RaggedColumn(folder, samples, field)
    if field.kind in ARRAY_KINDS:
        return ArrayRecords(folder, samples, field)
    if field.kind == "images":
        return PictureLists(folder, samples, field)
    (file_name, *_) = sidecars(field)
    dtype = row_dtype(field)
    rows, _ = open_npy(folder / file_name, dtype, samples)
    return rows


def row_dtype(field: Field) -> np.dtype[Any]:
    """The type of one value of a field in its file of values."""
    if field.kind in (*PICTURE_KINDS, "images"):
        return FIELD_IMAGE_DTYPE
    if field.kind in ARRAY_KINDS:
        return array_record_dtype(len(field.shape))
    shapes = {
        "floats": (field.width,),
        "boxes": (4,),
        "keypoints": (field.points, 3),
    }
    if field.kind not in shapes:
        return np.dtype(_SCALAR_TYPES[field.kind])

    shape = shapes[field.kind]
    # If no sample has keypoints, nobody knows how many points an object has: 0 is legal then.
    least = 0 if field.kind == "keypoints" else 1
    most = MAX_VALUE_BYTES // 4  # numbers of 4 bytes
    if not least <= math.prod(shape) <= most:
        raise DatasetError(
            f"field {field.name!r}: expected values of {least} to {most:,} "
            f"numbers, got the shape {shape} in dataset.json. It is damaged: {RESTORE}"
        )
    return np.dtype(("<f4", shape))
