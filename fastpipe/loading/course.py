"""Epoch after epoch, set_epoch and states -> the next epoch, begun early, and the position of a loader."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from fastpipe.device.transfer import Transfer
from fastpipe.errors import FastpipeError
from fastpipe.loading.epoch import Epoch, Maker
from fastpipe.loading.ranks import Recipes
from fastpipe.loading.state import Position
from fastpipe.plan.recipe import Recipe, batches_per_epoch

_LOG = logging.getLogger("fastpipe")


class Course:
    """Keeps count of a loader's epochs, and the threads at work between two. It knows nothing of the loader.

    Attributes:
        maker, transfer: make the batches of all epochs.
        position: where the loader stands.
        next: where the next iteration begins.
        lock: held while one of the loader's iterators makes a batch: they share this, the device's queues and slots.
    """

    def __init__(self, maker: Maker, transfer: Transfer, recipes: Recipes) -> None:
        self.maker = maker
        self.transfer = transfer
        self._recipes = recipes
        self._at_hand = recipes.now()
        self._check: Callable[[Recipe], object] | None = None  # of a loaded state, until an epoch begins
        self.position, self.next = Position(), Position()
        self.lock = threading.RLock()
        self._begun = 0
        self._last: Position | None = None  # in the epoch that was begun last
        self._early: Epoch | None = None

    @property
    def left(self) -> int:
        """Batches that the next iteration will give."""
        return self._batches(self._at_hand if self._check else self._recipes.now()) - self.next.batches

    @property
    def remaining(self) -> int:
        """Batches that the epoch at hand, or the next one if none is, has not handed out."""
        return self._batches(self.recipe) - self.position.batches

    @property
    def recipe(self) -> Recipe:
        """Of the epoch at hand, or of the next one if none is."""
        return self._at_hand if self.position.batches or self._check else self._recipes.now()

    @property
    def size(self) -> tuple[int, int]:
        """Of the images of the epoch at hand, or of the next one if none is or nothing is left of it."""
        return (self.recipe if self.remaining else self._recipes.now()).size

    def _batches(self, recipe: Recipe) -> int:
        return batches_per_epoch(len(self.maker.index), recipe)

    def begin(self) -> Epoch:
        """The next iteration's epoch."""
        self._recipes.world.check()
        if self._check is not None:
            self._check(self._recipes.now())
        epoch = self._next_epoch()
        self._begun += 1
        self._at_hand, self._check = epoch.recipe, None
        self.position = self._last = epoch.position
        self.next = Position(epoch.position.epoch + 1)
        return epoch

    def go_ahead(self, epoch: Epoch, *, made: int = 0, staged: int = 0) -> None:
        """Has the first batches of the next epoch made, and queued on the device as far as they are made by then.

        An epoch is a pure function of recipe and number, so beginning it early changes nothing in it; if another one
        is asked for, this one is dropped. So it is if anything is wrong with it, which will be said when it is asked
        for: the epoch at hand is not its concern.

        Args:
            epoch: the one at hand. Nothing begins behind a loop's only epoch: who iterates twice will do so again.
            made, staged: how many batches.
        """
        if self._begun < 2 or epoch.position is not self._last:
            return
        try:
            early = self._next_epoch()
            early.fill(made)
            early.stage(staged)
        except (FastpipeError, MemoryError):
            return
        if not early.failed:
            self._early = early

    def _next_epoch(self) -> Epoch:
        """Begun or not. It is not kept meanwhile: an interrupt leaves nothing half begun behind."""
        early, self._early = self._early, None
        recipe, start = self._recipes.now(), self.next
        if early is not None and early.recipe is recipe and early.position == start:
            return early
        return Epoch(self.maker, self.transfer, recipe, start)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives this epoch: the rest of it, if that is where a state left off."""
        if epoch != self.next.epoch:
            if self.next.batches and self.left:
                _LOG.warning(
                    "set_epoch(%d) drops the position of load_state_dict, batch %d of epoch %d: epoch %d starts "
                    "at its first batch. To continue at that position, begin the loop over epochs at %d",
                    epoch,
                    self.next.batches,
                    self.next.epoch,
                    epoch,
                    self.next.epoch,
                )
            self.next = Position(epoch)
        self.position = replace(self.next)

    def go_on_at(self, position: Position, recipe: Recipe, check: Callable[[Recipe], object]) -> None:
        """The next iteration begins there. `recipe` is taken to be that of its epoch; `check` raises if it is not."""
        self.next = position
        self._at_hand, self._check = recipe, check
        self.position = replace(position)
