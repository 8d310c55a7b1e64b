"""Weights, classes or lists of numbers -> the samples that the places of a pass stand for.

Note [spread draws]
Draw i of n takes a random point in the i-th of n equal parts of the sum of all weights, and the sample whose weight
covers that point. Each sample comes as often as its weight says, on average exactly; in one epoch a sample that is due
2.4 times comes 1 to 4 times, where independent draws scatter far more. And the samples of draws ascend with i: so
neighbouring draws are neighbours in the shards, the chunked shuffle works on draws as it does on samples, and any batch
is found without the draws before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fastpipe.plan.draws import Float64s, Int64s, Stream, bits, key, uniform
from fastpipe.plan.order import Ids, permute

MOST_KEPT = 1 << 24  # more samples' weights are not kept in memory
MOST_TRIES = 64  # a draw, on average, where they are not
_TRY = 1 << 40


class Pick:
    """How the places of a pass become samples."""

    together = True  # neighbouring places are neighbouring samples, or taken as they stand

    def rows(self, epoch: int) -> int | None:
        """Places that an epoch goes through; None: as many as it is long."""
        return None

    def distinct(self, epoch: int) -> bool:
        """Whether no sample comes twice in a pass."""
        return False

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        """(n,) places in [0, count) of pass `epoch` -> (n,) places in the reading order of the share."""
        raise NotImplementedError


class SpreadDraws(Pick):
    """With replacement, by (n,) weights of at least 0, not all 0; see Note [spread draws]."""

    def __init__(self, weights: Float64s) -> None:
        self._ends = np.cumsum(weights)
        self._last = int(np.flatnonzero(weights)[-1])

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        stream = key(seed, epoch, Stream.DRAW)

        def drawn(numbers: Int64s) -> Int64s:
            points = (numbers + uniform(stream, numbers)) * (self._ends[-1] / count)
            return np.asarray(np.minimum(np.searchsorted(self._ends, points, side="right"), self._last))

        return drawn


class DistinctDraws(Pick):
    """Without replacement, by (n,) weights: the set that drawing one by one gives, each time among those that are left:
    that of the smallest of exponentially distributed numbers with the weights as rates (Efraimidis and Spirakis,
    "Weighted random sampling with a reservoir", 2006).
    """

    def __init__(self, weights: Float64s) -> None:
        self._drawable = np.flatnonzero(weights)
        self._weights = weights[self._drawable]

    def distinct(self, epoch: int) -> bool:
        return True

    def __len__(self) -> int:
        return len(self._drawable)

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        times = -np.log1p(-uniform(key(seed, epoch, Stream.DRAW), self._drawable)) / self._weights
        return np.sort(self._drawable[np.argpartition(times, count - 1)[:count]]).__getitem__


@dataclass(frozen=True, eq=False)
class TriedDraws(Pick):
    """With replacement, without weights in memory: any sample is tried, and taken as likely as its weight is great."""

    samples: int  # that could be drawn
    weights_of: Callable[[Int64s], Float64s]  # of places of samples, not all 0
    most: float  # the greatest weight
    tries: float  # that a draw takes on average

    together = False

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        which, luck = key(seed, epoch, Stream.DRAW), key(seed, epoch, Stream.LUCK)
        at_once = max(1, round(self.tries))

        def drawn(numbers: Int64s) -> Int64s:
            found = np.empty(len(numbers), dtype=np.int64)
            todo, tried = np.arange(len(numbers)), 0
            while len(todo):
                tries = numbers[todo, None] + _TRY * np.arange(tried, tried + at_once)
                positions = (bits(which, tries) % np.uint64(self.samples)).astype(np.int64)
                good = uniform(luck, tries) * self.most < self.weights_of(positions.ravel()).reshape(tries.shape)
                hit = good.any(axis=1)
                found[todo[hit]] = positions[hit, good[hit].argmax(axis=1)]
                todo, tried = todo[~hit], tried + at_once
            return found

        return drawn


class Listed(Pick):
    """The samples that a function names: epoch -> (n,) ids, checked. Those of two epochs are kept."""

    def __init__(self, numbers_of: Callable[[int], Int64s]) -> None:
        def of(epoch: int) -> tuple[Int64s, bool]:
            numbers = numbers_of(epoch)
            return numbers, len(np.unique(numbers)) == len(numbers)

        self._numbers_of, self._of = numbers_of, lru_cache(2)(of)

    def changed(self, epoch: int) -> bool:
        """Whether the function names other samples now than when it was asked before."""
        return not np.array_equal(self._numbers_of(epoch), self._of(epoch)[0])

    def digest(self, epoch: int) -> str:
        """The hash of an epoch's numbers, in hex."""
        import xxhash  # most programs list nothing

        return xxhash.xxh3_64_hexdigest(self._of(epoch)[0].astype("<i8").tobytes())

    def rows(self, epoch: int) -> int | None:
        return len(self._of(epoch)[0])

    def distinct(self, epoch: int) -> bool:
        return self._of(epoch)[1]

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        return self._of(epoch)[0].__getitem__


class ByClass(Pick):
    """P classes in each global batch, and K samples of each, one class behind the other.

    Note [P x K]
    Batches follow one another without end, epoch after epoch. A round of them goes through all classes in one order as
    often as it takes to end with a full batch; the next round has a new order. So the classes of a batch differ, and
    each class comes equally often. A class goes through its samples in the same way, K at a time: so these differ,
    unless the class has fewer, and each comes equally often. Samples with a label below 0 are in no batch.
    """

    def __init__(self, labels: Int64s, classes: int, samples: int) -> None:
        ids = np.flatnonzero(labels >= 0)
        self._members = ids[np.argsort(labels[ids], kind="stable")]
        _, self._firsts, self._counts = np.unique(labels[self._members], return_index=True, return_counts=True)
        self._classes, self._samples = classes, samples

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        many, each, total = self._classes, self._samples, len(self._counts)
        order, members = key(seed, 0, Stream.CLASS), key(seed, 0, Stream.MEMBER)

        def at(places: Int64s) -> Int64s:
            row, place = np.divmod(places + epoch * count, each)
            rounds, row = np.divmod(row, math.lcm(total, many))
            chosen = permute(row % total, total, bits(order, rounds))
            times = rounds * (math.lcm(total, many) // total) + row // total  # that the class came before
            of = self._counts[chosen]
            again, turn = np.divmod(times * each + place, np.lcm(of, each))
            within = permute(turn % of, of, bits(members, chosen + again * total))
            return np.asarray(self._members[self._firsts[chosen] + within])

        return at
