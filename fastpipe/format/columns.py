"""The sidecar files of a field -> its values for some samples, checked; nothing else of them is ever in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.fields import FIELD_IMAGE_DTYPE, MOST_VALUE_BYTES, Field, sidecars
from fastpipe.format.open_file import RESTORE, Rows, open_npy

_INTEGERS = np.dtype("<i8")
_PARSERS: dict[str, Callable[[bytes], Any]] = {"text": bytes.decode, "json": json.loads, "bytes": bytes}


@dataclass(frozen=True)
class Ragged:
    """Values of n samples that have any number of them each: sample i has values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[Any]  # (M, ...)
    offsets: NDArray[np.int64]  # (n + 1,)
    labels: NDArray[np.int64] | None = None  # (M,) of boxes


class _Values:
    """Where the values of samples are in a field's file of values, of which samples have any number."""

    def __init__(self, folder: Path, samples: int, field: Field) -> None:
        self._field, (values, offsets, *labels) = field, sidecars(field)
        self._values, self._count = open_npy(folder / values, row_dtype(field), None)
        self._offsets, _ = open_npy(folder / offsets, _INTEGERS, samples + 1)
        self._labels = [open_npy(folder / name, _INTEGERS, self._count)[0] for name in labels]  # one, or none
        first, last = self._offsets.take(np.array([0, samples])).tolist()
        if (first, last) != (0, self._count) or (self._count and not self._values.row_bytes):
            raise DatasetError(
                f"{self._offsets.path}: expected offsets from 0 to {self._count}, the number of values in {values}, "
                f"got {first} to {last}. The files do not belong together: {RESTORE}"
            )

    def _places(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) the first value of each sample, and the one after its last."""
        begins, ends = self._offsets.take(np.stack([samples, samples + 1]))
        order = np.argsort(samples, kind="stable")
        before, behind = order[:-1], order[1:]
        good = (begins >= 0) & (begins <= ends) & (ends <= self._count)
        good &= (ends - begins) * self._values.row_bytes <= MOST_VALUE_BYTES
        # No value belongs to two samples: all that a batch reads is in the file.
        good[behind] &= (samples[before] == samples[behind]) | (ends[before] <= begins[behind])
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise DatasetError(
                f"{self._offsets.path}: sample {int(samples[at])} cannot have the values {begins[at]} to {ends[at]}; "
                f"expected a range of the {self._count:,} values that overlaps no other sample's, of at most "
                f"{MOST_VALUE_BYTES:,} bytes. The file is damaged: {RESTORE}"
            )
        return begins, ends


class RaggedColumn(_Values):
    """A field whose samples have any number of values: classes, boxes and keypoints."""

    def take(self, samples: NDArray[np.int64]) -> Ragged:
        """The values of n samples. DatasetError: a file cannot be read, or says what cannot be."""
        begins, ends = self._places(samples)
        offsets = np.concatenate([[0], np.cumsum(ends - begins)])
        values = self._values.ranges(begins, ends)
        self._check(values, samples, offsets)
        return Ragged(values, offsets, *(labels.ranges(begins, ends) for labels in self._labels))

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
                f"{self._values.path}: a value of sample {sample} is impossible: expected {expected}, got "
                f"{values[at].tolist()}. The file is damaged: {RESTORE}"
            )


class BytesColumn(_Values):
    def take(self, samples: NDArray[np.int64]) -> list[Any]:
        """The value of each of n samples: str, bytes, or what json.loads makes. DatasetError: as RaggedColumn."""
        begins, ends = self._places(samples)
        data, places = self._values.gather(begins, ends)
        stops, parse = places + ends - begins, _PARSERS[self._field.kind]
        values = []
        try:
            for place, stop in zip(places.tolist(), stops.tolist(), strict=True):
                values.append(parse(data[place:stop]))
        except (ValueError, RecursionError) as problem:
            raise DatasetError(
                f"{self._values.path}: the value of sample {samples[len(values)]} is no {self._field.kind} "
                f"({problem}). The file is damaged: {RESTORE}"
            ) from problem
        return values


Column = Rows | RaggedColumn | BytesColumn


def open_column(folder: Path, samples: int, field: Field) -> Column:
    """Opens the files of a field of so many samples. DatasetError: one is missing, damaged, or of another dataset."""
    if field.kind in _PARSERS:
        return BytesColumn(folder, samples, field)
    if field.kind in ("classes", "boxes", "keypoints"):
        return RaggedColumn(folder, samples, field)
    return open_npy(folder / sidecars(field)[0], row_dtype(field), samples)[0]


def row_dtype(field: Field) -> np.dtype[Any]:
    if field.kind in ("mask", "image"):
        return FIELD_IMAGE_DTYPE
    shapes = {"floats": (field.width,), "boxes": (4,), "keypoints": (field.points, 3)}
    if field.kind not in shapes:
        return np.dtype({"int": "<i8", "classes": "<i4", "text": "u1", "json": "u1", "bytes": "u1"}[field.kind])
    shape = shapes[field.kind]
    least = 0 if field.kind == "keypoints" else 1  # where no sample has points, nobody knows how many they are
    if not least <= math.prod(shape) <= MOST_VALUE_BYTES // 4:
        raise DatasetError(
            f"field {field.name!r}: expected values of {least} to {MOST_VALUE_BYTES // 4:,} numbers, got the shape "
            f"{shape} in dataset.json. It is damaged: {RESTORE}"
        )
    return np.dtype(("<f4", shape))


def starts_of(counts: Sequence[int]) -> NDArray[np.int64]:
    """(n + 1,) where each of n things of these lengths begins, and the end of all."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def located(
    starts: NDArray[np.int64], samples: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.int64]]]:
    """Of each part that some are of, or the first: its number, (m,) positions in `samples`, (m,) numbers in it."""
    parts = np.searchsorted(starts, samples, side="right") - 1
    for part in np.unique(parts).tolist() or [0]:
        positions = np.flatnonzero(parts == part)
        yield part, positions, samples[positions] - starts[part]


def of_parts(
    starts: NDArray[np.int64], samples: NDArray[np.int64], take: Callable[[int, NDArray[np.int64]], Any]
) -> Any:
    """What `take` gives of each part, by its place, for numbers in it: in the order of the samples."""
    taken = [(where, take(part, numbers)) for part, where, numbers in located(starts, samples)]
    first = taken[0][1]
    if isinstance(first, Ragged):
        rows = np.concatenate([np.repeat(where, np.diff(each.offsets)) for where, each in taken])
        order = np.argsort(rows, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(samples)))])
        labels = None if first.labels is None else np.concatenate([each.labels for _, each in taken])[order]
        return Ragged(np.concatenate([each.values for _, each in taken])[order], offsets, labels)
    if isinstance(first, np.ndarray):
        found = np.empty((len(samples), *first.shape[1:]), first.dtype)
        for where, values in taken:
            found[where] = values
        return found
    by_place = {place: value for where, values in taken for place, value in zip(where.tolist(), values, strict=True)}
    return [by_place[place] for place in range(len(samples))]


@dataclass(frozen=True)
class JoinedColumn:
    """A field of several datasets, one behind the other."""

    starts: NDArray[np.int64]  # of the samples of each
    columns: Sequence[Any]
    labels: Sequence[NDArray[np.int64]] | None = None  # new ones of the classes of each, as `renumbered` takes them

    def take(self, samples: NDArray[np.int64]) -> Any:
        """As the datasets' own columns give them."""
        return of_parts(self.starts, samples, self._of)

    def _of(self, part: int, numbers: NDArray[np.int64]) -> Any:
        values = self.columns[part].take(numbers)
        if self.labels is None:
            return values
        new = self.labels[part]
        if values.labels is None:  # numbers of classes
            return replace(values, values=new[values.values].astype(values.values.dtype))
        return replace(values, labels=renumbered(values.labels, new))


def renumbered(labels: NDArray[np.int64], new: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels by their new numbers, of which the last is that of NO_LABEL; no label of the dataset stays as it is."""
    known = (labels >= 0) & (labels < len(new) - 1)
    return np.where(known, new[np.where(known, labels, -1)], labels)
