"""(samples, sampler, seed, epoch) -> the order of an epoch, which is a stretch of an order without end.

Note [passes]
Passes follow one another without end, each in a new order: pass p is the order that epoch p of a plain loader has. A
pass goes through places. Each place is a sample, or, where a sampler picks, a draw: the sampler tells the sample of
each draw of a pass. In a pass each place comes `repeats` times in a row. An epoch is a stretch of this, and the next
epoch begins where it ends. So short epochs go through the whole dataset before a sample comes again, and a plain epoch
is exactly one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.order import EpochOrder, members

_MOST_ORDERS = 2  # that a batch may lie in, with few exceptions

Ids = Callable[[NDArray[np.int64]], NDArray[np.int64]]  # (n,) places of a pass -> (n,) ids


@dataclass(frozen=True)
class Taken:
    """A stretch of an epoch.

    Attributes:
        ids: (n,) of the samples.
        places: (n,) of the sequence's passes.
        times: (n,) which time a row's place comes in the epoch, at least: 0, 1, ... Never the same twice for a place.
    """

    ids: NDArray[np.int64]
    places: NDArray[np.int64]
    times: NDArray[np.int64]

    def __getitem__(self, rows: NDArray[np.int64]) -> Taken:
        return Taken(self.ids[rows], self.places[rows], self.times[rows])


class Passes:
    """The order of an epoch, of one sequence; see Note [passes].

    Args:
        places: that a pass goes through, at least 1.
        chunk: places that are read together.
        seed: picks the orders.
        begin: where in the endless order the epoch begins.
        size: positions of the epoch.
        repeats: how often in a row a place comes.
        shuffle: False gives all passes the order of the places.
        ids: pass -> the ids at its places.
    """

    def __init__(
        self,
        places: int,
        chunk: int,
        *,
        seed: int,
        begin: int,
        size: int,
        repeats: int,
        shuffle: bool,
        ids: Callable[[int], Ids],
    ) -> None:
        self._places, self._chunk, self._seed, self._shuffle = places, chunk, seed, shuffle
        self._begin, self._size, self._repeats = begin, size, repeats
        self._length = places * repeats
        self._ids = ids
        self._made: dict[int, tuple[EpochOrder, Ids]] = {}

    def take(self, start: int, stop: int) -> Taken:
        """The rows at positions [start, stop) of the epoch."""
        none = np.empty(0, dtype=np.int64)
        ids, places = [none], [none]
        for number, first, end in self._pieces(start, stop):
            low = first // self._repeats
            order, ids_of = self._pass(number)
            some = np.repeat(order.take(low, -(-end // self._repeats)), self._repeats)[first - low * self._repeats :]
            places.append(some[: end - first])
            ids.append(ids_of(places[-1]))
        at = np.arange(start, stop, dtype=np.int64) + self._begin % self._length
        times = at % self._repeats + at // self._length * self._repeats
        return Taken(np.concatenate(ids), np.concatenate(places), times)

    def reads(self, start: int, stop: int, *, first: bool, runs: bool) -> NDArray[np.int64]:
        """What to read ahead before positions [start, stop) are read; see EpochOrder.reads.

        Args:
            runs: neighbouring places are neighbouring samples: then (n, 2) runs of places come, else (n,) ids.
        """
        found = [np.empty((0, 2) if runs else 0, dtype=np.int64)]
        for number, low, high, anew in self._stretches(start, stop, first=first):
            order, ids_of = self._pass(number)
            read = order.reads(low, high, first=anew)
            found.append(read if runs else ids_of(members(read)))
        return np.concatenate(found)

    def ahead(
        self, start: int, stop: int, mine: Callable[[NDArray[np.int64]], NDArray[np.bool_]], *, first: bool
    ) -> list[NDArray[np.int64]]:
        """The ids of each run of `reads` that some positions of this epoch have.

        Args:
            mine: (n,) positions of the epoch -> which of them count.
        """
        found = []
        for number, low, high, anew in self._stretches(start, stop, first=first):
            order, ids_of = self._pass(number)
            begin, end = order.positions_ahead(low, high, first=anew)
            positions = np.arange(begin * self._repeats, end * self._repeats) + number * self._length - self._begin
            within = (positions >= 0) & (positions < self._size)
            within[within] = mine(positions[within])
            places = np.unique(np.repeat(order.take(begin, end), self._repeats)[within])
            for run in order.reads(low, high, first=anew):
                found.append(ids_of(places[slice(*np.searchsorted(places, run))]))
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
        if first and start == stop < self._size:  # a mixture's first batch may have none of a share that comes later
            number, inside = divmod(self._begin + start, self._length)
            pieces = [(number, inside, inside)]
        for number, low, high in pieces:
            anew = first or low == 0
            begin = low // self._repeats if anew else -(-low // self._repeats)
            found.append((number, begin, -(-high // self._repeats), anew))
            first = False
        return found

    def _pass(self, number: int) -> tuple[EpochOrder, Ids]:
        if number not in self._made:
            while len(self._made) >= _MOST_ORDERS:
                del self._made[next(iter(self._made))]
            order = EpochOrder(self._places, self._chunk, seed=self._seed, epoch=number, shuffle=self._shuffle)
            self._made[number] = order, self._ids(number)
        return self._made[number]
