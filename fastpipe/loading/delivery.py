"""Batches of an epoch in host memory -> batches for the training loop: on the device, in order, none twice."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from fastpipe.device.transfer import Batch, StagedBatch, Transfer
from fastpipe.engine.stats import Stats
from fastpipe.errors import EngineError
from fastpipe.loading.course import Course
from fastpipe.loading.epoch import EpochWorks
from fastpipe.loading.state import Position


class Delivery:
    """Iterates one epoch. Queues the next batches on the device before it hands one out, if they are made by then.

    Several threads may share one: each batch goes to one of them.

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
        self._lock = threading.Lock()
        self._staged: deque[StagedBatch] = deque()
        self._begun: tuple[EpochWorks, Position] | None = None
        self._left = 0  # once begun
        self._handed_out_at: float | None = None
        self._failure: Exception | None = None  # of a batch that was to be queued ahead
        self._over = False  # by an error
        self._ended = False  # as it should

    def __iter__(self) -> Delivery:
        return self

    def __len__(self) -> int:
        """Batches still to come."""
        return self._left if self._begun is not None else self._course.left

    def __next__(self) -> Batch:
        with self._lock:
            return self._next_batch()

    def _next_batch(self) -> Batch:
        if self._over:
            raise EngineError("an error ended this epoch; start a new one: for images, labels in loader")
        asked_at = time.perf_counter()
        works, position = self._begun or self._begin()
        if self._left == 0:
            if not self._ended:
                self._ended = True
                position.epoch += 1
                position.batches = 0
            raise StopIteration
        held_s = self._stats.held_s
        try:
            batch = self._next(works, position)
        except BaseException:
            # Never a silent gap: whatever interrupted this, the next call says that the epoch is over.
            self._over = True
            self._staged.clear()
            works.cancel()
            raise
        now = time.perf_counter()
        held_s = self._stats.held_s - held_s  # the device was still at an earlier step: no wait for data
        load_s = now - asked_at - held_s
        self._stats.load_s += load_s
        if self._handed_out_at is not None:
            step_s = asked_at - self._handed_out_at + held_s
            self._stats.step_s += step_s
            self._on_batch(load_s, step_s)
        self._handed_out_at = now
        return batch

    def _begin(self) -> tuple[EpochWorks, Position]:
        self._begun = works, position = self._course.begin()
        self._left = len(works)
        self._stats.epoch = position.epoch
        return works, position

    def _next(self, works: EpochWorks, position: Position) -> Batch:
        works.check_usable()
        if not self._staged:
            if self._failure is not None:
                raise self._failure
            self._stage(works)
        while len(self._staged) <= self._transfer.lookahead and self._failure is None and len(works):
            try:
                if not works.ready:  # a batch that is ready does not wait for the next one
                    break
                self._stage(works)
            except Exception as problem:  # whatever it is, it is told when its batch is asked for
                self._failure = problem
        staged = self._staged.popleft()
        batch = self._transfer.hand_over(staged)
        self._left -= 1
        position.batches += 1
        position.valid = staged.valid
        self._stats.batches += 1
        self._stats.samples += len(staged.valid)
        return batch

    def _stage(self, works: EpochWorks) -> None:
        self._staged.append(self._transfer.begin(works.take()))
