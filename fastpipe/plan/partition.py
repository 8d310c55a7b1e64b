"""(rows, batch size, ranks, shares) -> which positions of an epoch's orders each rank takes, batch by batch.

Note [partition]
A global batch is one batch of every rank: batch_size * world_size samples. An epoch's order is cut into sequences, and
global batch b takes the b-th stretch of each, so it is the same set of samples however many ranks share it.
partition="sample" has one sequence, and all ranks share each stretch. partition="node" has one sequence for every
canonical node, each over its own part of the dataset, and a node's ranks share the stretches of its sequences only: it
never reads what other nodes read. The nodes' number may change to any divisor of that of the canonical ones.
Ranks take consecutive rows of a stretch; or, where samples come several times in a row, one row in turn, so that the
crops of a sample go to different ranks.
Every rank has the same number of batches, and batches of the same size. In training the tail that fills no global batch
is dropped; else the last batch is filled up with samples of its own that do not count.
Of a mixture each share has orders of its own: a sequence for each canonical node and share, and of each a batch takes
as many positions as Note [mixed batches] says. Its batches are always full, ranks take rows in turn, and each rank's
rows are mixed. A dataset that is no mixture is the case of one share.

Note [mixed batches]
In a batch of g rows, row r stands for the point (r + h) / g, and belongs to the dataset whose stretch of the weights
covers it; h changes from batch to batch as the multiples of the golden ratio do, modulo 1. So a batch has of each
dataset as many rows as its weight says, rounded up or down, and over the batches the mean is exact. How many rows all
batches before one have had is a sum of rounded numbers, for which there is a fast formula. So any batch is found at
once, and each dataset is read in its own order, without a gap, epoch after epoch, at its own pace.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from fastpipe.plan.draws import Bools, Int64s, Stream, bits, key
from fastpipe.plan.order import recent

_MOST_EDGES = 256  # batches whose edges are kept
_ONE = 2**40  # fractions are whole numbers of this
_GOLDEN = 679_536_467_969  # 2**40 divided by the golden ratio, odd


@dataclass(frozen=True)
class Ranks:
    """Where this process stands among those that train together."""

    rank: int = 0  # in [0, world_size)
    world_size: int = 1
    # Groups of ranks, as large as each other, that share what they read: rank // (world_size / nodes) is its group's
    # number. 1: all ranks share all.
    nodes: int = 1


ALONE = Ranks()


@dataclass(frozen=True)
class Share:
    """A rank's rows of a global batch."""

    spans: list[tuple[int, int, int]]  # (sequence, start, stop) that the rank's node takes, positions in each sequence
    rows: Int64s  # (n,) the rank's rows, as positions in all the spans' samples put together
    valid: Bools  # (n,) rows that count. Others repeat a sample, so that all ranks' batches are of one size.


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
    """How many rows of each share stretches of `rows` rows have; see Note [mixed batches]."""

    def __init__(self, weights: Sequence[float], rows: int) -> None:
        ends = np.cumsum(weights) / math.fsum(weights)
        self._ends = [round(float(end) * rows * _ONE) for end in ends]
        self._ends[-1] = rows * _ONE

    def before(self, batches: int) -> list[int]:
        """Rows of each dataset in the first `batches` stretches."""
        if len(self._ends) == 1:
            return [batches * (self._ends[0] // _ONE)]
        jitters = floor_sum(batches, _ONE, _GOLDEN, 0)
        # Of a stretch: ceil((end - h) / _ONE) rows up to a dataset's end, where h = _GOLDEN * i modulo _ONE.
        upto = [jitters - floor_sum(batches, _ONE, _GOLDEN, -end) for end in self._ends]
        return [end - start for start, end in zip([0, *upto], upto, strict=False)]


def rows_of_mixture(weights: Sequence[float], counts: Sequence[int], repeats: int, size: str) -> int:
    """Rows of an epoch: until the "smallest" share comes to its end, or the "largest" does."""
    total = math.fsum(weights)
    lasts = [count * repeats * total / weight for weight, count in zip(weights, counts, strict=True)]
    return math.floor((min if size == "smallest" else max)(lasts))


class Partition:
    """See Note [partition]. `ranks.nodes` divides world_size and `sequences`, and these batch_size * world_size."""

    def __init__(
        self,
        rows: int,
        batch_size: int,
        *,
        drop_last: bool,
        ranks: Ranks,
        sequences: int = 1,
        in_turn: bool = False,
        weights: Sequence[float] = (1.0,),
        epoch: int = 0,
        seed: int = 0,
    ) -> None:
        self.global_batch_size = batch_size * ranks.world_size
        self._shares, self._nodes, self._batch_size = len(weights), ranks.nodes, batch_size
        self._mixed = self._shares > 1
        self._full, tail = divmod(rows, self.global_batch_size)
        self.batches = self._full + (tail > 0 and not drop_last)
        self._in_turn = in_turn or self._mixed
        self._ranks_per_node = ranks.world_size // ranks.nodes
        self._node, self._local = divmod(ranks.rank, self._ranks_per_node)
        self._per_node = sequences * self._shares // ranks.nodes
        self._rows_of = MixedRows(weights, self.global_batch_size // sequences)
        self._key = key(seed, epoch, Stream.DATASET)
        if self._mixed:
            self._full = self.batches = max(1, self._full)
        self._first = epoch * self.batches if self._mixed else 0  # of the batches of all epochs
        self._begins = self._rows_of.before(self._first)  # of that batch, of each share
        # Of each sequence: its positions in the epoch, and where in its endless order the epoch begins.
        if self._mixed:
            self._lengths, self.begins = self._edges_of(self.batches) * sequences, self._begins * sequences
        else:  # as long as each other, give or take one
            starts = [sequence * rows // sequences for sequence in range(sequences + 1)]
            self._lengths = [end - start for start, end in pairwise(starts)]
            self.begins = [epoch * length for length in self._lengths]

    @property
    def sequences(self) -> list[tuple[int, int]]:
        """(number, positions of the epoch) of each sequence that this rank's node reads."""
        return [(number, self._lengths[number]) for number in self._of_node(self._node)]

    def edge(self, sequence: int, batch: int) -> int:
        """The position of a sequence at which a global batch begins."""
        return min(self._edges_of(batch)[sequence % self._shares], self._lengths[sequence])

    def spans(self, number: int, node: int | None = None) -> list[tuple[int, int, int]]:
        """(sequence, start, stop): the stretches of global batch `number` that a node takes; None: this rank's."""
        mine = self._of_node(self._node if node is None else node)
        return [(each, self.edge(each, number), self.edge(each, number + 1)) for each in mine]

    def share(self, number: int) -> Share:
        """This rank's rows of global batch `number`, 0 <= number < batches."""
        spans, size = self.spans(number), self._batch_size
        if number >= self._full:
            most = max(_samples(self.spans(number, node)) for node in range(self._nodes))
            size = -(-most // self._ranks_per_node)
        rows = np.arange(size, dtype=np.int64)
        rows = rows * self._ranks_per_node + self._local if self._in_turn else rows + self._local * size
        if self._mixed:
            rows = rows[np.argsort(bits(self._key, rows + (number << 40)), kind="stable")]
        have = _samples(spans)
        if have == 0:  # other nodes have a sample left, this one has none: one it had before stands in
            sequence, length = self.sequences[0]
            return Share([(sequence, length - 1, length)], np.zeros_like(rows), np.zeros(size, dtype=np.bool_))
        return Share(spans, rows % have, rows < have)

    def batches_of(self, sequence: int, positions: Int64s) -> Int64s:
        """Which global batch has each position of a sequence."""
        if not self._mixed:
            return positions // self._edges_of(1)[0]
        edge, ends = partial(self.edge, sequence), range(1, self.batches)
        low, high = (bisect_right(ends, int(each), key=edge) for each in (positions.min(), positions.max()))
        edges = [edge(batch) for batch in range(low, high + 2)]
        return low + np.searchsorted(edges, positions, side="right") - 1

    def mine(self, sequence: int, positions: Int64s) -> Bools:
        """Which positions of a sequence are this rank's; of a last batch that is not full, everyone's or nobody's."""
        if not len(positions):
            return np.zeros(0, dtype=np.bool_)
        batches = self.batches_of(sequence, positions)
        if self._mixed:
            different, which = np.unique(batches, return_inverse=True)
            begins = np.array([self._begin(sequence, batch) for batch in different.tolist()], dtype=np.int64)
            rows: Int64s = positions - begins[which]  # of the node's
        else:  # without a step for each batch, of which there may be many
            stretch = self._edges_of(1)[0]
            rows = (sequence - self._node * self._per_node) * stretch + positions % stretch
        owners = rows % self._ranks_per_node if self._in_turn else rows // self._batch_size
        owned: Bools = owners == self._local
        tail = batches >= self._full
        return owned | tail if self.batches > self._full else owned & ~tail

    def _begin(self, sequence: int, batch: int) -> int:
        """Of the node's rows of a batch, the one at which a sequence would have its position 0."""
        return self.edge(sequence, batch) - _samples([span for span in self.spans(batch) if span[0] < sequence])

    def _of_node(self, node: int) -> range:
        return range(node * self._per_node, (node + 1) * self._per_node)

    @recent(_MOST_EDGES)
    def _edges_of(self, batch: int) -> list[int]:
        """The position at which a batch begins, of each share."""
        ends = self._rows_of.before(self._first + batch)
        return [end - begin for begin, end in zip(self._begins, ends, strict=True)]


def _samples(spans: list[tuple[int, int, int]]) -> int:
    return sum(stop - start for _, start, stop in spans)
