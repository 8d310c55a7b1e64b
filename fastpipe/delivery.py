"""An epoch's batches in host memory -> what a training loop iterates: batches on the device, in order, none twice."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from fastpipe.epoch import EpochWorks
from fastpipe.errors import EngineError
from fastpipe.stats import Stats
from fastpipe.transfer import Batch, StagedBatch, Transfer


class Delivery:
    """Iterates one epoch. Queues the batches to come on the device before it hands one out.

    Args:
        works: the epoch.
        transfer: to the device.
        stats: batches, samples and times are added to.
        on_batch: called with the seconds that the loop spent in here for a batch and those of the step before it;
            not for an epoch's first batch, before which there is no step.
    """

    def __init__(
        self, works: EpochWorks, transfer: Transfer, stats: Stats, *, on_batch: Callable[[float, float], None]
    ) -> None:
        self._works = works
        self._transfer = transfer
        self._stats = stats
        self._on_batch = on_batch
        self._staged: deque[StagedBatch] = deque()
        self._handed_out = 0
        self._handed_out_at: float | None = None
        self._failure: Exception | None = None  # of a batch that was to be queued ahead
        self._over = False

    def __iter__(self) -> Delivery:
        return self

    def __len__(self) -> int:
        """Batches still to come."""
        return len(self._works) - self._handed_out

    def __next__(self) -> Batch:
        if self._over:
            raise EngineError("this epoch was ended by an error; begin a new one: for images, labels in loader")
        if len(self) == 0:
            raise StopIteration
        asked_at = time.perf_counter()
        try:
            batch = self._next()
        except BaseException:
            # Never a silent gap: whatever interrupted this, the next call says that the epoch is over.
            self._over = True
            self._staged.clear()
            self._works.cancel()
            raise
        now = time.perf_counter()
        self._stats.load_s += now - asked_at
        if self._handed_out_at is not None:
            step_s = asked_at - self._handed_out_at
            self._stats.step_s += step_s
            self._on_batch(now - asked_at, step_s)
        self._handed_out_at = now
        return batch

    def _next(self) -> Batch:
        self._works.check_usable()
        if not self._staged:
            if self._failure is not None:
                raise self._failure
            self._stage()
        while len(self._staged) <= self._transfer.lookahead and self._failure is None and self._works.left:
            try:
                self._stage()
            except Exception as problem:  # whatever it is, it is told when its batch is asked for
                self._failure = problem
        batch = self._transfer.hand_over(self._staged.popleft())
        self._handed_out += 1
        self._stats.batches += 1
        self._stats.samples += len(batch[0])
        return batch

    def _stage(self) -> None:
        self._staged.append(self._transfer.begin(self._works.take()))
