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
    """See Note [grouped batches]. `partition` has all sequences; `resized`, of (sequence, start, stop), gives (n, 2)
    widths and heights of the pictures at positions of the order; so many `batches` are grouped together. `key` names
    the draws of their order; None: from narrow to wide, window by window.
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
        self._windows: dict[int, _Window] = {}

    @staticmethod
    def batches_of(chunk: int, global_batch_size: int) -> int:
        """How many batches are grouped together, where `chunk` samples of the order are read together."""
        wanted = max(_LEAST_BATCHES, CHUNKS_PER_WINDOW * chunk // global_batch_size)
        return max(1, min(wanted, _MOST_SAMPLES // global_batch_size))

    def size(self, batch: int) -> tuple[int, int]:
        """(height, width) of a batch."""
        return self._window(batch // self._batches)[0][batch % self._batches]

    def positions(self, sequence: int, batch: int, start: int, stop: int) -> tuple[int, Int64s]:
        """Which positions of the order stand at [start, stop) of a batch: the first one of its window, and those
        counted from it. A sample that stands in where a node has none left is of the batch before.
        """
        if self._partition.edge(sequence, batch) > start:
            batch -= 1
        begin = self._partition.edge(sequence, batch // self._batches * self._batches)
        _, chosen = self._window(batch // self._batches)
        return begin, chosen[sequence][start - begin : stop - begin]

    def grouped(self, sequence: int, positions: Int64s) -> Int64s:
        """Where positions of the order stand in the batches; those that no batch has stay in place."""
        found = positions.copy()
        inside = positions < self._partition.edge(sequence, self._partition.batches)
        if not inside.any():
            return found
        windows = np.full(len(positions), -1, dtype=np.int64)
        windows[inside] = self._partition.batches_of(sequence, positions[inside]) // self._batches
        for number in np.unique(windows[inside]).tolist():
            begin, mine = self._partition.edge(sequence, number * self._batches), windows == number
            places = np.argsort(self._window(number)[1][sequence])
            found[mine] = begin + places[positions[mine] - begin]
        return found

    def due(self, sequence: int, batch: int, *, first: bool) -> tuple[int, int]:
        """The positions of the order that must be on their way before a batch, all batches after the first one having
        said so: a window's first batch may need any of them.
        """
        begin = batch // self._batches * self._batches if first else batch + self._batches
        last = self._partition.batches
        start, stop = (min(each, last) for each in (begin, batch + self._batches + 1))
        return self._partition.edge(sequence, start), self._partition.edge(sequence, stop)

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
        for sequence, _ in self._partition.sequences:
            edges = [self._partition.edge(sequence, batch) for batch in range(first, first + len(batches) + 1)]
            resized = self._resized(sequence, edges[0], edges[-1])
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
