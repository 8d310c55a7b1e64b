"""(weights of datasets, ranks) -> which positions of each dataset's order each rank takes, batch by batch.

Note [mixed batches]
In a batch of g rows, row r stands for the point (r + h) / g, and belongs to the dataset whose stretch of the weights
covers it; h changes from batch to batch as the multiples of the golden ratio do, modulo 1. So a batch has of each
dataset as many rows as its weight says, rounded up or down, and over the batches the mean is exact. How many rows all
batches before one have had is a sum of rounded numbers, for which there is a fast formula. So any batch is found at
once, and each dataset is read in its own order, without a gap, epoch after epoch, at its own pace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.mixed_index import MixedIndex, starts_of
from fastpipe.plan.content import Content, EpochContent
from fastpipe.plan.draws import Stream, bits, key
from fastpipe.plan.partition import Ranks, Share

_ONE = 2**40  # fractions are whole numbers of this
_GOLDEN = 679_536_467_969  # 2**40 divided by the golden ratio, odd


def floor_sum(count: int, divisor: int, factor: int, offset: int) -> int:
    """The sum of floor((factor * i + offset) / divisor) for i in [0, count).

    Source: the Euclidean-like algorithm for such sums in Graham, Knuth and Patashnik, "Concrete Mathematics", 3.5.
    """
    total = 0
    while True:
        whole, factor = divmod(factor, divisor)
        total += whole * (count * (count - 1) // 2)
        whole, offset = divmod(offset, divisor)
        total += whole * count
        last = factor * count + offset
        if last < divisor:
            return total
        count, offset = divmod(last, divisor)
        factor, divisor = divisor, factor


class MixedRows:
    """How many rows of each dataset stretches of batches have; see Note [mixed batches].

    Args:
        weights: of the datasets, above 0.
        rows: of a stretch.
    """

    def __init__(self, weights: Sequence[float], rows: int) -> None:
        ends = np.cumsum(weights) / math.fsum(weights)
        self._ends = [round(float(end) * rows * _ONE) for end in ends]
        self._ends[-1] = rows * _ONE

    def before(self, batches: int) -> list[int]:
        """Rows of each dataset in the first `batches` stretches."""
        jitters = floor_sum(batches, _ONE, _GOLDEN, 0)
        # Of a stretch: ceil((end - h) / _ONE) rows up to a dataset's end, where h = _GOLDEN * i modulo _ONE.
        upto = [jitters - floor_sum(batches, _ONE, _GOLDEN, -end) for end in self._ends]
        return [end - start for start, end in zip([0, *upto], upto, strict=False)]


class MixedPartition:
    """Deals the rows of mixed batches out to ranks, one in turn. Like a Partition: a sequence is a dataset, or with
    canonical nodes, one node's part of a dataset.

    Args:
        weights: of the datasets.
        batches: of an epoch.
        epoch: its number.
        batch_size: of each rank.
        ranks: who takes part.
        nodes: canonical nodes; divides batch_size * world_size, and is a multiple of ranks.nodes.
        seed: of the order of rows in a rank's batch.
    """

    def __init__(
        self,
        weights: Sequence[float],
        batches: int,
        epoch: int,
        batch_size: int,
        *,
        ranks: Ranks,
        nodes: int,
        seed: int,
    ) -> None:
        self.batches = batches
        self._datasets = len(weights)
        self._first = epoch * batches  # of the batches of all epochs
        self._batch_size = batch_size
        self._ranks = ranks
        self._ranks_per_node = ranks.world_size // ranks.nodes
        self._rows = MixedRows(weights, batch_size * ranks.world_size // nodes)
        self._per_node = nodes // ranks.nodes
        self._key = key(seed, epoch, Stream.DATASET)
        self.begins = self._rows.before(self._first)  # of the epoch, in each dataset's endless order
        self._ends = self._rows.before(self._first + batches)

    @property
    def sequences(self) -> list[tuple[int, int, int]]:
        """(number, 0, positions of the epoch) of each sequence that this rank's node reads."""
        node = self._ranks.rank // self._ranks_per_node
        sizes = [end - begin for begin, end in zip(self.begins, self._ends, strict=True)]
        mine = range(node * self._per_node, (node + 1) * self._per_node)
        return [(each * self._datasets + number, 0, size) for each in mine for number, size in enumerate(sizes)]

    def spans(self, number: int) -> list[tuple[int, int, int]]:
        """(sequence, start, stop): what global batch `number` takes of this rank's node, positions of the epoch."""
        starts = self._rows.before(self._first + number)
        stops = self._rows.before(self._first + number + 1)
        found = []
        for sequence, _, _ in self.sequences:
            dataset = sequence % self._datasets
            begin = self.begins[dataset]
            found.append((sequence, starts[dataset] - begin, stops[dataset] - begin))
        return found

    def share(self, number: int) -> Share:
        """This rank's rows of global batch `number`; the datasets' rows are mixed."""
        local = self._ranks.rank % self._ranks_per_node
        rows = np.arange(self._batch_size, dtype=np.int64) * self._ranks_per_node + local
        order = np.argsort(bits(self._key, rows + number * _ONE), kind="stable")
        return Share(self.spans(number), rows[order], np.ones(self._batch_size, dtype=np.bool_))

    def mine(self, sequence: int, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which positions of a sequence are this rank's."""
        found = np.zeros(len(positions), dtype=np.bool_)
        if not len(positions):
            return found
        local = self._ranks.rank % self._ranks_per_node
        batch = self._batch_of(sequence, int(positions.min()))
        last = int(positions.max())
        while batch < self.batches:
            row = 0  # of the node's rows
            for each, start, stop in self.spans(batch):
                if each == sequence:
                    inside = (positions >= start) & (positions < stop)
                    found[inside] = (positions[inside] - start + row) % self._ranks_per_node == local
                    after = stop
                row += stop - start
            if after > last:
                break
            batch += 1
        return found

    def _batch_of(self, sequence: int, position: int) -> int:
        """The batch that has a position of a sequence."""
        dataset = sequence % self._datasets
        low, high = 0, self.batches
        while low + 1 < high:
            middle = (low + high) // 2
            if self._rows.before(self._first + middle)[dataset] - self.begins[dataset] <= position:
                low = middle
            else:
                high = middle
        return low


def rows_of_mixture(weights: Sequence[float], counts: Sequence[int], repeats: int, size: int | str) -> int:
    """How many rows an epoch has; its last ones fill no batch.

    Args:
        weights: of the datasets.
        counts: samples of each.
        repeats: of each sample.
        size: rows of an epoch; "smallest": until the first dataset comes to its end, "largest": until the last does.
    """
    total = math.fsum(weights)
    lasts = [count * repeats * total / weight for weight, count in zip(weights, counts, strict=True)]
    return size if isinstance(size, int) else math.floor((min if size == "smallest" else max)(lasts))


@dataclass(frozen=True, eq=False)
class Mixture:
    """How a MixedIndex's datasets are mixed.

    Attributes:
        weights: of each dataset, above 0.
        contents: what is chosen of each.
        counts: how many samples these are.
        rows: of an epoch.
    """

    weights: tuple[float, ...]
    contents: tuple[Content, ...]
    counts: tuple[int, ...]
    rows: int


class MixedContent:
    """The places of one epoch of a mixture: those of each dataset, one dataset behind the other. Like EpochContent.

    Args:
        index: of the datasets.
        mixture: of them.
        shuffle, seed, epoch: as of EpochContent.
    """

    def __init__(self, index: MixedIndex, mixture: Mixture, *, shuffle: bool, seed: int, epoch: int) -> None:
        self._index = index
        self._starts = starts_of(mixture.counts)
        self._parts = [
            EpochContent(part, content, count, shuffle=shuffle, seed=seed, epoch=epoch)
            for part, content, count in zip(index.parts, mixture.contents, mixture.counts, strict=True)
        ]

    @property
    def plain(self) -> bool:
        """Whether places are samples."""
        return all(part.plain for part in self._parts)

    @property
    def places(self) -> int:
        """Of all datasets."""
        return int(self._starts[-1])

    def sequence(self, number: int, nodes: int) -> tuple[int, int, int]:
        """(first place, places, chunk) of a sequence; see MixedPartition."""
        node, dataset = divmod(number, len(self._parts))
        places = int(self._starts[dataset + 1] - self._starts[dataset])
        first, end = node * places // nodes, (node + 1) * places // nodes
        return int(self._starts[dataset]) + first, end - first, self._parts[dataset].chunk

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sample at each place."""
        found = np.empty(len(places), dtype=np.int64)
        datasets = np.searchsorted(self._starts, places, side="right") - 1
        for dataset in np.unique(datasets).tolist():
            mine = datasets == dataset
            local = self._parts[dataset].samples_at(places[mine] - self._starts[dataset])
            found[mine] = local + self._index.starts[dataset]
        return found

    def names(
        self, samples: NDArray[np.int64], places: NDArray[np.int64], times: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Numbers that name the random draws of rows."""
        return samples + times * len(self._index)
