"""Epoch after epoch, set_epoch and states -> which epoch comes next, and where the loop stands."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace

from fastpipe.device.transfer import Transfer
from fastpipe.errors import FastpipeError, whole
from fastpipe.loading import pairs, programs
from fastpipe.loading.agreement import Agreement
from fastpipe.loading.batch_maker import BatchMaker
from fastpipe.loading.epoch_watch import EpochWatch
from fastpipe.loading.loader_facts import LoaderFacts
from fastpipe.loading.prefetcher import Prefetcher
from fastpipe.loading.recipes import RecipeResolver
from fastpipe.loading.skipped_twice import ResumedEpoch
from fastpipe.loading.state import Position
from fastpipe.loading.trained_again import FirstEpoch
from fastpipe.loading.trained_in_order import OrderedEpoch
from fastpipe.plan.epoch_batches import check_batches, num_batches
from fastpipe.plan.recipe import Recipe

_LOG = logging.getLogger("fastpipe")

# A look at a batch or two is usual; a loop makes more.
_MANY_SHORT = 8
_MANY_SAME = 3  # passes through one epoch


class EpochSequence:
    """The epochs of one loader, which its iterators begin one after another.

    The loader and its iterators share this object. It does not refer to the loader: when the loader
    and its iterators are dropped, this object is freed, and with it the engine and its threads.
    """

    def __init__(
        self,
        maker: BatchMaker,
        transfer: Transfer,
        resolver: RecipeResolver,
        agreement: Agreement,
        prefetch_factor: int,
        facts: LoaderFacts,
    ) -> None:
        self.maker = maker
        self.transfer = transfer
        self.resolver = resolver
        self.agreement = agreement
        self.prefetch_factor = prefetch_factor
        # Held while an iterator makes a batch: all iterators share the position, the slots and the
        # device's queue.
        self.lock = threading.RLock()
        # Where the training loop stands. The newest iterator counts its batches in this object.
        self.position = Position()
        self.next = Position()  # where the next iteration begins

        self._recipe = resolver.current()  # of the epoch that was begun or loaded last
        # Raises if a loaded state does not belong to a recipe; None: no state waits for its epoch.
        self._check_loaded: Callable[[Recipe], Position] | None = None
        self._was_placed = False  # by set_epoch or a state
        self._loaded: Position | None = None  # of the state that was loaded last
        self.num_loaded = 0  # states
        self.num_begun = 0  # epochs
        self.facts = facts
        self.has_had_gradients = (
            False  # whether they were on when a batch was asked for
        )
        # Of the epoch that continued at a loaded position: where it continued, and where it stands.
        self._resumed: tuple[Position, Position] | None = None
        self.watches: list[EpochWatch] = []  # of the epoch that was begun last
        self._last_end: int | None = None  # the epoch that was gone through last
        self._num_same_ends = 0  # how often in a row it was
        self._num_short = 0  # epochs in a row that ended with their first batch
        # Of the epoch that was begun last; its iterator has it.
        self._newest: weakref.ref[Prefetcher] | None = None
        # The next epoch, if it was begun early.
        self._prefetched: Prefetcher | None = None
        # The position of the iterator that may begin the next epoch early: the newest one, unless
        # it is the loader's first one. Who iterates a second time will probably iterate again.
        self._prefetching_position: Position | None = None
        # All that are in use, for the figures. Weak, because each belongs to its iterator.
        self._prefetchers: list[weakref.ref[Prefetcher]] = []

    @property
    def running_recipe(self) -> Recipe:
        """The recipe of the running or loaded epoch; of the next one if there is none."""
        if self.position.batches or self._check_loaded:
            return self._recipe
        return self.resolver.current()

    @property
    def size(self) -> tuple[int, int]:
        """The size of images in the running epoch; of the next one if nothing remains of it."""
        if self.num_remaining:
            recipe = self.running_recipe
        else:
            recipe = self.resolver.current()
        return recipe.size

    @property
    def num_remaining(self) -> int:
        """Number of batches that the running epoch, or else the next one, has not handed out."""
        count = num_batches(self.running_recipe, self.position.epoch)
        return count - self.position.batches

    @property
    def num_next(self) -> int:
        """Number of batches that the next iteration will give."""
        if self._check_loaded:
            recipe = self._recipe
        else:
            recipe = self.resolver.current()
        return num_batches(recipe, self.next.epoch) - self.next.batches

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration give this epoch; the rest of it, if a state was loaded there."""
        epoch = whole("epoch", epoch, least=0, most=2**63 - 1)
        self._was_placed = True
        if epoch != self.next.epoch:
            if self.next.batches and self.num_next:
                _LOG.warning(
                    f"set_epoch({epoch}) drops the position of load_state_dict, batch "
                    f"{self.next.batches} of epoch {self.next.epoch}. To continue there, begin the "
                    f"loop over epochs at {self.next.epoch}"
                )
            self.next = Position(epoch)
        self.position = replace(self.next)

    def resume_at(
        self, position: Position, recipe: Recipe, check: Callable[[Recipe], Position]
    ) -> None:
        """Has the next iteration begin at a loaded position.

        `recipe` is assumed for its epoch until the ranks are known; then `check` raises if another
        recipe does not belong to the state.
        """
        self._was_placed = True
        self.next = position
        self._loaded = replace(position)
        self.num_loaded += 1
        self._resumed = None
        self.position = replace(position)
        self._recipe = recipe
        self._check_loaded = check
        programs.warn_restored(position.epoch, position.batches)

    def begin(self) -> Prefetcher:
        """Begins the next epoch. `position` is a new object then, where its iterator counts."""
        # Everything that may raise comes before anything changes: the next call begins the same
        # epoch again.
        self.resolver.check_ranks()
        self.resolver.refresh_listed(self.next.epoch)
        if self._check_loaded is not None:
            loaded = self._check_loaded(self.resolver.current())
            # With a budget the position depends on the ranks, which may be known only now.
            if self.next == self._loaded:
                self.next = loaded
        prefetcher = self._next_prefetcher()
        recipe = prefetcher.recipe
        start = prefetcher.start
        self.agreement.begin(recipe, start)
        programs.warn_trainer(
            recipe, self.maker.engine.num_workers, self.prefetch_factor
        )
        is_first = self.maker.stats.epoch < 0
        if not self._was_placed:
            programs.warn_begun_anew(recipe)
            if is_first or start.epoch == 1:
                programs.warn_made_anew(self.agreement.line, recipe, start.epoch)
        programs.warn_without_gradients(recipe)
        pairs.begin_epoch(self.facts)
        self._count_short_epochs()
        self._warn_looked_at_resumed(start)
        if self._check_loaded is not None and recipe.shuffle:
            self._warn_of_other_epoch(start)

        # From here on the epoch has begun. The older iterators keep their own position objects.
        self._recipe = recipe
        self._check_loaded = None
        self.position = replace(start)
        is_resumed = start.batches > 0 and start == self._loaded
        self._resumed = (start, self.position) if is_resumed else None
        self.watches = self._make_watches(recipe, start, is_first=is_first)
        self._prefetching_position = None if is_first else self.position
        self.next = Position(start.epoch + 1)
        self.maker.stats.epoch = start.epoch
        self.num_begun += 1
        self._newest = weakref.ref(prefetcher)
        return prefetcher

    def _make_watches(
        self, recipe: Recipe, start: Position, *, is_first: bool
    ) -> list[EpochWatch]:
        """What watches the epoch that begins at `start`; `is_first`: of this loader."""
        watches: list[EpochWatch] = [OrderedEpoch(recipe)]
        if not recipe.shuffle:
            return watches
        if self._resumed is not None:
            watches.append(ResumedEpoch(start.batches))
        elif is_first and not self._was_placed:
            watches.append(FirstEpoch(recipe))
        return watches

    def find_newer(self, prefetcher: Prefetcher) -> Prefetcher | None:
        """The epoch that began last, if it is not this one and its iterator still wants batches."""
        newest = None if self._newest is None else self._newest()
        if newest is None or newest is prefetcher or not len(newest):
            return None
        return newest

    def _warn_looked_at_resumed(self, start: Position) -> None:
        """Says if only one batch was taken of an epoch that continued at a loaded position.

        `start`: of the epoch that begins now.
        """
        if self._resumed is None or not self._is_newest_dropped:
            return
        loaded, reached = self._resumed
        remaining = num_batches(self._recipe, loaded.epoch) - reached.batches
        if reached.batches == loaded.batches + 1 and remaining > 0:
            programs.warn_looked_at_resumed(
                loaded.epoch, loaded.batches, remaining, start.epoch
            )

    def _warn_of_other_epoch(self, start: Position) -> None:
        """Says if set_epoch has chosen another epoch than the one that a loaded state is before.

        `start`: of the epoch that begins now. In mid-epoch `set_epoch` has said it.
        """
        loaded = self._loaded
        if loaded is None:
            return
        next_epoch = loaded.epoch
        if loaded.batches:
            if num_batches(self._recipe, loaded.epoch) > loaded.batches:
                return
            next_epoch += 1
            if start == loaded:
                programs.warn_nothing_left(loaded.epoch, loaded.batches)
                return
        if start.epoch != next_epoch:
            programs.warn_other_epoch(next_epoch, start.epoch)

    @property
    def _is_newest_dropped(self) -> bool:
        """Whether nobody has the iterator any more of the epoch that was begun last."""
        return self._newest is None or self._newest() is None

    def _count_short_epochs(self) -> None:
        """Counts how many epochs in a row have ended with their first batch: nobody has their
        iterator any more.
        """
        is_left = self._is_newest_dropped and self.num_remaining > 0
        is_short = is_left and self.position.batches == 1
        self._num_short = self._num_short + 1 if is_short else 0
        if self._num_short == _MANY_SHORT:
            programs.warn_short_epochs(_MANY_SHORT)

    def count_end(self, start: Position, recipe: Recipe) -> None:
        """Counts how often in a row one epoch was gone through, from `start` to its end."""
        is_same = start.epoch == self._last_end and not start.batches
        self._num_same_ends = self._num_same_ends + 1 if is_same else 1
        self._last_end = start.epoch
        if self._num_same_ends == _MANY_SAME and recipe.shuffle:
            programs.warn_same_epoch(start.epoch, _MANY_SAME)

    def prefetch_next(
        self, position: Position, *, pending: int = 0, staged: int = 0
    ) -> None:
        """Begins the next epoch early: so many batches pending, and so many queued on the device.

        `position` is that of the iterator that asks. Only the newest one may, and not the loader's
        first one, since many programs iterate once.
        """
        if position is not self._prefetching_position:
            return
        try:
            prefetcher = self._next_prefetcher()
            prefetcher.fill(pending)
            prefetcher.stage_ready(staged)
        except (FastpipeError, MemoryError):
            # The next epoch is begun again in its turn, and raises the error then if it is still
            # there.
            return
        if prefetcher.failure is None:
            self._prefetched = prefetcher
        else:
            prefetcher.cancel()

    def discard_prefetched(self) -> None:
        """Drops the batches of the next epoch that were begun early."""
        self._prefetched = None

    def _next_prefetcher(self) -> Prefetcher:
        """The next epoch: the one that was begun early, if it is still right, or a new one.

        It is not kept here meanwhile, so an interrupt leaves no half begun epoch behind.
        """
        prefetched = self._prefetched
        self._prefetched = None
        recipe = self.resolver.current()
        start = self.next
        if (
            prefetched is not None
            and prefetched.recipe is recipe
            and prefetched.start == start
        ):
            return prefetched
        check_batches(recipe, start.epoch)  # a sampler's epochs may differ in length
        prefetcher = Prefetcher(
            self.maker, self.transfer, recipe, start, self.prefetch_factor
        )
        alive = [
            reference for reference in self._prefetchers if reference() is not None
        ]
        self._prefetchers = [*alive, weakref.ref(prefetcher)]
        return prefetcher

    def count_pending(self) -> tuple[int, int]:
        """Number of batches in host memory: those that are being made, and those that are ready.

        Any thread may call it.
        """
        num_making = 0
        num_ready = 0
        for reference in self._prefetchers:
            prefetcher = reference()
            if prefetcher is None:
                continue
            for batch in list(prefetcher.pending):
                if batch.done:
                    num_ready += 1
                else:
                    num_making += 1
        return num_making, num_ready
