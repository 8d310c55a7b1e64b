"""The samples of a dataset as a plan sees them: their numbers in an index, shares and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from fastpipe.arrays import Int64s, Records
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.pixel_form import NO_FORM, has_images
from fastpipe.plan.order import samples_per_chunk

MAX_ROWS = 2**40  # of an epoch


class ColumnReader(Protocol):
    """A column: a value for each sample of a dataset."""

    def take(self, ids: Int64s) -> Any:
        """The values of the n samples with these ids: (n, ...), a list of n, or a Ragged."""


@dataclass(frozen=True, eq=False)
class Content:
    """The samples of a dataset.

    A sample's id is its position in the dataset, its number is its row in the index.
    """

    index: Index  # of the packed dataset, or of several, one behind the other
    # (n,) the number of each id, all different; None: id and number are the same.
    samples: Int64s | None
    # (shares + 1,) the first id of each share, and the number of samples; one share unless mixed.
    starts: Int64s
    weights: tuple[float, ...] = (1.0,)  # of the shares, above 0
    labels: ColumnReader | None = None  # in place of the labels of the index
    # A loader's state compares it with its own.
    identity: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, index: Index) -> Content:
        """All samples of an index."""
        starts = np.array([0, len(index)], dtype=np.int64)
        return cls(index, None, starts)

    @classmethod
    def with_images(cls, index: Index) -> Content:
        """The samples of an index that have an image."""
        if NO_FORM not in index.form_counts:
            return cls.of(index)
        samples = np.flatnonzero(has_images(index.records)).astype(np.int64)
        starts = np.array([0, len(samples)], dtype=np.int64)
        return cls(index, samples, starts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def mixed(self) -> bool:
        """Whether batches have rows of several shares."""
        return len(self.weights) > 1

    def counts(self) -> list[int]:
        """The number of samples of each share."""
        return [int(count) for count in np.diff(self.starts)]

    def numbers(self, ids: Int64s) -> Int64s:
        """(n,) ids -> (n,) numbers in the index."""
        return ids if self.samples is None else self.samples[ids]

    def records_of(self, ids: Int64s) -> Records:
        """(n,) index records as they stand, not checked: for the sizes of images."""
        return self.index.records_of(self.numbers(ids))

    def sample_name(self, ids: Int64s, position: int) -> str:
        """The name of the sample that has the id at a position of `ids`."""
        (number,) = self.numbers(ids[position : position + 1])
        return self.index.name_of(int(number))

    def read(self, ids: Int64s) -> Records:
        """(n,) checked index records, with the dataset's labels."""
        records = self.index.read(self.numbers(ids))
        if self.labels is not None:
            records["label"] = self.labels.take(ids)
        return records

    @property
    def is_in_shard_order(self) -> bool:
        """Whether neighbours in the reading order are neighbours in the shards."""
        return self.samples is None and self.index.packed

    def ids_at(self, places: Int64s) -> Int64s:
        """(n,) places of the reading order -> (n,) ids.

        Shuffled epochs cut their chunks out of the reading order. It follows the samples' positions
        in the shards, so a chunk can be read front to back.
        """
        if self.samples is None:
            return self.index.samples_at(places)
        if self._reading_order is None:
            return places
        return self._reading_order[places]

    @cached_property
    def samples_hash(self) -> int | None:
        """A hash of `samples`, for this process alone; None: all samples."""
        if self.samples is None:
            return None
        return hash(self.samples.tobytes())

    @cached_property
    def _reading_order(self) -> Int64s | None:
        """(n,) the ids in reading order, share by share; None: they are in this order already."""
        assert self.samples is not None
        # The place of each id in the reading order of the whole index.
        ranks = self.samples
        if not self.index.packed:
            # Inverts the permutation `samples_at`, without a sort.
            places = np.arange(len(self.index), dtype=np.int64)
            numbers = self.index.samples_at(places)
            rank_of_number = np.empty(len(self.index), dtype=np.int64)
            rank_of_number[numbers] = places
            ranks = rank_of_number[self.samples]
        is_ascending = ranks[1:] > ranks[:-1]
        if is_ascending.all():
            return None
        shares = []
        for start, stop in pairwise(self.starts):
            order_in_share = np.argsort(ranks[start:stop], kind="stable")
            shares.append(start + order_in_share)
        return np.concatenate(shares)

    @property
    def chunk(self) -> int:
        """The number of neighbours in the reading order that are read together."""
        if self.index.is_scattered:
            return 1
        return samples_per_chunk(len(self.index), self.index.jpeg_bytes)
