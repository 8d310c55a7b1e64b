"""One dataset or two -> the images that they have several times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from fastpipe.arguments import refusing_unknown
from fastpipe.arrays import Uint64s
from fastpipe.dataset.column_values import spans
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.opening import as_dataset


@dataclass(frozen=True)
class Duplicates:
    """Images that are there several times.

    Attributes:
        groups: of each such image the numbers of its samples, ascending; in the order of the
            first ones.
        others: of each group the numbers of the same image's samples in the other dataset; empty
            if there is none.
        data, other: the datasets.
    """

    groups: list[list[int]]
    others: list[list[int]]
    data: Dataset
    other: Dataset | None = None

    @property
    def samples(self) -> int:
        """How many samples of the dataset are in the groups."""
        return sum(map(len, self.groups))

    def group_keys(self) -> list[list[str]]:
        """The same as `groups`, by key: source paths, as `fastpipe.remove` takes them."""
        return _values_of_groups(self.groups, self.data, "key")

    def other_keys(self) -> list[list[str]]:
        """The same as `others`, by key."""
        return _values_of_groups(self.others, self.other or self.data, "key")

    @property
    def contradictions(self) -> int:
        """Groups whose samples do not all have the same class."""
        classes = _classes_of_groups(self.groups, self.data)
        other_classes = _classes_of_groups(self.others, self.other or self.data)
        count = 0
        for names, other_names in zip(classes, other_classes, strict=True):
            if len(names | other_names) > 1:
                count += 1
        return count


@refusing_unknown("fastpipe.duplicates")
def duplicates(
    data: str | os.PathLike[str] | Dataset,
    other: str | os.PathLike[str] | Dataset | None = None,
) -> Duplicates:
    """Finds images that a dataset has several times, or that another dataset has, too.

    The other dataset may be a validation set. No image is read: the index has hashes. Two samples
    of one packed dataset are the same image if their stored bytes have the same XXH3-64. In two
    datasets, or where nothing is packed, their source files have to have the same size, and the
    same bytes at the start, in the middle and at the end. An image
    that was saved again, or is larger or smaller, is another one. Takes about 32 bytes of memory a
    sample.

    Args:
        data: a dataset, as returned by `fastpipe.open`, or what that takes. Numbers of samples are
            those in it.
        other: a second dataset: then an image counts that both have.

    Raises:
        DatasetError: there is no dataset, or it is damaged.

    Example:
        >>> found = fastpipe.duplicates("data/train", "data/val")
        >>> len(found.groups)  # the same images, in this example
        24
    """
    first = as_dataset(data)
    if other is None:
        # The hashes of stored bytes are exact. They differ between storages, and files that are not
        # packed have none.
        has_hashes = first.index.packed and len(first.stored) == 1
        column = "xxh3_64" if has_hashes else "identity"
        hashes = _hashes(first, column)
        groups = _repeated(hashes)
        no_others: list[list[int]] = [[] for _ in groups]
        return Duplicates(groups, no_others, first)

    second = as_dataset(other)
    hashes = _hashes(first, "identity")
    other_hashes = _hashes(second, "identity")
    shared = np.intersect1d(hashes, other_hashes)
    groups = _samples_by_hash(hashes, shared)
    other_groups = _samples_by_hash(other_hashes, shared)
    # Hashes are in no order that means anything to people.
    order = sorted(range(len(groups)), key=groups.__getitem__)
    groups = [groups[position] for position in order]
    other_groups = [other_groups[position] for position in order]
    return Duplicates(groups, other_groups, first, second)


def _hashes(data: Dataset, name: str) -> Uint64s:
    """(n,) a column of hashes of the index, of all samples."""
    hashes = np.empty(len(data), np.uint64)
    for ids in spans(len(data)):
        numbers = data.content.numbers(ids)
        hashes[ids] = data.index.hashes(numbers, name)
    return hashes


def _repeated(hashes: Uint64s) -> list[list[int]]:
    """The samples of each hash that several have."""
    values, counts = np.unique(hashes, return_counts=True)
    return sorted(_samples_by_hash(hashes, values[counts > 1]))


def _samples_by_hash(hashes: Uint64s, wanted: Uint64s) -> list[list[int]]:
    """For each of some hashes, which ascend, the samples that have it."""
    # numpy leaves only samples that are in a group: most datasets have few.
    samples = np.flatnonzero(np.isin(hashes, wanted))
    positions = np.searchsorted(wanted, hashes[samples])
    groups: list[list[int]] = [[] for _ in wanted]
    for sample, position in zip(samples.tolist(), positions.tolist(), strict=True):
        groups[position].append(sample)
    return groups


def _classes_of_groups(
    groups: Sequence[Sequence[int]], data: Dataset
) -> list[set[str]]:
    """The names of the classes in each group; "" is that of samples without a label."""
    names = []
    for labels in _values_of_groups(groups, data, "label"):
        # A set, since only whether there are several classes counts.
        classes = set()
        for label in labels:
            class_name = data.classes[label] if label >= 0 else ""
            classes.add(class_name)
        names.append(classes)
    return names


def _values_of_groups(
    groups: Sequence[Sequence[int]], data: Dataset, column: str
) -> list[list[Any]]:
    """The values of a column of the samples of each group."""
    # The column is read once for all groups, and cut afterwards.
    samples: list[int] = []
    for group in groups:
        samples.extend(group)
    sample_ids = np.array(samples, np.int64)
    values = iter(data[column][sample_ids])
    return [list(islice(values, len(group))) for group in groups]
