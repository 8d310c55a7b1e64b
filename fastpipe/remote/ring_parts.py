"""Parts that no cache keeps -> which of them are in the ring, and for how long: until their samples have been used."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fastpipe.remote.parts import Part
from fastpipe.remote.ring import Ring

# What the ring has is of use to so many plans after the one that it was fetched for, where each begins while the one
# before it ends. Then its lane is needed for another plan.
_KEPT_GENERATIONS = 2


class RingParts:
    """What is in the ring, or on its way there.

    Args:
        ring: the file.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._of: dict[int, Part] = {}  # sample -> the part that has it
        # Samples that have been used, and their bytes; given back when the next ones have been.
        self._used: list[tuple[Part, int, int, int]] = []

    def of(self, sample: int) -> Part | None:
        """The part that has a sample."""
        return self._of.get(sample)

    def put(self, sample: int, part: Part) -> None:
        """A sample is to be found in a part."""
        self._of[sample] = part
        part.members.append(sample)

    def have(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which samples are in the ring, or on their way."""
        return np.array([sample in self._of for sample in samples.tolist()], dtype=np.bool_)

    def use(self, samples: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Samples have been used, and the plan needs them no more: the next `give_back_used` gives them back.

        Args:
            samples: their numbers.
            starts, stops: their bytes in their shards.
        """
        rows = zip(samples.tolist(), starts.tolist(), stops.tolist(), strict=True)
        self._used = [(self._of[row[0]], *row) for row in rows if row[0] in self._of]

    def give_back_used(self, pinned: set[Part]) -> None:
        """Gives back what was named last.

        Args:
            pinned: parts that somebody waits for or reads.
        """
        used, self._used = self._used, []
        for part, sample, start, stop in used:
            if part.dead or sample not in part.samples:
                continue
            part.samples.discard(sample)
            if part.samples and part not in pinned and self._of.get(sample) is part:
                self._ring.thin(part.lane, part.shard, start, stop)
                del self._of[sample]
            else:
                self.drop_unused([part], pinned)

    def next_plan(self, generation: int, pinned: set[Part]) -> None:
        """No sample is to be used any more by the plan at hand."""
        self._used.clear()
        for part in set(self._of.values()):
            part.samples.clear()
            if part.generation < generation - _KEPT_GENERATIONS:
                self._unmap(part)
            self.drop_unused([part], pinned)

    def drop_unused(self, parts: Iterable[Part], pinned: set[Part]) -> None:
        """Forgets those parts that nobody uses, now or later."""
        for part in parts:
            if not part.dead and not part.samples and part not in pinned:
                self.forget(part)

    def forget(self, part: Part) -> None:
        """Gives back what a part takes; nobody finds samples in it any more."""
        part.dead = True
        self._unmap(part)
        if part.there:
            self._ring.drop(part.lane, part.shard, part.start, part.stop)

    def _unmap(self, part: Part) -> None:
        for sample in part.members:
            if self._of.get(sample) is part:
                del self._of[sample]
