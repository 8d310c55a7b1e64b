"""One dataset or two -> the pictures that are there several times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.samples.by_id import spans
from fastpipe.samples.dataset import Dataset
from fastpipe.samples.opening import as_dataset


@dataclass(frozen=True)
class Duplicates:
    """Pictures that are there several times.

    Attributes:
        groups: of each such picture the numbers of its samples, ascending; in the order of the first ones.
        others: of each group the numbers of the same picture's samples in the other dataset; empty if there is none.
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
        """The same as `groups`, by key: the paths of the samples' sources, as `fastpipe.remove` takes them."""
        return _of_each(self.groups, self.data, "key")

    def other_keys(self) -> list[list[str]]:
        """The same as `others`, by key."""
        return _of_each(self.others, self.other or self.data, "key")

    @property
    def contradictions(self) -> int:
        """Groups whose samples do not all have the same class."""
        mine, theirs = _classes(self.groups, self.data), _classes(self.others, self.other or self.data)
        return sum(len(ours | others) > 1 for ours, others in zip(mine, theirs, strict=True))


def duplicates(
    data: str | os.PathLike[str] | Dataset, other: str | os.PathLike[str] | Dataset | None = None
) -> Duplicates:
    """Finds pictures that a dataset has several times; or those that another one has, too, such as a validation set.

    No picture is read: the index has hashes. Two samples of one packed dataset are the same picture if their stored
    bytes have the same XXH3-64. In two datasets, or where nothing is packed, their source files have to have the same
    size, and the same bytes at the start, in the middle and at the end (docs/format.md, "identity"). A picture that was
    saved again, or is larger or smaller, is another one. Takes about 32 bytes of memory a sample.

    Args:
        data: of `fastpipe.open`, or what that takes. Numbers of samples are those in it.
        other: a second dataset: then a picture counts that both have.

    Raises:
        DatasetError: there is no dataset, or it is damaged.
    """
    first = as_dataset(data)
    whole = other is None and first.index.packed and len(first.stored) == 1
    mine = _hashes(first, "xxh3_64" if whole else "identity")
    if other is None:
        return Duplicates(found := _groups(mine), [[] for _ in found], first)
    second = as_dataset(other)
    theirs = _hashes(second, "identity")
    shared = np.intersect1d(mine, theirs)
    pairs = sorted(zip(_places(mine, shared), _places(theirs, shared), strict=True))
    return Duplicates([ours for ours, _ in pairs], [each for _, each in pairs], first, second)


def _hashes(data: Dataset, name: str) -> NDArray[np.uint64]:
    """(n,) of all samples."""
    found = np.empty(len(data), np.uint64)
    for ids in spans(len(data)):
        found[ids] = data.index.hashes(data.content.numbers(ids), name)
    return found


def _groups(hashes: NDArray[np.uint64]) -> list[list[int]]:
    """The places of each hash that is there several times."""
    values, counts = np.unique(hashes, return_counts=True)
    return sorted(_places(hashes, values[counts > 1]))


def _places(hashes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> list[list[int]]:
    """Of each of some hashes, which ascend, the places where it stands."""
    places = np.flatnonzero(np.isin(hashes, wanted))
    found: list[list[int]] = [[] for _ in wanted]
    for place, at in zip(places.tolist(), np.searchsorted(wanted, hashes[places]).tolist(), strict=True):
        found[at].append(place)
    return found


def _classes(groups: Sequence[Sequence[int]], data: Dataset) -> list[set[str]]:
    return [{data.classes[label] if label >= 0 else "" for label in each} for each in _of_each(groups, data, "label")]


def _of_each(groups: Sequence[Sequence[int]], data: Dataset, column: str) -> list[list[Any]]:
    """Values of the samples of each group."""
    left = iter(data[column][np.array([sample for group in groups for sample in group], np.int64)])
    return [[next(left) for _ in group] for group in groups]
