"""Parts that no cache keeps -> which of them are in the ring, and for how long: until their samples have been used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.remote.parts import Part, Piece
from fastpipe.remote.ring import Ring


class RingParts:
    """What is in the ring, or on its way there. Wants.lock guards it.

    Args:
        ring: the file.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._of: dict[int, Part] = {}  # sample -> the part that has it
        self._used: list[tuple[int, Part]] = []  # given back when the next ones have been used

    def of(self, sample: int) -> Part | None:
        """The part that has a sample."""
        return self._of.get(sample)

    def put(self, sample: int, part: Part, start: int, stop: int) -> None:
        """A sample with these bytes of the shard is to be found in a part, as its last one."""
        self._of[sample] = part
        part.add(sample, start, stop)

    def have(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which samples are in the ring, or on their way."""
        return np.array([sample in self._of for sample in samples.tolist()], dtype=np.bool_)

    def origin(self, place: int) -> tuple[int, int] | None:
        """Shard and byte of a place; None: nothing is there."""
        for part in set(self._of.values()):
            for piece in part.pieces():
                if piece.place is not None and 0 <= place - piece.place < piece.stop - piece.start:
                    return part.shard, piece.start + place - piece.place
        return None

    # ---- what comes

    def places(self, part: Part) -> list[tuple[Piece, int]]:
        """Where to write the pieces of a part that has come; nobody else writes there."""
        return [(piece, self._ring.take(piece.stop - piece.start)) for piece in part.pieces() if piece.samples]

    def write(self, part: Part, places: Iterable[tuple[Piece, int]], data: Any) -> None:
        """Writes them there: without the lock."""
        view = memoryview(data)
        for piece, place in places:
            self._ring.write(place, view[piece.start - part.start : piece.stop - part.start])

    def written(self, part: Part, places: Iterable[tuple[Piece, int]]) -> None:
        """They are there, for whoever still wants them."""
        part.there = True
        for piece, place in places:
            if piece.samples and not part.dead:
                piece.place = place
            else:
                self._ring.give_back(place, piece.stop - piece.start)

    # ---- what goes

    def use(self, samples: NDArray[np.int64]) -> None:
        """Samples have been used, and the plan needs them no more: the next `give_back_used` gives them back."""
        self._used = [(sample, self._of[sample]) for sample in samples.tolist() if sample in self._of]

    def give_back_used(self, pinned: set[Part], busy: set[int]) -> None:
        """Gives back what was named last.

        Args:
            pinned: parts that somebody waits for or reads.
            busy: samples that somebody waits for or reads.
        """
        used, self._used = self._used, []
        for sample, part in used:
            if part.dead or sample not in part.samples:
                continue
            part.samples.discard(sample)
            if not part.samples:
                self.drop_unused([part], pinned)
            elif sample not in busy:
                self.forget_sample(sample, part)

    def next_plan(self, pinned: set[Part]) -> None:
        """No sample is to be used any more by the plan at hand."""
        self._used.clear()
        for part in set(self._of.values()):
            part.samples.clear()
            self.drop_unused([part], pinned)

    def drop_unused(self, parts: Iterable[Part], pinned: set[Part]) -> None:
        """Forgets those parts that nobody uses, now or later."""
        for part in parts:
            if not part.dead and not part.samples and part not in pinned:
                self.forget(part)

    def forget(self, part: Part) -> None:
        """Gives back what a part takes; nobody finds samples in it any more."""
        part.dead = True
        for sample in part.members:
            self.forget_sample(sample, part)

    def forget_sample(self, sample: int, part: Part) -> None:
        """Nobody finds a sample in its part any more; gives back what it takes, if no other sample is beside it."""
        if self._of.get(sample) is part:
            del self._of[sample]
        piece = part.members[sample]
        piece.samples.discard(sample)
        if not piece.samples and piece.place is not None:
            self._ring.give_back(piece.place, piece.stop - piece.start)
            piece.place = None
