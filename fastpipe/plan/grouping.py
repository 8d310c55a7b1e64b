"""An epoch's order -> the same samples in batches of like shape, a window of batches at a time.

Note [grouped batches]
The batches of an epoch are taken some at a time: as many as make a window of the shuffled order, at least 16. The
samples of these batches are sorted by shape and dealt out again: each batch gets a stretch of the sorted samples, and
which batch gets which stretch is drawn. So every batch is full, no sample is left over, reading stays in the window,
and any batch is found without the windows before it. Of each sequence of a Note [partition] the samples are sorted by
themselves, since a node may read its own only. Batch and size depend on the global batch, not on ranks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastpipe.plan.buckets import Buckets
from fastpipe.plan.draws import Int64s, bits
from fastpipe.plan.order import CHUNKS_PER_WINDOW
from fastpipe.plan.partition import Partition

_LEAST_BATCHES = 16  # fewer would leave much padding
_MOST_SAMPLES = 1 << 18  # sorted at once, unless a global batch has more
_MOST_WINDOWS = 4  # in memory: that at hand, and those that are fetched ahead


# Some batches whose samples are dealt out anew: the size of each, (height, width), and of each sequence (n,) the
# position, from the window's first on, that stands at each grouped one.
_Window = tuple[list[tuple[int, int]], dict[int, Int64s]]


class Grouping:
    """See Note [grouped batches].

    Args:
        partition: of all ranks: all sequences are its.
        resized: (sequence, start, stop) -> (n, 2) widths and heights of the pictures at positions of the order.
        batches: that are grouped together.
        key: names the draws of the batches' order; None: from narrow to wide, window by window.
    """

    def __init__(
        self,
        partition: Partition,
        resized: Callable[[int, int, int], Int64s],
        buckets: Buckets,
        *,
        batches: int,
        key: int | None,
    ) -> None:
        self._partition, self._resized, self._buckets = partition, resized, buckets
        self._batches, self._key = batches, key
        spans = partition.spans(partition.batches - 1) if partition.batches else []
        self._ends = {sequence: stop for sequence, _, stop in spans}  # of what the epoch has
        self._stretch = partition.stretch
        self._length = batches * self._stretch  # positions of each sequence in a window
        self._windows: dict[int, _Window] = {}

    @staticmethod
    def batches_of(chunk: int, global_batch_size: int) -> int:
        """How many batches are grouped together, where `chunk` samples of the order are read together."""
        wanted = max(_LEAST_BATCHES, CHUNKS_PER_WINDOW * chunk // global_batch_size)
        return max(1, min(wanted, _MOST_SAMPLES // global_batch_size))

    def size(self, batch: int) -> tuple[int, int]:
        """(height, width) of a batch."""
        sizes, _ = self._window(batch // self._batches)
        return sizes[batch % self._batches]

    def positions(self, sequence: int, start: int, stop: int) -> tuple[int, Int64s]:
        """Which positions of the order stand at the grouped positions [start, stop) of one batch: the first position of
        the window, and the positions counted from it.
        """
        number = start // self._length
        begin, (_, chosen) = number * self._length, self._window(number)
        return begin, chosen[sequence][start - begin : stop - begin]

    def grouped(self, sequence: int, positions: Int64s) -> Int64s:
        """Where positions of the order stand in the batches; those that no batch has stay in place."""
        found = positions.copy()
        windows = np.where(positions < self._ends[sequence], positions // self._length, -1)
        for number in np.unique(windows[windows >= 0]).tolist():
            begin, mine = number * self._length, windows == number
            places = np.argsort(self._window(number)[1][sequence])
            found[mine] = begin + places[positions[mine] - begin]
        return found

    def due(self, sequence: int, batch: int, *, first: bool) -> tuple[int, int]:
        """The positions of the order that must be on their way before a batch, all batches after the first one having
        said so: a window's first batch may need any of them.
        """
        begin = batch // self._batches * self._batches if first else batch + self._batches
        end = self._ends[sequence]
        return min(begin * self._stretch, end), min((batch + self._batches + 1) * self._stretch, end)

    def _window(self, number: int) -> _Window:
        if number in self._windows:
            return self._windows[number]
        first = number * self._batches
        batches = np.arange(first, min(first + self._batches, self._partition.batches), dtype=np.int64)
        ranks = np.arange(len(batches))  # which stretch of the sorted samples each batch gets
        if self._key is not None:
            ranks = np.argsort(bits(self._key, batches), kind="stable")
        largest = np.ones((len(batches), 2), dtype=np.int64)
        chosen = {}
        for sequence, end in self._ends.items():
            edges = np.minimum(np.append(batches, batches[-1] + 1) * self._stretch, end)
            resized = self._resized(sequence, int(edges[0]), int(edges[-1]))
            order = np.argsort(self._buckets.likeness(resized), kind="stable")
            stretches = np.split(order, np.cumsum(np.diff(edges)[np.argsort(ranks)])[:-1])
            dealt = [stretches[rank] for rank in ranks]
            for batch, rows in enumerate(dealt):
                largest[batch] = np.maximum(largest[batch], resized[rows].max(axis=0, initial=1))
            chosen[sequence] = np.concatenate(dealt)
        while len(self._windows) >= _MOST_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[number] = [self._buckets.shape(each[None]) for each in largest], chosen
        return self._windows[number]
