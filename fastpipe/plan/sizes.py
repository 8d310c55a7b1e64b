"""(seed, epoch, batch) -> the size of that batch's images, where it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastpipe.plan.draws import Stream, key, uniform_one

Size = tuple[int, int]


@dataclass(frozen=True)
class Sizes:
    """What decides the sizes, (height, width) in pixels. One of the two.

    Attributes:
        schedule: epoch -> the size of its batches.
        choices: each batch has one of them: the same on all ranks, whichever batches were before it.
    """

    schedule: Callable[[int], Size] | None = None
    choices: tuple[Size, ...] = ()

    def in_epoch(self, epoch: int, seed: int) -> EpochSizes:
        """The sizes of an epoch's batches."""
        if self.schedule is not None:
            return EpochSizes((self.schedule(epoch),), 0)
        return EpochSizes(self.choices, key(seed, epoch, Stream.SIZE))


@dataclass(frozen=True)
class EpochSizes:
    """The sizes of an epoch's batches.

    Attributes:
        choices: of each batch.
        stream: names the draws.
    """

    choices: tuple[Size, ...]
    stream: int

    def of(self, batch: int) -> Size:
        """The size of a batch, by its number."""
        return self.choices[int(uniform_one(self.stream, batch) * len(self.choices))]
