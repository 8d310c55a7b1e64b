"""The epoch after the current epoch, started while the last batches of the current epoch are delivered."""

from __future__ import annotations

from collections.abc import Callable

from fastpipe.errors import FastpipeError
from fastpipe.loading.staged import StagedEpoch
from fastpipe.plan.recipe import Recipe


class Upcoming:
    """Keeps the threads at work between two epochs.

    An epoch is a pure function of recipe and number, so beginning it early changes nothing in it; if another one is
    asked for, what was begun is dropped.

    Args:
        make: (recipe, epoch number, first batch) -> the rest of the epoch, nothing of which has begun.
        recipe: tells that of an epoch that begins now.
    """

    def __init__(self, make: Callable[[Recipe, int, int], StagedEpoch], recipe: Callable[[], Recipe]) -> None:
        self._make = make
        self._recipe = recipe
        self._last = -1  # the epoch taken last
        self._begun: tuple[int, Recipe, StagedEpoch] | None = None

    def begin(self, epoch: int, batches: int) -> None:
        """Puts the first `batches` of the epoch in the works, unless the one before it is not the last that was taken.

        Whatever is wrong with them will be said when they are asked for: the epoch at hand is not their concern.
        """
        if epoch != self._last + 1:
            return
        # Not kept while it is being begun: an interrupt in the middle leaves nothing half begun behind.
        begun, self._begun = self._begun, None
        try:
            recipe = self._recipe()
            if begun is None or begun[1] is not recipe:
                begun = epoch, recipe, self._make(recipe, epoch, 0)
            begun[2].begin(batches)
        except (FastpipeError, MemoryError):
            return
        self._begun = begun

    def stage(self, epoch: int, batches: int) -> None:
        """Queues the first `batches` of the epoch on the device, if it has begun and as far as they are made."""
        if self._begun is None or self._begun[0] != epoch:
            return
        begun, self._begun = self._begun, None  # as above
        begun[2].stage(batches)
        if not begun[2].failed:
            self._begun = begun

    def take(self, recipe: Recipe, epoch: int, first: int) -> StagedEpoch:
        """The epoch from batch `first` on, begun or not."""
        begun, self._begun = self._begun, None
        self._last = epoch
        if begun is not None and begun[0] == epoch and begun[1] is recipe and first == 0:
            return begun[2]
        return self._make(recipe, epoch, first)
