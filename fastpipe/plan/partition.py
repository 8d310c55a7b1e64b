"""(rows, batch size, ranks, shares) -> the positions of an epoch that each rank takes, by batch.

Note [partition]
A global batch is one batch of every rank: batch_size * world_size samples. An epoch's order is cut
into sequences, and global batch b takes stretch b of each, so it is the same set of samples for any
number of ranks. partition="sample" has one sequence, and all ranks share each stretch.
partition="node" has one sequence for every canonical node, each over its own part of the dataset,
and a node's ranks share the stretches of its sequences only: it never reads the samples of other
nodes. The number of nodes may change to any divisor of the number of canonical nodes. Ranks take
consecutive rows of a stretch. If samples come several times in a row, ranks take rows in turn, so
that the crops of a sample go to different ranks.
Every rank has the same number of batches, and batches of the same size. In training the tail that
fills no global batch is dropped. In evaluation the last batch is filled up with repeated samples
that do not count.
A mixture has orders of its own for each share: a sequence for each canonical node and share. Note
[mixed batches] says how many positions of each a batch takes. Its batches are always full, ranks
take rows in turn, and each rank's rows are mixed. A dataset that is not a mixture is the case of
one share.

Note [mixed batches]
In a batch of g rows, row r stands for the point (r + h) / g and belongs to the dataset whose part
of the weights covers this point; h changes from batch to batch as the multiples of the golden ratio
do, modulo 1. So a batch has as many rows of each dataset as its weight says, rounded up or down,
and the mean over the batches is exact. The number of rows in all batches before one is a sum of
rounded numbers, for which there is a fast formula. So any batch is found at once, and each dataset
is read in its own order, without a gap, epoch after epoch, at its own pace.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.plan.draws import Stream, bits, key
from fastpipe.plan.order import cache_recent

_EDGES_KEPT = 256  # batches
_ONE = 2**40  # fractions are whole numbers of 1 / _ONE
_GOLDEN = 679_536_467_969  # 2**40 divided by the golden ratio, odd


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those that train together."""

    rank: int = 0  # in [0, world_size)
    world_size: int = 1
    # Groups of ranks, all of one size, that share their reads; rank // (world_size / nodes) is the
    # group's number. 1: all ranks share everything.
    nodes: int = 1


ALONE = Ranks()


class Span(NamedTuple):
    """Positions [start, stop) of a sequence."""

    sequence: int
    start: int
    stop: int


class RankRows(NamedTuple):
    """A rank's rows of a global batch."""

    spans: list[Span]  # all that the rank's node takes
    # (n,) the rank's rows, as indices into the positions of all spans, one span after the other.
    rows: Int64s
    # (n,) rows that count. The others are repeats, so that the batches of all ranks have one size.
    valid: Bools


def floor_sum(count: int, divisor: int, factor: int, offset: int) -> int:
    """The sum of floor((factor * i + offset) / divisor) for i in [0, count).

    Source: the Euclidean-like algorithm for such sums in Graham, Knuth and Patashnik, "Concrete
    Mathematics", 3.5.
    """
    total = 0
    while True:
        quotient, factor = divmod(factor, divisor)
        sum_of_numbers = count * (count - 1) // 2  # of i in [0, count)
        total += quotient * sum_of_numbers
        quotient, offset = divmod(offset, divisor)
        total += quotient * count
        last = factor * count + offset
        if last < divisor:
            return total
        count, offset = divmod(last, divisor)
        factor, divisor = divisor, factor


class MixedRows:
    """The rows that each share has in batches of `rows` rows; see Note [mixed batches]."""

    def __init__(self, weights: Sequence[float], rows: int) -> None:
        # (shares,) where each share ends in a batch, as a part of it, and then in rows.
        total = math.fsum(weights)
        shares_up_to = np.cumsum(weights) / total
        self._ends = []
        for share in shares_up_to.tolist():
            end = share * rows * _ONE
            self._ends.append(round(end))
        self._ends[-1] = rows * _ONE  # whatever the rounding

    def before(self, batches: int) -> list[int]:
        """Rows of each share in the first `batches` batches."""
        if len(self._ends) == 1:
            rows_per_batch = self._ends[0] // _ONE
            return [batches * rows_per_batch]

        # Batch i has ceil((end - h) / _ONE) rows up to a share's end, h = _GOLDEN * i modulo _ONE.
        # That is floor(_GOLDEN * i / _ONE) - floor((_GOLDEN * i - end) / _ONE), and both are summed
        # over i by floor_sum.
        jitters = floor_sum(batches, _ONE, _GOLDEN, 0)
        edges = [0]  # the rows before each share, and those of all
        for end in self._ends:
            jitters_to_end = floor_sum(batches, _ONE, _GOLDEN, -end)
            edges.append(jitters - jitters_to_end)
        return [stop - start for start, stop in pairwise(edges)]


def rows_of_mixture(
    weights: Sequence[float], counts: Sequence[int], repeats: int, size: str
) -> int:
    """Rows of an epoch that ends with the "smallest" share, or with the "largest"."""
    total = math.fsum(weights)
    # After how many rows of the mixture each share comes to its end.
    ends = []
    for weight, count in zip(weights, counts, strict=True):
        rows_of_share = count * repeats
        ends.append(rows_of_share * total / weight)
    if size == "smallest":
        return math.floor(min(ends))
    return math.floor(max(ends))


class Partition:
    """See Note [partition].

    `ranks.nodes` divides world_size and `sequences`, the number of canonical nodes, and these
    divide batch_size * world_size. `rows` are at least `sequences`.
    """

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
        self._batch_size = batch_size
        self._nodes = ranks.nodes
        self._ranks_per_node = ranks.world_size // ranks.nodes
        self._node, self._local_rank = divmod(ranks.rank, self._ranks_per_node)
        self._shares = len(weights)
        self._is_mixed = self._shares > 1
        # Whether ranks take rows in turn, and not each a stretch of neighbours.
        self._in_turn = in_turn or self._is_mixed
        sequence_count = sequences * self._shares
        self._sequences_per_node = sequence_count // ranks.nodes
        # The rows that a canonical node has in a batch.
        rows_per_batch = self.global_batch_size // sequences
        self._mixed_rows = MixedRows(weights, rows_per_batch)
        self._key = key(seed, epoch, Stream.DATASET)

        # The full batches come first. `batches` may count one more, which is filled up.
        self._full_batches, tail = divmod(rows, self.global_batch_size)
        if self._is_mixed:
            self._full_batches = max(1, self._full_batches)
            self.batches = self._full_batches
        elif tail and not drop_last:
            self.batches = self._full_batches + 1
        else:
            self.batches = self._full_batches

        # The batches of a mixture are numbered on through all epochs, so that each share goes on
        # where it was. `_share_begins` has the rows of each share before this epoch.
        self._first_batch = 0
        if self._is_mixed:
            self._first_batch = epoch * self.batches
        self._share_begins = self._mixed_rows.before(self._first_batch)

        # For each sequence, how many positions it has in this epoch, and at which position of its
        # endless order the epoch begins.
        if self._is_mixed:
            # Lists of a number for each share, repeated for each canonical node.
            share_lengths = self._edges_of(self.batches)
            self._lengths = share_lengths * sequences
            self.begins = self._share_begins * sequences
        else:
            # The lengths differ by at most one.
            starts = []
            for sequence in range(sequences + 1):
                start = sequence * rows // sequences
                starts.append(start)
            self._lengths = []
            self.begins = []
            for start, end in pairwise(starts):
                length = end - start
                self._lengths.append(length)
                self.begins.append(epoch * length)

    @property
    def sequences(self) -> list[tuple[int, int]]:
        """(number, positions of the epoch) of each sequence that this rank's node reads."""
        numbers = self._sequences_of(self._node)
        return [(number, self._lengths[number]) for number in numbers]

    def edge(self, sequence: int, batch: int) -> int:
        """The position of a sequence at which a global batch begins."""
        # Each canonical node has a sequence for each share, so the remainder is the share. The last
        # batch may not be full.
        edges = self._edges_of(batch)
        share = sequence % self._shares
        return min(edges[share], self._lengths[sequence])

    def spans(self, number: int, node: int | None = None) -> list[Span]:
        """The stretches of global batch `number` that a node takes; None: the node of this rank."""
        if node is None:
            node = self._node
        spans = []
        for sequence in self._sequences_of(node):
            start = self.edge(sequence, number)
            stop = self.edge(sequence, number + 1)
            spans.append(Span(sequence, start, stop))
        return spans

    def count_rows(self) -> int:
        """This rank's rows of all global batches."""
        num_full = self.batches - 1  # only the last batch may be smaller
        first = self.rank_rows(0).rows
        last = self.rank_rows(num_full).rows
        rows_of_full = len(first) * num_full
        return rows_of_full + len(last)

    def rank_rows(self, number: int) -> RankRows:
        """This rank's rows of global batch `number`, 0 <= number < batches."""
        spans = self.spans(number)
        size = self._batch_size
        if number >= self._full_batches:
            # The last batch is not full: all ranks have as many rows as the longest one.
            lengths = []
            for node in range(self._nodes):
                spans_of_node = self.spans(number, node)
                lengths.append(_length(spans_of_node))
            longest = max(lengths)
            size = -(-longest // self._ranks_per_node)  # rounded up

        # (size,) the rank's rows among those of its node.
        rows = np.arange(size, dtype=np.int64)
        if self._in_turn:
            rows = rows * self._ranks_per_node + self._local_rank
        else:
            rows += self._local_rank * size
        if self._is_mixed:
            # The rows of a share are neighbours in the batch. Sorted by draws, they are mixed.
            # A draw is named by its batch, and by its row in the low 40 bits.
            names = rows + (number << 40)
            draws = bits(self._key, names)
            mixed_order = np.argsort(draws, kind="stable")
            rows = rows[mixed_order]

        # Rows behind the last one begin again at row 0, and do not count.
        available = _length(spans)
        if available == 0:
            # Other nodes still have a sample and this one has none: it repeats its last one.
            sequence, length = self.sequences[0]
            last = Span(sequence, length - 1, length)
            row_of_last = np.zeros_like(rows)
            is_valid = np.zeros(size, dtype=np.bool_)
            return RankRows([last], row_of_last, is_valid)
        wrapped_rows = rows % available
        is_valid = rows < available
        return RankRows(spans, wrapped_rows, is_valid)

    def batches_of(self, sequence: int, positions: Int64s) -> Int64s:
        """(n,) the global batch of each position of a sequence."""
        if not self._is_mixed:
            (rows_per_batch,) = self._edges_of(1)
            return positions // rows_per_batch
        # The batches of the least and of the greatest position, without the edges of all batches:
        # an epoch may have many.
        edge = partial(self.edge, sequence)
        next_batches = range(1, self.batches)
        least = int(positions.min())
        greatest = int(positions.max())
        low = bisect_right(next_batches, least, key=edge)
        high = bisect_right(next_batches, greatest, key=edge)
        # Where the batches low to high begin, and the end of the last one.
        edges = [edge(batch) for batch in range(low, high + 2)]
        edges_up_to = np.searchsorted(edges, positions, side="right")
        return low + edges_up_to - 1

    def is_mine(self, sequence: int, positions: Int64s) -> Bools:
        """(n,) which positions are this rank's.

        Of a last batch that is filled up, all are; of a tail, none.
        """
        if not len(positions):
            return np.zeros(0, dtype=np.bool_)
        batches = self.batches_of(sequence, positions)
        rows = self._rows_of_node(sequence, positions, batches)
        if self._in_turn:
            owners = rows % self._ranks_per_node
        else:
            owners = rows // self._batch_size
        is_owned: Bools = owners == self._local_rank
        is_last = batches >= self._full_batches
        is_last_filled_up = self.batches > self._full_batches
        if is_last_filled_up:
            return is_owned | is_last
        return is_owned & ~is_last

    def _rows_of_node(
        self, sequence: int, positions: Int64s, batches: Int64s
    ) -> Int64s:
        """(n,) the row of each position among its node's rows of the batch."""
        if not self._is_mixed:
            # All batches are alike, so this needs no loop over batches, which may be many.
            (rows_per_sequence,) = self._edges_of(1)
            first_sequence = self._node * self._sequences_per_node
            sequences_before = sequence - first_sequence
            rows_before = sequences_before * rows_per_sequence
            row_in_sequence = positions % rows_per_sequence
            return rows_before + row_in_sequence

        # (d,) the different batches, and (n,) which of them each position is in.
        different, index_of_batch = np.unique(batches, return_inverse=True)
        begins = []
        for batch in different.tolist():
            begins.append(self._row_zero(sequence, batch))
        begin_of_batch = np.array(begins, dtype=np.int64)
        begin_of_position = begin_of_batch[index_of_batch]
        return positions - begin_of_position

    def _row_zero(self, sequence: int, batch: int) -> int:
        """The position of a sequence that would be row 0 of its node's rows of a batch.

        It may be below 0.
        """
        spans_before = []
        for span in self.spans(batch):
            if span.sequence < sequence:
                spans_before.append(span)
        rows_before = _length(spans_before)
        return self.edge(sequence, batch) - rows_before

    def _sequences_of(self, node: int) -> range:
        first = node * self._sequences_per_node
        end = first + self._sequences_per_node
        return range(first, end)

    @cache_recent(_EDGES_KEPT)
    def _edges_of(self, batch: int) -> list[int]:
        """The position at which a batch begins in a sequence of each share."""
        number = self._first_batch + batch  # through all epochs
        ends = self._mixed_rows.before(number)
        begins_and_ends = zip(self._share_begins, ends, strict=True)
        return [end - begin for begin, end in begins_and_ends]


def _length(spans: list[Span]) -> int:
    return sum(span.stop - span.start for span in spans)
