"""An index -> what the checks of shards need of it, for all shards, or for some of them in another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.verify.shard_facts import ShardFacts


@dataclass(frozen=True)
class IndexPart:
    """Index records of samples that follow one another.

    Attributes:
        records: of these samples.
        first: number of the first.
        rows_at: byte of index.npy where the row of sample 0 begins.
        least_label: the smallest label that is possible.
        classes: how many there are; a label is below it.
    """

    records: NDArray[np.void]
    first: int
    rows_at: int
    least_label: int
    classes: int

    @classmethod
    def whole(cls, index: Index) -> IndexPart:
        """All of an index, whose records stay in the file."""
        return cls(index.records, 0, index.records.offset, index.least_label, len(index.classes))

    def of(self, shard: ShardFacts) -> NDArray[np.void]:
        """(samples,) a copy of the records of a shard's samples."""
        start = shard.first_sample - self.first
        return np.array(self.records[start : start + shard.samples])

    def cut(self, shards: Sequence[ShardFacts]) -> IndexPart:
        """The part for shards that follow one another, in memory."""
        first, stop = shards[0].first_sample, shards[-1].first_sample + shards[-1].samples
        return replace(self, records=np.array(self.records[first - self.first : stop - self.first]), first=first)
