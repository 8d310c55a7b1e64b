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
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ranks:
    """Where this process stands among those that train together.

    Attributes:
        rank: its number, in [0, world_size).
        world_size: how many there are.
        nodes: groups of ranks, as large as each other, that share what they read; rank // (world_size / nodes) is
            its group's number. 1: all ranks share all.
    """

    rank: int = 0
    world_size: int = 1
    nodes: int = 1


ALONE = Ranks()


@dataclass(frozen=True)
class Share:
    """A rank's rows of a global batch.

    Attributes:
        spans: (sequence, start, stop) of the stretches that the rank's node takes, positions in each sequence.
        rows: (n,) int64: the rank's rows, as positions in all the spans' samples put together.
        valid: (n,) bool: rows that count. Others repeat a sample, so that all ranks' batches are of one size.
    """

    spans: list[tuple[int, int, int]]
    rows: NDArray[np.int64]
    valid: NDArray[np.bool_]


class Partition:
    """Deals an epoch's samples out to ranks; see Note [partition].

    Args:
        samples: in the dataset.
        batch_size: of each rank, at least 1.
        drop_last: leave out the tail that fills no global batch.
        ranks: who takes part; ranks.nodes divides world_size and `sequences`.
        sequences: that the order is cut into; divides batch_size * world_size.
        in_turn: ranks take rows in turn.

    Attributes:
        global_batch_size: samples of a full global batch.
        batches: of an epoch.
        stretch: positions of each sequence in a full global batch.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        *,
        drop_last: bool,
        ranks: Ranks,
        sequences: int = 1,
        in_turn: bool = False,
    ) -> None:
        self.global_batch_size = batch_size * ranks.world_size
        full, tail = divmod(samples, self.global_batch_size)
        self.batches = full + (tail > 0 and not drop_last)
        self._full = full
        self._batch_size = batch_size
        self._ranks = ranks
        self._in_turn = in_turn
        self._ranks_per_node = ranks.world_size // ranks.nodes
        self.stretch = self.global_batch_size // sequences
        self._per_node = sequences // ranks.nodes
        # Sequences are as long as each other, give or take one.
        self._starts = [sequence * samples // sequences for sequence in range(sequences + 1)]

    @property
    def sequences(self) -> list[tuple[int, int, int]]:
        """(number, first sample, samples) of each sequence that this rank's node reads."""
        node = self._ranks.rank // self._ranks_per_node
        mine = range(node * self._per_node, (node + 1) * self._per_node)
        return [(number, self._starts[number], self._length(number)) for number in mine]

    def spans(self, number: int) -> list[tuple[int, int, int]]:
        """(sequence, start, stop): the stretches of global batch `number` that this rank's node takes."""
        return [(sequence, *self._stretch_of(sequence, number)) for sequence, _, _ in self.sequences]

    def share(self, number: int) -> Share:
        """This rank's rows of global batch `number`, 0 <= number < batches."""
        spans = self.spans(number)
        if number < self._full:
            rows = self._rows(self._batch_size)
            return Share(spans, rows, np.ones(len(rows), dtype=np.bool_))
        size = self._last_size(number)
        rows = self._rows(size)
        have = sum(stop - start for _, start, stop in spans)
        if have == 0:  # other nodes have a sample left, this one has none: one it had before stands in
            sequence, _, length = self.sequences[0]
            return Share([(sequence, length - 1, length)], np.zeros_like(rows), np.zeros(size, dtype=np.bool_))
        return Share(spans, rows % have, rows < have)

    def mine(self, sequence: int, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which positions of a sequence are this rank's. Those of a last batch that is not full are everyone's, and
        nobody's if it is left out.
        """
        before = (sequence - self.sequences[0][0]) * self.stretch
        rows = before + positions % self.stretch
        local = self._ranks.rank % self._ranks_per_node
        owners = rows % self._ranks_per_node if self._in_turn else rows // self._batch_size
        owned: NDArray[np.bool_] = owners == local
        tail = positions // self.stretch >= self._full
        return owned | tail if self.batches > self._full else owned & ~tail

    def _rows(self, size: int) -> NDArray[np.int64]:
        """Which rows of its node's this rank takes, if each rank takes `size`."""
        local = self._ranks.rank % self._ranks_per_node
        rows = np.arange(size, dtype=np.int64)
        return rows * self._ranks_per_node + local if self._in_turn else rows + local * size

    def _length(self, sequence: int) -> int:
        return self._starts[sequence + 1] - self._starts[sequence]

    def _stretch_of(self, sequence: int, number: int) -> tuple[int, int]:
        length = self._length(sequence)
        return min(number * self.stretch, length), min((number + 1) * self.stretch, length)

    def _last_size(self, number: int) -> int:
        """Rows of each rank in a last batch that is not full: what the node with most samples left needs."""
        most = 0
        for node in range(self._ranks.nodes):
            mine = range(node * self._per_node, (node + 1) * self._per_node)
            stretches = (self._stretch_of(sequence, number) for sequence in mine)
            most = max(most, sum(stop - start for start, stop in stretches))
        return -(-most // self._ranks_per_node)
