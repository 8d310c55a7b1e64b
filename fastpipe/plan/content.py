"""Which samples of an index a dataset has, in shares, and with which labels: the dataset as a plan sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.draws import Int64s
from fastpipe.plan.order import samples_per_chunk

MOST_ROWS = 2**40  # of an epoch


class ById(Protocol):
    """A column: a value for each sample of a dataset."""

    def take(self, ids: Int64s) -> Any:
        """The values of the n samples at these places of the dataset: (n, ...), a list of n, or a Ragged."""


@dataclass(frozen=True, eq=False)
class Content:
    """The samples of a dataset. A sample's id is its place among them, its number that in the index."""

    index: Index  # of the packed dataset, or of several one behind the other
    samples: Int64s | None  # (n,) their numbers, each once; None: all of the index, in its order
    starts: Int64s  # (shares + 1,) the first id of each share, and the number of samples; no mixture: one share
    weights: tuple[float, ...] = (1.0,)  # of the shares, above 0
    labels: ById | None = None  # in place of those of the index
    identity: Mapping[str, Any] = field(default_factory=dict)  # by which a state knows the order that it is for

    @classmethod
    def of(cls, index: Index) -> Content:
        return cls(index, None, np.array([0, len(index)], dtype=np.int64))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def mixed(self) -> bool:
        """Whether batches have rows of several shares."""
        return len(self.weights) > 1

    def counts(self) -> list[int]:
        return [int(each) for each in np.diff(self.starts)]

    def numbers(self, ids: Int64s) -> Int64s:
        return ids if self.samples is None else self.samples[ids]

    def read(self, ids: Int64s) -> NDArray[np.void]:
        """(n,) checked index records, with the dataset's labels."""
        records = self.index.read(self.numbers(ids))
        if self.labels is not None:
            records["label"] = self.labels.take(ids)
        return records

    @property
    def plain(self) -> bool:
        """Whether neighbours in the reading order are neighbours in the shards."""
        return self.samples is None and self.index.packed

    def ids_at(self, places: Int64s) -> Int64s:
        """(n,) the ids at places of the order that shuffled epochs are cut from: as samples lie in the shards."""
        if self.samples is None:
            return self.index.samples_at(places)
        return places if self._reading_order is None else self._reading_order[places]

    @cached_property
    def _reading_order(self) -> Int64s | None:
        """(n,) the ids of each share as their samples are read best; None: as they stand."""
        assert self.samples is not None
        ranks = self.samples
        if not self.index.packed:
            ranks = np.empty(len(self.index), dtype=np.int64)
            ranks[self.index.samples_at(np.arange(len(self.index), dtype=np.int64))] = np.arange(len(self.index))
            ranks = ranks[self.samples]
        if bool((ranks[1:] > ranks[:-1]).all()):
            return None
        shares = zip(self.starts, self.starts[1:], strict=False)
        return np.concatenate([first + np.argsort(ranks[first:end], kind="stable") for first, end in shares])

    @property
    def chunk(self) -> int:
        """Places of that order that are read together."""
        return 1 if self.index.scattered else samples_per_chunk(len(self.index), self.index.jpeg_bytes)
