"""Epoch after epoch, set_epoch and states -> batches for the training loop, none twice, and where the loader stands."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar

import torch

from fastpipe.device.transfer import Batch, Transfer
from fastpipe.errors import EngineError, FastpipeError
from fastpipe.loading import programs
from fastpipe.loading.agreement import Agreement
from fastpipe.loading.epoch import Epoch, Maker
from fastpipe.loading.ranks import Recipes
from fastpipe.loading.state import Position
from fastpipe.plan.recipe import Recipe, check_batches, partition_of

_LOG = logging.getLogger("fastpipe")
_LEAST_HELD_S = 1e-4  # less passes while one looks whether the device is ready
_REASON = (
    "fastpipe makes batches outside of compiled code. Without fullgraph=True a loop over a loader works in a compiled "
    "function. With it, compile the function that gets one batch, and keep the loop outside of it"
)
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Course:
    """Keeps count of a loader's epochs, and the threads at work between two. It knows nothing of the loader."""

    def __init__(self, maker: Maker, transfer: Transfer, recipes: Recipes, agreement: Agreement) -> None:
        self._maker, self._transfer, self._recipes = maker, transfer, recipes
        self._agreement = agreement
        self._at_hand = recipes.now()
        self._check: Callable[[Recipe], object] | None = None  # of a loaded state, until an epoch begins
        self.stats = maker.stats
        self.position, self.next = Position(), Position()  # where the loader stands, where the next iteration begins
        self.lock = threading.RLock()  # while an iterator makes a batch: all share this, the device's queues and slots
        self._last: Position | None = None  # in the epoch that was begun last, if it is not the first
        self._early: Epoch | None = None
        self._placed = False  # by set_epoch or a state

    @property
    def left(self) -> int:
        """Batches that the next iteration will give."""
        recipe = self._at_hand if self._check else self._recipes.now()
        return partition_of(recipe, self.next.epoch).batches - self.next.batches

    @property
    def remaining(self) -> int:
        """Batches that the epoch at hand, or the next one if none is, has not handed out."""
        return partition_of(self.recipe, self.position.epoch).batches - self.position.batches

    @property
    def recipe(self) -> Recipe:
        """Of the epoch at hand, or of the next one if none is."""
        return self._at_hand if self.position.batches or self._check else self._recipes.now()

    @property
    def size(self) -> tuple[int, int]:
        """Of the images of the epoch at hand, or of the next one if none is or nothing is left of it."""
        return (self.recipe if self.remaining else self._recipes.now()).size

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives this epoch: the rest of it, if that is where a state left off."""
        self._placed = True
        if epoch != self.next.epoch:
            if self.next.batches and self.left:
                _LOG.warning(
                    f"set_epoch({epoch}) drops the position of load_state_dict, batch {self.next.batches} of epoch "
                    f"{self.next.epoch}. To continue there, begin the loop over epochs at {self.next.epoch}"
                )
            self.next = Position(epoch)
        self.position = replace(self.next)

    def forget_ahead(self) -> None:
        """The next epoch is made when it begins."""
        self._early = None

    def go_on_at(self, position: Position, recipe: Recipe, check: Callable[[Recipe], object]) -> None:
        """The next iteration begins there. `recipe` is taken to be that of its epoch; `check` raises if it is not."""
        self._placed = True
        self.next = position
        self._at_hand, self._check = recipe, check
        programs.tell_restored(position.epoch, position.batches)
        self.position = replace(position)

    def begin(self) -> Epoch:
        self._recipes.world.check()
        self._recipes.ask_again(self.next.epoch)
        if self._check is not None:
            self._check(self._recipes.now())
        epoch = self._next_epoch()
        self._agreement.begin(epoch.recipe, epoch.position.epoch)
        programs.tell_trainer(epoch.recipe, self._maker.engine.num_workers, self._maker.ahead)
        if not self._placed:
            programs.tell_begun_anew(epoch.recipe)
        self._at_hand, self._check = epoch.recipe, None
        self.position, self._last = epoch.position, None if self.stats.epoch < 0 else epoch.position
        self.next = Position(epoch.position.epoch + 1)
        self.stats.epoch = epoch.position.epoch
        return epoch

    def next_batch(self, epoch: Epoch) -> Batch:
        """Of an epoch that has one. Queues those behind it on the device, also of the next epoch, as far as made."""
        ahead, lookahead = self._maker.ahead, self._transfer.lookahead
        self._maker.engine.check_usable()
        if epoch.position.batches.bit_count() == 1:  # after 1, 2, 4, 8, ... of them
            self.look_at_ranks(epoch)
        self._transfer.collect()
        if room := epoch.fill(ahead + 1):
            self._go_ahead(epoch, made=min(room, ahead))
        staged = epoch.take(lookahead)
        if len(epoch) < lookahead:
            self._go_ahead(epoch, staged=lookahead - len(epoch))
        batch = self._transfer.hand_over(staged)
        self.stats.batches += 1
        self.stats.samples += len(staged.valid)
        return batch

    def look_at_ranks(self, epoch: Epoch) -> None:
        """ConfigError: another rank has begun this epoch with another seed, for example. Note [agreement]"""
        self._agreement.look(epoch.recipe)

    def _go_ahead(self, epoch: Epoch, *, made: int = 0, staged: int = 0) -> None:
        """Has the first batches of the next epoch made and queued; what is wrong with it is said in its turn."""
        # Who iterates twice will do so again: nothing begins behind the first epoch, nor behind an older iterator's.
        if epoch.position is not self._last:
            return
        try:
            early = self._next_epoch()
            early.fill(made)
            early.stage(staged)
        except (FastpipeError, MemoryError):
            return
        if early.failure is None:
            self._early = early
        else:
            early.cancel()

    def _next_epoch(self) -> Epoch:
        """Begun or not. It is not kept meanwhile: an interrupt leaves nothing half begun behind."""
        early, self._early = self._early, None
        recipe, start = self._recipes.now(), self.next
        if early is not None and early.recipe is recipe and early.position == start:
            return early
        check_batches(recipe, start.epoch)  # a sampler may give another number of samples in each epoch
        return Epoch(self._maker, self._transfer, recipe, start)


def uncompiled(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """torch.compiler.disable, which imports torch's compiler (a second) only where a program uses it already."""
    disabled = functools.cache(lambda: torch.compiler.disable(method))  # type: ignore[no-untyped-call]

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        chosen: Callable[_P, _T] = disabled() if "torch._dynamo" in sys.modules else method
        return chosen(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]
    return call


class Delivery:
    """Iterates one epoch, which begins with the first batch: training frameworks make iterators that they never use."""

    def __init__(self, course: Course, on_batch: Callable[[float, float], None]) -> None:
        self._course = course
        self._on_batch = on_batch  # gets the seconds of the loop in here for a batch, and of the step before, if any
        self._epoch: Epoch | None = None
        self._handed_out_at: float | None = None
        self._over = False  # by an error

    def __iter__(self) -> Delivery:
        return self

    def __len__(self) -> int:
        """Batches still to come."""
        return self._course.left if self._epoch is None else len(self._epoch)

    def skip_to(self, batch: int) -> None:
        """Begins at this batch of the epoch, if it has not begun, and would not begin later anyway."""
        if self._epoch is None:
            self._course.next.batches = max(batch, self._course.next.batches)

    @uncompiled
    def __next__(self) -> Batch:
        with self._course.lock:
            if self._over:
                raise EngineError("an error ended this epoch; start a new one: for images, labels in loader")
            stats, asked_at = self._course.stats, time.perf_counter()
            if self._epoch is None:
                self._epoch = self._course.begin()
            epoch, position, held_s = self._epoch, self._epoch.position, stats.held_s
            if len(epoch) == 0:
                self._course.look_at_ranks(epoch)
                if position.batches:
                    position.epoch, position.batches = position.epoch + 1, 0
                raise StopIteration
            try:
                batch = self._course.next_batch(epoch)
                now = time.perf_counter()
                # A device that was still at an earlier step has not waited for this batch.
                load_s = now - asked_at if stats.held_s - held_s < _LEAST_HELD_S else 0.0
                stats.load_s += load_s
                if self._handed_out_at is not None:
                    step_s = now - self._handed_out_at - load_s
                    stats.step_s += step_s
                    self._on_batch(load_s, step_s)
                self._handed_out_at = now
                position.batches += 1
                return batch
            except BaseException as problem:
                # Never a silent gap: whatever interrupted this, the next call says that the epoch is over.
                self._over = True
                epoch.cancel()
                if isinstance(problem, StopIteration):  # the loop would take it for the end of the epoch
                    said = "a module of augment= raised StopIteration, as next() does at an end; correct it there"
                    raise RuntimeError(said) from problem
                raise
