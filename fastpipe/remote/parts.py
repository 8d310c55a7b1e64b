"""A range of a shard that is fetched at once: blocks that the cache keeps, or samples for the ring, and how long those
stay there: until they have been used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.remote.ring import Ring

# Small neighbours lie in the ring together.
_PIECE_BYTES = 64 << 10


@dataclass(eq=False)
class Part:
    """A range of a shard that is fetched at once.

    Attributes:
        shard, start, stop: which bytes.
        blocks: that it consists of, where the cache keeps them; None: it goes into the ring.
        pieces: of the ring: what is kept of it. Bytes between them are not.
        there: of the ring: its bytes are.
        first: it is of a first batch.
    """

    shard: int
    start: int
    stop: int
    blocks: range | None = None
    pieces: list[Piece] = field(default_factory=list)
    there: bool = False
    first: bool = False

    @property
    def keys(self) -> set[Key]:
        """What may be waited for of it."""
        return {self} if self.blocks is None else set(self.blocks)

    @property
    def dead(self) -> bool:
        """Whether it is for the ring, and nobody wants it any more."""
        return self.blocks is None and all(piece.dead for piece in self.pieces)


@dataclass(eq=False)
class Piece:
    """Neighbouring samples, or one large one, that lie in the ring together.

    Attributes:
        part: that it comes with.
        start, stop: which bytes of the shard.
        samples: that lie in it.
        planned: those of them that are still to be used, by the plan.
        place: in the ring; None: not there yet, or not any more.
        dead: nobody finds samples in it any more.
    """

    part: Part
    start: int
    stop: int
    samples: list[int]
    planned: set[int] = field(default_factory=set)
    place: int | None = None
    dead: bool = False


Key = int | Part  # a block, or a part in the ring


class RingParts:
    """What is in the ring, or on its way there.

    Args:
        ring: the file.
        lock: guards this; held by who calls.
    """

    def __init__(self, ring: Ring, lock: threading.RLock) -> None:
        self._ring, self._lock = ring, lock
        self._of: dict[int, Piece] = {}  # sample -> the piece that has it
        self._used: list[tuple[int, Piece]] = []  # kept until the next ones are: notes are read later

    def of(self, sample: int) -> Piece | None:
        """The piece that has a sample."""
        return self._of.get(sample)

    def put(self, sample: int, part: Part, start: int, stop: int) -> Piece:
        """A sample with these bytes of the shard is to be found in a part, as its last one."""
        part.stop = stop
        last = part.pieces[-1] if part.pieces else None
        if last is not None and last.stop == start and stop - last.start <= _PIECE_BYTES:
            last.stop = stop
            last.samples.append(sample)
        else:
            last = Piece(part, start, stop, [sample])
            part.pieces.append(last)
        self._of[sample] = last
        return last

    def have(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which samples are in the ring, or on their way."""
        return np.array([sample in self._of for sample in samples.tolist()], dtype=np.bool_)

    def origin(self, place: int) -> tuple[int, int] | None:
        """Shard and byte of a place; None: nothing is there."""
        for piece in set(self._of.values()):
            if piece.place is not None and 0 <= place - piece.place < piece.stop - piece.start:
                return piece.part.shard, piece.start + place - piece.place
        return None

    def store(self, part: Part, data: Any) -> None:
        """Writes what has come of a part, for whoever still wants it; without the lock.

        Raises:
            OSError: there is no memory.
        """
        with self._lock:
            places = [(piece, self._ring.take(piece.stop - piece.start)) for piece in part.pieces if not piece.dead]
        view = memoryview(data)
        try:
            for piece, place in places:
                self._ring.write(place, view[piece.start - part.start : piece.stop - part.start])
        except OSError:
            with self._lock:
                self.forget(part.pieces)
            raise
        finally:
            with self._lock:
                part.there = True
                for piece, place in places:
                    if piece.dead:
                        self._ring.give_back(place, piece.stop - piece.start)
                    else:
                        piece.place = place

    def use(self, samples: NDArray[np.int64]) -> Iterable[Piece]:
        """Samples have been used, and the plan needs them no more from the next use on.

        Returns:
            The pieces of those that were used before.
        """
        used, self._used = self._used, [(each, self._of[each]) for each in samples.tolist() if each in self._of]
        for sample, piece in used:
            piece.planned.discard(sample)
        return {piece for _, piece in used}

    def next_plan(self, pinned: set[Piece]) -> None:
        """No sample is to be used any more by the plan at hand; see `give_back`."""
        self._used.clear()
        pieces = set(self._of.values())
        for piece in pieces:
            piece.planned.clear()
        self.give_back(pieces, pinned)

    def give_back(self, pieces: Iterable[Piece], pinned: set[Piece]) -> None:
        """Gives back what those pieces take that nobody needs, now or later.

        Args:
            pinned: pieces that somebody waits for or reads.
        """
        for piece in pieces:
            if not piece.planned and piece not in pinned:
                self.forget([piece])
                if piece.place is not None:
                    self._ring.give_back(piece.place, piece.stop - piece.start)
                    piece.place = None

    def forget(self, pieces: Iterable[Piece]) -> None:
        """Nobody finds samples in these pieces any more; who reads them may go on."""
        for piece in pieces:
            piece.dead = True
            piece.planned.clear()
            for sample in piece.samples:
                if self._of.get(sample) is piece:
                    del self._of[sample]
