"""(places, repeats, seed, epoch) -> the order of an epoch that is shorter or longer than one pass over the places.

Note [passes]
Passes follow one another without end, each in a new order: pass p is the order that epoch p of a plain loader has. In a
pass each place comes `repeats` times in a row. An epoch is a stretch of this, and the next epoch begins where it ends.
So short epochs go through the whole dataset before a sample comes again, and a plain epoch is exactly one pass.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.order import EpochOrder

_MOST_ORDERS = 2  # that a batch may lie in, with few exceptions


class Passes:
    """The order of an epoch; see Note [passes].

    Args:
        places: that a pass goes through, at least 1.
        chunk: places that are read together.
        seed: picks the orders.
        begin: where the endless order the epoch begins.
        size: positions of the epoch.
        repeats: how often in a row a place comes.
        shuffle: False gives all passes the order of the places.
    """

    def __init__(
        self, places: int, chunk: int, *, seed: int, begin: int, size: int, repeats: int, shuffle: bool
    ) -> None:
        self._places, self._chunk, self._seed, self._shuffle = places, chunk, seed, shuffle
        self._begin, self._size, self._repeats = begin, size, repeats
        self._length = places * repeats
        self._orders: dict[int, EpochOrder] = {}

    def take(self, start: int, stop: int) -> NDArray[np.int64]:
        """The places at positions [start, stop) of the epoch."""
        found = [np.empty(0, dtype=np.int64)]
        for number, first, end in self._pieces(start, stop):
            low = first // self._repeats
            places = self._order(number).take(low, -(-end // self._repeats))
            found.append(np.repeat(places, self._repeats)[first - low * self._repeats :][: end - first])
        return np.concatenate(found)

    def times(self, start: int, stop: int) -> NDArray[np.int64]:
        """Which time each of these comes in the epoch, at least: 0, 1, ... Never the same twice for one place."""
        positions = np.arange(start, stop, dtype=np.int64) + self._begin % self._length
        return positions % self._repeats + positions // self._length * self._repeats

    def reads(self, start: int, stop: int, *, first: bool) -> NDArray[np.int64]:
        """What to read ahead before the places at positions [start, stop) are read; see EpochOrder.reads."""
        runs = [np.empty((0, 2), dtype=np.int64)]
        for number, low, high, anew in self._stretches(start, stop, first=first):
            runs.append(self._order(number).reads(low, high, first=anew))
        return np.concatenate(runs)

    def ahead(
        self, start: int, stop: int, mine: Callable[[NDArray[np.int64]], NDArray[np.bool_]], *, first: bool
    ) -> list[NDArray[np.int64]]:
        """The places of each run of `reads` that some positions of this epoch have.

        Args:
            mine: (n,) positions of the epoch -> which of them count.
        """
        found = []
        for number, low, high, anew in self._stretches(start, stop, first=first):
            order = self._order(number)
            begin, end = order.positions_ahead(low, high, first=anew)
            positions = np.arange(begin * self._repeats, end * self._repeats) + number * self._length - self._begin
            within = (positions >= 0) & (positions < self._size)
            within[within] = mine(positions[within])
            places = np.unique(np.repeat(order.take(begin, end), self._repeats)[within])
            for run in order.reads(low, high, first=anew):
                found.append(places[slice(*np.searchsorted(places, run))])
        return found

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """(pass, start, stop): what the positions are of each pass that they lie in."""
        pieces = []
        at, end = self._begin + start, self._begin + stop
        while at < end:
            number, inside = divmod(at, self._length)
            upto = min(self._length, inside + end - at)
            pieces.append((number, inside, upto))
            at += upto - inside
        return pieces

    def _stretches(self, start: int, stop: int, *, first: bool) -> list[tuple[int, int, int, bool]]:
        """(pass, start, stop, first): the same in places, each once, for EpochOrder.reads."""
        found = []
        pieces = self._pieces(start, stop)
        if first and start == stop < self._size:  # a mixture's first batch may have none of a dataset that comes later
            number, inside = divmod(self._begin + start, self._length)
            pieces = [(number, inside, inside)]
        for number, low, high in pieces:
            anew = first or low == 0
            begin = low // self._repeats if anew else -(-low // self._repeats)
            found.append((number, begin, -(-high // self._repeats), anew))
            first = False
        return found

    def _order(self, number: int) -> EpochOrder:
        if number not in self._orders:
            while len(self._orders) >= _MOST_ORDERS:
                del self._orders[next(iter(self._orders))]
            self._orders[number] = EpochOrder(
                self._places, self._chunk, seed=self._seed, epoch=number, shuffle=self._shuffle
            )
        return self._orders[number]
