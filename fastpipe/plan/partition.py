"""(samples, batch size, ranks) -> which positions of an epoch's order each rank takes, batch by batch.

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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastpipe.plan.draws import Bools, Int64s


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


class Partition:
    """Deals an epoch's samples out to ranks; see Note [partition].

    `ranks.nodes` divides world_size and `sequences`, and these divide batch_size * world_size.
    """

    def __init__(
        self, samples: int, batch_size: int, *, drop_last: bool, ranks: Ranks, sequences: int = 1, in_turn: bool = False
    ) -> None:
        self.global_batch_size = batch_size * ranks.world_size
        self._full, tail = divmod(samples, self.global_batch_size)
        self.batches = self._full + (tail > 0 and not drop_last)
        self.stretch = self.global_batch_size // sequences  # positions of each sequence in a full global batch
        self._batch_size, self._in_turn, self._nodes = batch_size, in_turn, ranks.nodes
        self._ranks_per_node = ranks.world_size // ranks.nodes
        self._node, self._local = divmod(ranks.rank, self._ranks_per_node)
        self._per_node = sequences // ranks.nodes
        # Sequences are as long as each other, give or take one.
        self._starts = [sequence * samples // sequences for sequence in range(sequences + 1)]

    @property
    def sequences(self) -> list[tuple[int, int, int]]:
        """(number, first sample, samples) of each sequence that this rank's node reads."""
        return self._sequences_of(self._node)

    def spans(self, number: int, node: int | None = None) -> list[tuple[int, int, int]]:
        """(sequence, start, stop): the stretches of global batch `number` that a node takes; None: this rank's."""
        begin, end = number * self.stretch, (number + 1) * self.stretch
        sequences = self._sequences_of(self._node if node is None else node)
        return [(each, min(begin, length), min(end, length)) for each, _, length in sequences]

    def share(self, number: int) -> Share:
        """This rank's rows of global batch `number`, 0 <= number < batches."""
        spans, size = self.spans(number), self._batch_size
        if number >= self._full:
            most = max(_samples(self.spans(number, node)) for node in range(self._nodes))
            size = -(-most // self._ranks_per_node)
        rows = np.arange(size, dtype=np.int64)
        rows = rows * self._ranks_per_node + self._local if self._in_turn else rows + self._local * size
        have = _samples(spans)
        if have == 0:  # other nodes have a sample left, this one has none: one it had before stands in
            sequence, _, length = self.sequences[0]
            return Share([(sequence, length - 1, length)], np.zeros_like(rows), np.zeros(size, dtype=np.bool_))
        return Share(spans, rows % have, rows < have)

    def mine(self, sequence: int, positions: Int64s) -> Bools:
        """Which positions of a sequence are this rank's. Those of a last batch that is not full are everyone's, and
        nobody's if it is left out.
        """
        rows = (sequence - self._node * self._per_node) * self.stretch + positions % self.stretch
        owners = rows % self._ranks_per_node if self._in_turn else rows // self._batch_size
        owned: Bools = owners == self._local
        tail = positions // self.stretch >= self._full
        return owned | tail if self.batches > self._full else owned & ~tail

    def _sequences_of(self, node: int) -> list[tuple[int, int, int]]:
        mine = range(node * self._per_node, (node + 1) * self._per_node)
        return [(number, self._starts[number], self._starts[number + 1] - self._starts[number]) for number in mine]


def _samples(spans: list[tuple[int, int, int]]) -> int:
    return sum(stop - start for _, start, stop in spans)
