"""The sidecar files of a field -> its values for some samples, checked; nothing else of them is ever in memory."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.fields import FIELD_IMAGE_DTYPE, FIELDS_FOLDER, MOST_VALUE_BYTES, Field, sidecars
from fastpipe.format.index import Index
from fastpipe.format.open_file import OpenFile, Rows, read_at

_OFFSET_DTYPE = np.dtype("<i8")
_HEADER_BYTES = 4096
_PARSERS: dict[str, Callable[[bytes], Any]] = {"text": bytes.decode, "json": json.loads, "bytes": bytes}
_REPAIR = "restore it (fastpipe verify DATA --repair SRC), or pack the source again, with --overwrite"


@dataclass(frozen=True)
class Ragged:
    """Values of n samples that have any number of them each.

    Attributes:
        values: (M, ...): those of the first sample, then those of the second.
        offsets: (n + 1,) int64: sample i has values[offsets[i]:offsets[i + 1]].
        labels: (M,) int64, of boxes that have labels.
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None


class RowColumn:
    """A field with one value of fixed size for each sample: int, floats, and the records of masks and images."""

    def __init__(self, index: Index, field: Field) -> None:
        file, first_byte, _ = _open(index, field, sidecars(field)[0], _row_dtype(field), len(index))
        self._rows = Rows(file, first_byte, _row_dtype(field))

    def take(self, samples: NDArray[np.int64]) -> NDArray[Any]:
        """(n, ...): the values of n samples.

        Raises:
            DatasetError: the file cannot be read, or has become too short.
        """
        return self._rows.of(samples).copy()


class RaggedColumn:
    """A field whose samples have any number of values: classes, boxes and keypoints."""

    def __init__(self, index: Index, field: Field) -> None:
        self._dtype = _value_dtype(field)
        self._where = _Places(index, field, self._dtype.itemsize)
        self._labels: tuple[OpenFile, int] | None = None
        if field.labelled:
            file, first_byte, _ = _open(index, field, sidecars(field)[2], _OFFSET_DTYPE, self._where.count)
            self._labels = file, first_byte
        self._field = field

    def take(self, samples: NDArray[np.int64]) -> Ragged:
        """The values of n samples.

        Raises:
            DatasetError: a file cannot be read, or says what cannot be.
        """
        begins, ends = self._where.of(samples)
        counts = ends - begins
        offsets = np.concatenate([[0], np.cumsum(counts)])
        values = _flat(self._where.values, self._where.first_byte, self._dtype, begins, counts)
        self._check(values, samples, offsets)
        if self._labels is None:
            return Ragged(values, offsets)
        return Ragged(values, offsets, _flat(*self._labels, _OFFSET_DTYPE, begins, counts))

    def _check(self, values: NDArray[Any], samples: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        field = self._field
        if field.kind == "classes":
            expected = f"numbers of classes from 0 to {field.classes - 1}"
            good = (values >= 0) & (values < field.classes)
        else:
            expected = "finite numbers"
            good = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
            if field.kind == "boxes":
                expected += ", x0 at most x1, y0 at most y1"
                good &= (values[:, 0] <= values[:, 2]) & (values[:, 1] <= values[:, 3])
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            sample = int(samples[np.searchsorted(offsets, at, side="right") - 1])
            raise DatasetError(
                f"{self._where.values.path}: a value of sample {sample} is impossible: expected {expected}, got "
                f"{values[at].tolist()}. The file is damaged: {_REPAIR}"
            )


class BytesColumn:
    """A field of text, json or bytes."""

    def __init__(self, index: Index, field: Field) -> None:
        self._where = _Places(index, field, 1)
        self._parse = _PARSERS[field.kind]
        self._kind = field.kind

    def take(self, samples: NDArray[np.int64]) -> list[Any]:
        """The value of each of n samples: str, bytes, or what json.loads makes.

        Raises:
            DatasetError: a file cannot be read, or says what cannot be.
        """
        begins, ends = self._where.of(samples)
        first_byte = self._where.first_byte
        data, places = self._where.values.gather(begins + first_byte, ends + first_byte)
        stops = places + ends - begins
        values = []
        try:
            for place, stop in zip(places.tolist(), stops.tolist(), strict=True):
                values.append(self._parse(data[place:stop]))
        except (ValueError, RecursionError) as problem:
            raise DatasetError(
                f"{self._where.values.path}: the value of sample {samples[len(values)]} is no {self._kind} "
                f"({problem}). The file is damaged: {_REPAIR}"
            ) from problem
        return values


Column = RowColumn | RaggedColumn | BytesColumn


def open_column(index: Index, field: Field) -> Column:
    """Opens the files of a field.

    Raises:
        DatasetError: one is missing, damaged, or of another dataset.
    """
    if field.kind in ("text", "json", "bytes"):
        return BytesColumn(index, field)
    if field.kind in ("classes", "boxes", "keypoints"):
        return RaggedColumn(index, field)
    return RowColumn(index, field)


class _Places:
    """Where the values of samples are in the file of values.

    Attributes:
        values: that file.
        first_byte: where its first value begins.
        count: how many values it has.
    """

    def __init__(self, index: Index, field: Field, item_bytes: int) -> None:
        names = sidecars(field)
        self.values, self.first_byte, self.count = _open(index, field, names[0], _value_dtype(field), None)
        offsets, first_byte, _ = _open(index, field, names[1], _OFFSET_DTYPE, len(index) + 1)
        self._path = offsets.path
        self._rows = Rows(offsets, first_byte, _OFFSET_DTYPE)
        self._item_bytes = item_bytes
        first, last = self._rows.of(np.array([0, len(index)])).tolist()
        if (first, last) != (0, self.count) or (self.count and not item_bytes):
            raise DatasetError(
                f"{self._path}: expected offsets from 0 to {self.count}, the number of values in "
                f"{self.values.path.name}, got {first} to {last}. The files do not belong together: {_REPAIR}"
            )

    def of(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) the first value of each sample, and the one after its last."""
        begins, ends = self._rows.of(np.stack([samples, samples + 1]))
        order = np.argsort(samples, kind="stable")
        before, behind = order[:-1], order[1:]
        good = (begins >= 0) & (begins <= ends) & (ends <= self.count)
        good &= (ends - begins) * self._item_bytes <= MOST_VALUE_BYTES
        # No value belongs to two samples: all that a batch reads is in the file.
        good[behind] &= (samples[before] == samples[behind]) | (ends[before] <= begins[behind])
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise DatasetError(
                f"{self._path}: sample {int(samples[at])} cannot have the values {begins[at]} to {ends[at]}; expected "
                f"a range of the {self.count:,} values that overlaps no other sample's, of at most "
                f"{MOST_VALUE_BYTES:,} bytes. The file is damaged: {_REPAIR}"
            )
        return begins, ends


def _flat(
    file: OpenFile, first_byte: int, dtype: np.dtype[Any], begins: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[Any]:
    """The rows of a file from begins[i] on, counts[i] of them, one range after the other."""
    some = np.flatnonzero(counts)
    if not len(some):
        return np.empty((0, *dtype.shape), dtype=dtype.base)
    starts = first_byte + begins[some] * dtype.itemsize
    data, places = file.gather(starts, starts + counts[some] * dtype.itemsize)
    lengths = counts[some]
    shifts = places // dtype.itemsize - (np.cumsum(lengths) - lengths)
    rows: NDArray[Any] = np.frombuffer(data, dtype=dtype)[np.arange(lengths.sum()) + np.repeat(shifts, lengths)]
    return rows


def _row_dtype(field: Field) -> np.dtype[Any]:
    if field.kind in ("mask", "image"):
        return FIELD_IMAGE_DTYPE
    return _OFFSET_DTYPE if field.kind == "int" else _floats(field, (field.width,))


def _value_dtype(field: Field) -> np.dtype[Any]:
    if field.kind == "boxes":
        return _floats(field, (4,))
    if field.kind == "keypoints":
        return _floats(field, (field.points, 3))
    return np.dtype("<i4" if field.kind == "classes" else "u1")


def _floats(field: Field, shape: tuple[int, ...]) -> np.dtype[Any]:
    least = 0 if field.kind == "keypoints" else 1  # where no sample has points, nobody knows how many they are
    if not least <= math.prod(shape) <= MOST_VALUE_BYTES // 4:
        raise DatasetError(
            f"field {field.name!r}: expected values of {least} to {MOST_VALUE_BYTES // 4:,} numbers, got the shape "
            f"{shape} in dataset.json. It is damaged: {_REPAIR}"
        )
    return np.dtype(("<f4", shape))


def _open(index: Index, field: Field, name: str, row: np.dtype[Any], rows: int | None) -> tuple[OpenFile, int, int]:
    """Opens a sidecar and checks its header and its size.

    Args:
        index: of the dataset.
        field: of the file.
        name: of the file.
        row: dtype of a row.
        rows: how many it has to have; None: any number.

    Returns:
        The open file, the byte at which its first row begins, and how many rows it has.

    Raises:
        DatasetError: it is missing, damaged, or of another dataset.
    """
    file = OpenFile(index.files / FIELDS_FOLDER / name)
    try:
        head = io.BytesIO(read_at(file.descriptor, _HEADER_BYTES, 0))
        size_bytes = file.size_bytes()
        version = np.lib.format.read_magic(head)
        if version != (1, 0):
            raise ValueError(f"version {version[0]}.{version[1]}")
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(head)
    except OSError as problem:
        raise DatasetError(f"{file.path} cannot be read: {problem.strerror}; check the disk") from problem
    except Exception as problem:  # numpy reads the header with Python's own parser, which raises what it likes
        words = " ".join(str(problem).split())[:200]
        raise DatasetError(f"{file.path} is no .npy file of version 1.0 ({words}); {_REPAIR}") from problem
    found = int(shape[0]) if shape else 0
    fits = len(shape) > 0 and (rows is None or found == rows) and (shape[1:], dtype) == (row.shape, row.base)
    if in_columns or not fits:
        wanted = (f"{rows:,}" if rows is not None else "any number of") + " rows"
        raise DatasetError(
            f"{file.path} holds {shape} of {dtype}; expected {wanted} of {row.shape} {row.base} for the field "
            f"{field.name!r}. The file and dataset.json do not belong to the same dataset: {_REPAIR}"
        )
    if size_bytes != head.tell() + found * row.itemsize:
        raise DatasetError(
            f"{file.path} has {size_bytes:,} bytes; expected {head.tell() + found * row.itemsize:,} for {found:,} "
            f"rows. The file is damaged: {_REPAIR}"
        )
    return file, head.tell(), found
