"""Batches of an epoch in host memory -> batches for the training loop: on the device, in order, none twice."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastpipe.device.transfer import Batch, Transfer
from fastpipe.engine.stats import Stats
from fastpipe.errors import EngineError
from fastpipe.loading.course import Course
from fastpipe.loading.staged import StagedEpoch
from fastpipe.loading.state import Position
from fastpipe.loading.uncompiled import uncompiled

_LEAST_HELD_S = 1e-4  # less passes while one looks whether the device is ready


class Delivery:
    """Iterates one epoch. Queues the next batches on the device before it hands one out, if they are made by then.

    At the epoch's end those are of the next epoch.

    Several threads may share one: each batch goes to one of them. Iterators of one loader take turns, too.

    It takes its epoch when it is asked for the first batch, not before: training frameworks make iterators that they
    never use.

    Args:
        course: says which epoch comes next.
        transfer: to the device.
        stats: batches, samples and times are added to.
        on_batch: called with the seconds that the loop spent in here for a batch and those of the step before it;
            not for an epoch's first batch, before which there is no step.
    """

    def __init__(
        self,
        course: Course,
        transfer: Transfer,
        stats: Stats,
        *,
        on_batch: Callable[[float, float], None],
    ) -> None:
        self._course = course
        self._transfer = transfer
        self._stats = stats
        self._on_batch = on_batch
        self._begun: tuple[StagedEpoch, Position] | None = None
        self._handed_out_at: float | None = None
        self._over = False  # by an error
        self._ended = False  # as it should

    def __iter__(self) -> Delivery:
        return self

    def __len__(self) -> int:
        """Batches still to come."""
        return len(self._begun[0]) if self._begun is not None else self._course.left

    def skip_to(self, batch: int) -> None:
        """Begins at this batch of the epoch, if it has not begun, and would not begin later anyway."""
        if self._begun is None:
            self._course.next.batches = max(batch, self._course.next.batches)

    @uncompiled
    def __next__(self) -> Batch:
        with self._course.lock:
            return self._next_batch()

    def _next_batch(self) -> Batch:
        if self._over:
            raise EngineError("an error ended this epoch; start a new one: for images, labels in loader")
        asked_at = time.perf_counter()
        epoch, position = self._begun or self._begin()
        if len(epoch) == 0:
            if not self._ended:
                self._ended = True
                position.epoch += 1
                position.batches = 0
            raise StopIteration
        held_s = self._stats.held_s
        try:
            batch = self._next(epoch, position)
        except BaseException as problem:
            # Never a silent gap: whatever interrupted this, the next call says that the epoch is over.
            self._over = True
            epoch.cancel()
            if isinstance(problem, StopIteration):  # the loop would take it for the end of the epoch
                raise RuntimeError(
                    "a module of augment= raised StopIteration, as next() of an empty iterator does; correct it there"
                ) from problem
            raise
        now = time.perf_counter()
        held_s = self._stats.held_s - held_s
        # A device that was still at an earlier step has not waited for this batch.
        load_s = now - asked_at if held_s < _LEAST_HELD_S else 0.0
        self._stats.load_s += load_s
        if self._handed_out_at is not None:
            step_s = now - self._handed_out_at - load_s
            self._stats.step_s += step_s
            self._on_batch(load_s, step_s)
        self._handed_out_at = now
        return batch

    def _begin(self) -> tuple[StagedEpoch, Position]:
        self._begun = epoch, position = self._course.begin()
        self._stats.epoch = position.epoch
        return epoch, position

    def _next(self, epoch: StagedEpoch, position: Position) -> Batch:
        epoch.check_usable()
        self._transfer.collect()
        ahead = self._transfer.lookahead
        staged = epoch.take(ahead)
        if len(epoch) < ahead:
            self._course.stage(position.epoch + 1, ahead - len(epoch))
        batch = self._transfer.hand_over(staged)
        position.batches += 1
        self._stats.batches += 1
        self._stats.samples += len(staged.valid)
        return batch
