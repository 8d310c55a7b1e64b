"""Epoch after epoch, set_epoch and states -> the next batches, and the position of a loader."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fastpipe.loading.ranks import Recipes
from fastpipe.loading.staged import StagedEpoch
from fastpipe.loading.state import Position
from fastpipe.loading.upcoming import Upcoming
from fastpipe.plan.recipe import Recipe

_LOG = logging.getLogger("fastpipe")


class Course:
    """Keeps count of a loader's epochs. It knows nothing of the loader, so that dropping that ends the threads.

    Args:
        upcoming: makes epochs.
        recipes: tells the recipe of an epoch that begins now.
        batches_of: a recipe -> batches an epoch.

    Attributes:
        position: where the loader stands.
        next: where the next iteration begins.
        lock: held while one of the loader's iterators makes a batch: they share this, the device's queues and slots.
    """

    def __init__(self, upcoming: Upcoming, recipes: Recipes, batches_of: Callable[[Recipe], int]) -> None:
        self._upcoming = upcoming
        self._recipes = recipes
        self._batches_of = batches_of
        self._at_hand = recipes.now()
        self._check: Callable[[Recipe], object] | None = None  # of a loaded state, until an epoch begins
        self.next = Position()
        self._begun = 0
        self.position = Position()
        self.lock = threading.RLock()

    @property
    def left(self) -> int:
        """Batches that the next iteration will give."""
        return self._batches_of(self._at_hand if self._check else self._recipes.now()) - self.next.batches

    @property
    def remaining(self) -> int:
        """Batches that the epoch at hand, or the next one if none is, has not handed out."""
        return self._batches_of(self.recipe) - self.position.batches

    @property
    def recipe(self) -> Recipe:
        """Of the epoch at hand, or of the next one if none is."""
        return self._at_hand if self.position.batches or self._check else self._recipes.now()

    @property
    def size(self) -> tuple[int, int]:
        """Of the images of the epoch at hand, or of the next one if none is or nothing is left of it."""
        return (self.recipe if self.remaining else self._recipes.now()).size

    def begin(self) -> tuple[StagedEpoch, Position]:
        """The next iteration's epoch, and the position that it keeps up to date from now on."""
        self._recipes.world.check()
        start, recipe = self.next, self._recipes.now()
        if self._check is not None:
            self._check(recipe)
        epoch = self._upcoming.take(recipe, start.epoch, start.batches)
        # Who iterates twice will do so again: from then on an epoch begins while the one before it ends.
        if self._begun > 0:
            epoch.follow_with(partial(self._upcoming.begin, start.epoch + 1))
        self._begun += 1
        self._at_hand, self._check = recipe, None
        self.position, self.next = replace(start), Position(start.epoch + 1)
        return epoch, self.position

    def stage(self, epoch: int, batches: int) -> None:
        """Queues the first `batches` of an epoch on the device, if it has begun early and as far as they are made."""
        self._upcoming.stage(epoch, batches)

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
