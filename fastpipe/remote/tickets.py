"""Samples that somebody waits for, and what has to arrive for them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastpipe.remote.parts import Key, Piece


@dataclass(frozen=True)
class Where:
    """Where the engine finds samples.

    Attributes:
        shard: (n,) uint32 number of the file: a shard, or behind the last one the ring.
        shift: (n,) int64 bytes by which all that is the sample's lies further behind there than in its shard; it may be
            negative.
    """

    shard: NDArray[np.uint32]
    shift: NDArray[np.int64]


@dataclass(eq=False)
class Ticket:
    """Samples that somebody waits for. Dropping it, or Reader.end, gives them up.

    Attributes:
        samples: their numbers.
        go: called with Where, in any thread, once they are all there; or with the error.
        generation: of the plan that was at hand when it was made.
        left: what has not arrived.
        pieces: of the ring: where its samples are, or will be.
        ended: nobody waits any more.
        counted: its samples are in the figures.
    """

    samples: NDArray[np.int64]
    go: Callable[[Where | Exception], None]
    generation: int
    left: set[Key] = field(default_factory=set)
    pieces: set[Piece] = field(default_factory=set)
    ended: bool = False
    counted: bool = False


class Tickets:
    """The tickets of a dataset."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Ticket] = weakref.WeakSet()
        # Only those who wait keep a ticket, and with it the engine: a loader that is dropped ends at once.
        self._waiting: dict[Key, list[weakref.ref[Ticket]]] = {}

    def add(self, ticket: Ticket) -> None:
        """Knows it from now on."""
        self._all.add(ticket)

    def wait(self, ticket: Ticket) -> None:
        """It is told of what it has left."""
        for key in ticket.left:
            self._waiting.setdefault(key, []).append(weakref.ref(ticket))

    def told(self, key: Key) -> list[Ticket]:
        """Those that waited for this, which has arrived."""
        found = [reference() for reference in self._waiting.pop(key, ())]
        tickets = [ticket for ticket in found if ticket is not None and not ticket.ended]
        for ticket in tickets:
            ticket.left.discard(key)
        return tickets

    def wanted(self) -> set[Key]:
        """All that somebody waits for."""
        return {key for ticket in self._all if not ticket.ended for key in ticket.left}

    def pinned(self) -> set[Piece]:
        """The pieces of the ring that somebody waits for or reads."""
        return {piece for ticket in self._all if not ticket.ended for piece in ticket.pieces}

    def end(self) -> None:
        """Nobody waits any more."""
        for ticket in list(self._all):
            ticket.ended = True
