"""Several datasets one behind the other -> which of them a sample belongs to; their values as one.

The datasets are called parts. `starts` (parts + 1,) has the first sample of each part, and behind
them the number of all samples. The same is used for shards in place of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.columns import Ragged

V = TypeVar("V")


class PartSamples(NamedTuple):
    """Those of some samples that belong to one part."""

    part: int
    positions: NDArray[np.intp]  # (m,) where they stand among the samples
    numbers: Int64s  # (m,) their numbers in the part


def starts_of(counts: Sequence[int] | Int64s) -> Int64s:
    """(n + 1,) where each of n parts of these lengths begins, and the end of all."""
    ends = np.cumsum(counts)
    starts = np.concatenate([[0], ends])
    return starts.astype(np.int64, copy=False)


def parts_of(starts: Int64s, numbers: Any) -> NDArray[np.intp]:
    """The part of each shard or sample, in the shape of `numbers`."""
    parts: NDArray[np.intp] = np.searchsorted(starts, numbers, side="right") - 1
    return parts


def part_and_number(starts: Int64s, number: int) -> tuple[int, int]:
    """The part of a shard or sample, and its number there."""
    part = int(parts_of(starts, number))
    first_number = int(starts[part])
    return part, number - first_number


def split_by_part(starts: Int64s, samples: Int64s) -> Iterator[PartSamples]:
    """The samples of each part that has some of them. Without samples, the first part and none."""
    part_of_sample = parts_of(starts, samples)
    for part in np.unique(part_of_sample).tolist() or [0]:
        positions = np.flatnonzero(part_of_sample == part)
        numbers = samples[positions] - starts[part]
        yield PartSamples(part, positions, numbers)


def gather_from_parts(
    starts: Int64s,
    samples: Int64s,
    read: Callable[[int, Int64s], V],
) -> V:
    """Reads the values of samples part by part; returns them in the order of the samples.

    Args:
        starts: of the parts.
        samples: (n,) their numbers.
        read: gets a part and (m,) numbers in it. Returns a Ragged, an array (m, ...) or a list.
    """
    positions = []
    values: list[Any] = []
    for group in split_by_part(starts, samples):
        positions.append(group.positions)
        values.append(read(group.part, group.numbers))
    merged: V = _merge(positions, values, len(samples))
    return merged


def _merge(
    positions: Sequence[NDArray[np.intp]], values: Sequence[Any], count: int
) -> Any:
    """The values of `count` samples; `values` has those of each part, for these positions."""
    first_values = values[0]
    if isinstance(first_values, Ragged):
        return _merge_ragged(positions, values, count)
    if isinstance(first_values, np.ndarray):
        shape = (count, *first_values.shape[1:])
        merged = np.empty(shape, first_values.dtype)
        for rows, array in zip(positions, values, strict=True):
            merged[rows] = array
        return merged
    merged_items: list[Any] = [None] * count
    for rows, items in zip(positions, values, strict=True):
        for row, item in zip(rows.tolist(), items, strict=True):
            merged_items[row] = item
    return merged_items


def _merge_ragged(
    positions: Sequence[NDArray[np.intp]], parts: Sequence[Ragged], count: int
) -> Ragged:
    """The same for samples with several values each: all values, sorted by their samples."""
    # (M,) the sample of each value; the values of a sample follow one another in their part.
    rows_of_parts = []
    for samples, ragged in zip(positions, parts, strict=True):
        lengths = np.diff(ragged.offsets)
        rows_of_parts.append(np.repeat(samples, lengths))
    rows = np.concatenate(rows_of_parts)
    # A stable sort keeps the order of the values of one sample.
    order = np.argsort(rows, kind="stable")
    values_of_parts = [ragged.values for ragged in parts]
    values = np.concatenate(values_of_parts)
    values = values[order]
    labels: NDArray[Any] | None = None
    if parts[0].labels is not None:
        labels_of_parts: list[Any] = [ragged.labels for ragged in parts]
        labels = np.concatenate(labels_of_parts)[order]
    lengths_of_samples = np.bincount(rows, minlength=count)
    offsets = starts_of(lengths_of_samples)
    return Ragged(values, offsets, labels)


@dataclass(frozen=True)
class JoinedColumn:
    """A field of several datasets, one behind the other."""

    starts: Int64s  # of the samples of each
    columns: Sequence[Any]
    # For each dataset the new labels of its classes, as `renumbered` takes them; None: as they are.
    labels: Sequence[Int64s] | None = None

    def take(self, samples: Int64s) -> Any:
        """The values of samples, in the form in which the datasets' own columns give them."""
        return gather_from_parts(self.starts, samples, self._read_part)

    def _read_part(self, part: int, numbers: Int64s) -> Any:
        values = self.columns[part].take(numbers)
        if self.labels is None:
            return values
        new_labels = self.labels[part]
        if values.labels is not None:
            return replace(values, labels=renumbered(values.labels, new_labels))
        # A field of classes: its values are the labels.
        labels = new_labels[values.values]
        return replace(values, values=labels.astype(values.values.dtype))


def renumbered(labels: Int64s, new: Int64s) -> Int64s:
    """Labels by their new numbers: `new` has that of each class, and at its end that of NO_LABEL.

    Labels that the dataset does not have stay as they are: checks of the records report them.
    """
    class_count = len(new) - 1
    is_known = (labels >= 0) & (labels < class_count)
    # An unknown label would be no index of `new`: -1, which is one, stands in for it.
    new_labels = new[np.where(is_known, labels, -1)]
    return np.where(is_known, new_labels, labels)
