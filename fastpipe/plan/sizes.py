"""(seed, epoch, batch) -> the size of that batch's images, where it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastpipe.plan.draws import Stream, key, uniform_one

Size = tuple[int, int]


@dataclass(frozen=True)
class Sizes:
    """What decides the sizes, (height, width) in pixels. One of the two."""

    schedule: Callable[[int], Size] | None = None  # epoch -> the size of its batches
    choices: tuple[Size, ...] = ()  # each batch has one: the same on all ranks, whichever batches were before it

    def in_epoch(self, epoch: int, seed: int) -> Callable[[int], Size]:
        """The number of a batch -> its size. The schedule is asked once."""
        choices = (self.schedule(epoch),) if self.schedule is not None else self.choices
        stream = key(seed, epoch, Stream.SIZE)
        return lambda batch: choices[int(uniform_one(stream, batch) * len(choices))]
