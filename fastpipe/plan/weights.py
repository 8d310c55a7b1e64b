"""Weights of samples or classes -> the samples that an epoch draws.

Note [spread draws]
Draw i of n takes a random point in the i-th of n equal parts of the sum of all weights, and the sample whose weight
covers that point. Each sample comes as often as its weight says, on average exactly; in one epoch a sample that is due
2.4 times comes 1 to 4 times, where independent draws scatter far more. And the samples of draws ascend with i: so
neighbouring draws are neighbours in the shards, the chunked shuffle works on draws as it does on samples, and any batch
is found without the draws before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.draws import Stream, bits, key, uniform

# More samples' weights are not kept in memory.
MOST_KEPT = 1 << 24
MOST_TRIES = 64  # a draw, on average, where they are not
_TRY = 1 << 40

Draws = Callable[[NDArray[np.int64]], NDArray[np.int64]]


class Weighting(Protocol):
    """How an epoch draws samples.

    Attributes:
        together: neighbouring draws are neighbouring samples.
        distinct: no sample is drawn twice in an epoch.
    """

    @property
    def together(self) -> bool: ...

    @property
    def distinct(self) -> bool: ...

    def draws(self, count: int, *, seed: int, epoch: int) -> Draws:
        """(n,) numbers of draws in [0, count) -> (n,) positions of what is drawn, among all that could be."""


class SpreadDraws:
    """With replacement; see Note [spread draws].

    Args:
        weights: (n,) float64 at least 0, not all 0.
    """

    together, distinct = True, False

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self._ends = np.cumsum(weights)
        self._last = int(np.flatnonzero(weights)[-1])

    def draws(self, count: int, *, seed: int, epoch: int) -> Draws:
        """See Weighting."""
        stream = key(seed, epoch, Stream.DRAW)

        def drawn(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            points = (numbers + uniform(stream, numbers)) * (self._ends[-1] / count)
            found: NDArray[np.int64] = np.searchsorted(self._ends, points, side="right")
            return np.minimum(found, self._last)

        return drawn


class DistinctDraws:
    """Without replacement: the set that drawing one by one gives, each time among those that are left.

    It is that of the smallest of exponentially distributed numbers with the weights as rates (Efraimidis and Spirakis,
    "Weighted random sampling with a reservoir", 2006).

    Args:
        weights: (n,) float64 at least 0.
    """

    together, distinct = True, True

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self._drawable = np.flatnonzero(weights)
        self._weights = weights[self._drawable]

    def __len__(self) -> int:
        """How many could be drawn."""
        return len(self._drawable)

    def draws(self, count: int, *, seed: int, epoch: int) -> Draws:
        """See Weighting."""
        times = -np.log1p(-uniform(key(seed, epoch, Stream.DRAW), self._drawable)) / self._weights
        chosen = np.argpartition(times, count - 1)[:count]
        found: NDArray[np.int64] = np.sort(self._drawable[chosen])

        def drawn(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            return found[numbers]

        return drawn


class TriedDraws:
    """With replacement, for more samples than memory should hold weights of: any sample is tried, and taken as likely
    as its weight compared with the greatest one.

    Args:
        samples: that could be drawn.
        weights_of: positions of samples -> their weights, not all 0.
        most: the greatest weight.
        tries: that a draw takes on average.
    """

    together, distinct = False, False

    def __init__(
        self, samples: int, weights_of: Callable[[NDArray[np.int64]], NDArray[np.float64]], most: float, tries: float
    ) -> None:
        self._samples, self._weights_of, self._most = samples, weights_of, most
        self._tries = max(1, round(tries))

    def draws(self, count: int, *, seed: int, epoch: int) -> Draws:
        """See Weighting."""
        which, luck = key(seed, epoch, Stream.DRAW), key(seed, epoch, Stream.LUCK)

        def drawn(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            found = np.empty(len(numbers), dtype=np.int64)
            todo, tried = np.arange(len(numbers)), 0
            while len(todo):
                tries = numbers[todo, None] + _TRY * np.arange(tried, tried + self._tries)
                positions = (bits(which, tries) % np.uint64(self._samples)).astype(np.int64)
                good = uniform(luck, tries) * self._most < self._weights_of(positions.ravel()).reshape(tries.shape)
                hit = good.any(axis=1)
                found[todo[hit]] = positions[hit, good[hit].argmax(axis=1)]
                todo, tried = todo[~hit], tried + self._tries
            return found

        return drawn
