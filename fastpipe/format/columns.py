"""The sidecar files of a field -> its values for some samples, checked; nothing else of them is ever in memory."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.fields import FIELD_IMAGE_DTYPE, FIELDS_FOLDER, MOST_VALUE_BYTES, Field, sidecars
from fastpipe.format.open_file import OpenFile, Rows, read_at

_OFFSET_DTYPE = np.dtype("<i8")
_HEADER_BYTES = 4096
_PARSERS: dict[str, Callable[[bytes], Any]] = {"text": bytes.decode, "json": json.loads, "bytes": bytes}
_REPAIR = "restore it (fastpipe verify DATA --repair SRC), or pack the source again, with --overwrite"


class HasColumns(Protocol):
    """What a column needs of an index, which imports this module: where the files are, and the number of samples."""

    @property
    def files(self) -> Path: ...

    def __len__(self) -> int: ...


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

    def __init__(self, index: HasColumns, field: Field) -> None:
        self._rows, _ = _open(index, field, sidecars(field)[0], _row_dtype(field), len(index))

    def take(self, samples: NDArray[np.int64]) -> NDArray[Any]:
        """(n, ...): the values of n samples. DatasetError: the file cannot be read, or has become too short."""
        return self._rows.of(samples).copy()


class RaggedColumn:
    """A field whose samples have any number of values: classes, boxes and keypoints."""

    def __init__(self, index: HasColumns, field: Field) -> None:
        self._where = _Places(index, field)
        self._labels: Rows | None = None
        if field.labelled:
            self._labels, _ = _open(index, field, sidecars(field)[2], _OFFSET_DTYPE, self._where.count)
        self._field = field

    def take(self, samples: NDArray[np.int64]) -> Ragged:
        """The values of n samples. DatasetError: a file cannot be read, or says what cannot be."""
        begins, ends = self._where.of(samples)
        offsets = np.concatenate([[0], np.cumsum(ends - begins)])
        values = self._where.values.ranges(begins, ends)
        self._check(values, samples, offsets)
        return Ragged(values, offsets, None if self._labels is None else self._labels.ranges(begins, ends))

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

    def __init__(self, index: HasColumns, field: Field) -> None:
        self._where = _Places(index, field)
        self._parse = _PARSERS[field.kind]
        self._kind = field.kind

    def take(self, samples: NDArray[np.int64]) -> list[Any]:
        """The value of each of n samples: str, bytes, or what json.loads makes. DatasetError: as RaggedColumn."""
        begins, ends = self._where.of(samples)
        data, places = self._where.values.gather(begins, ends)
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


class JoinedColumn:
    """A field of several datasets, one behind the other.

    Args:
        local: (n,) samples -> (dataset, positions among them, numbers there) of each dataset that some are of.
        columns: of each.
        labels: of each: new numbers for its classes; None: they stay.
    """

    def __init__(
        self,
        local: Callable[[NDArray[np.int64]], Iterator[tuple[int, NDArray[np.intp], NDArray[np.int64]]]],
        columns: Sequence[Column | JoinedColumn],
        labels: Sequence[NDArray[np.int64] | None],
    ) -> None:
        self._local, self._columns, self._labels = local, columns, labels

    def take(self, samples: NDArray[np.int64]) -> Any:
        """The values of n samples, as the datasets' own columns give them."""
        taken = []
        for part, positions, numbers in self._local(samples):
            values: Any = self._columns[part].take(numbers)
            labels = self._labels[part]
            if labels is not None and values.labels is None:  # numbers of classes
                values = replace(values, values=labels[values.values].astype(values.values.dtype))
            elif labels is not None:
                values = replace(values, labels=renumbered(values.labels, labels))
            taken.append((positions, values))
        return joined(len(samples), taken)


def renumbered(labels: NDArray[np.int64], new: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels by their new numbers, of which the last is that of NO_LABEL; no label of the dataset stays as it is."""
    known = (labels >= 0) & (labels < len(new) - 1)
    return np.where(known, new[np.where(known, labels, -1)], labels)


def joined(count: int, taken: Sequence[tuple[NDArray[np.intp], Any]]) -> Any:
    """Values of some of `count` samples each, and which samples these are -> those of all, in order."""
    first = taken[0][1]
    if isinstance(first, Ragged):
        rows = np.concatenate([np.repeat(where, np.diff(each.offsets)) for where, each in taken])
        order = np.argsort(rows, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
        labels = None if first.labels is None else np.concatenate([each.labels for _, each in taken])[order]
        return Ragged(np.concatenate([each.values for _, each in taken])[order], offsets, labels)
    found = np.empty((count, *first.shape[1:]), first.dtype) if isinstance(first, np.ndarray) else [None] * count
    for where, values in taken:
        if isinstance(found, np.ndarray):
            found[where] = values
        else:
            for place, value in zip(where.tolist(), values, strict=True):
                found[place] = value
    return found


def open_column(index: HasColumns, field: Field) -> Column:
    """Opens the files of a field. DatasetError: one is missing, damaged, or of another dataset."""
    if field.kind in ("text", "json", "bytes"):
        return BytesColumn(index, field)
    if field.kind in ("classes", "boxes", "keypoints"):
        return RaggedColumn(index, field)
    return RowColumn(index, field)


class _Places:
    """Where the values of samples are in the file of values, which has `count`."""

    def __init__(self, index: HasColumns, field: Field) -> None:
        names = sidecars(field)
        self.values, self.count = _open(index, field, names[0], _value_dtype(field), None)
        self._offsets, _ = _open(index, field, names[1], _OFFSET_DTYPE, len(index) + 1)
        first, last = self._offsets.of(np.array([0, len(index)])).tolist()
        if (first, last) != (0, self.count) or (self.count and not self.values.row_bytes):
            raise DatasetError(
                f"{self._offsets.path}: expected offsets from 0 to {self.count}, the number of values in "
                f"{self.values.path.name}, got {first} to {last}. The files do not belong together: {_REPAIR}"
            )

    def of(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) the first value of each sample, and the one after its last."""
        begins, ends = self._offsets.of(np.stack([samples, samples + 1]))
        order = np.argsort(samples, kind="stable")
        before, behind = order[:-1], order[1:]
        good = (begins >= 0) & (begins <= ends) & (ends <= self.count)
        good &= (ends - begins) * self.values.row_bytes <= MOST_VALUE_BYTES
        # No value belongs to two samples: all that a batch reads is in the file.
        good[behind] &= (samples[before] == samples[behind]) | (ends[before] <= begins[behind])
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise DatasetError(
                f"{self._offsets.path}: sample {int(samples[at])} cannot have the values {begins[at]} to {ends[at]}; "
                f"expected a range of the {self.count:,} values that overlaps no other sample's, of at most "
                f"{MOST_VALUE_BYTES:,} bytes. The file is damaged: {_REPAIR}"
            )
        return begins, ends


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


def _open(index: HasColumns, field: Field, name: str, row: np.dtype[Any], rows: int | None) -> tuple[Rows, int]:
    """Opens a sidecar of `rows` rows, None: of any number, and checks its header and its size: its rows, and how many
    they are. DatasetError: it is missing, damaged, or of another dataset.
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
    return Rows(file, head.tell(), row), found
