"""The plan of an epoch -> its batches, made ahead by the engine and queued on the device."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.errors import EngineError
from fastpipe.loading.batch_maker import BatchMaker, PendingBatch
from fastpipe.loading.state import Position
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

if TYPE_CHECKING:
    from fastpipe.device.transfer import StagedBatch, Transfer

# Fields of a batch that say of which sample a row is.
_NAMING_FIELDS = frozenset(["id", "key"])


class Prefetcher:
    """Keeps batches of one epoch under way, from `start` on: none before it is planned or decoded.

    A batch is pending in host memory first, and then staged: its copy to the device is queued. If
    a batch ahead fails, the batches before it are still handed out, and then the error is raised.

    `prefetch_factor` batches are pending besides the one that is taken next.
    """

    def __init__(
        self,
        maker: BatchMaker,
        transfer: Transfer,
        recipe: Recipe,
        start: Position,
        prefetch_factor: int,
    ) -> None:
        self.recipe = recipe
        self.start = Position(start.epoch, start.batches)
        self.pending: deque[PendingBatch] = deque()
        self.failure: Exception | None = None  # of batch `_end`
        self.capacity = prefetch_factor + 1  # of `pending`
        self._maker = maker
        self._transfer = transfer
        self._plan = EpochPlan(recipe, start.epoch)
        self._staged: deque[StagedBatch] = deque()
        self.num_taken = 0
        self._ids_staged: deque[Int64s] = deque()  # (n,) of each of them
        # (n,) the samples of the batch that `take` gave last.
        self.last_ids: Int64s = np.empty(0, dtype=np.int64)
        # Pending batches have the numbers from here on.
        self._next_to_stage = start.batches
        self._names_samples = (
            False  # a field of the batches says of which sample a row is
        )
        # No batch from this number on is made: it is the end of the epoch, or that batch failed.
        self._end = len(self._plan)
        # Rows of the staged batches that repeat a sample, where no field of the batch says so.
        self.num_unmarked_repeats = 0
        # Whether a sample came before one with a smaller number, and no field says which it is.
        self.has_unmarked_order = False

    def __len__(self) -> int:
        """Number of batches that `take` has not given yet."""
        return len(self._plan) - self._next_to_stage + len(self._staged)

    def fill(self, count: int) -> int:
        """Begins batches until `count` are pending, or until the end of the epoch.

        Returns how many of the next epoch could be pending besides; none after a failure.
        """
        while len(self.pending) < count:
            number = self._next_to_stage + len(self.pending)
            if number >= self._end:
                break
            started = time.perf_counter()
            try:
                self._begin(number)
            except Exception as problem:  # `take` raises it when it comes to this batch
                self._end = number
                self.failure = problem
            self._maker.stats.plan_s += time.perf_counter() - started
        if self.failure is not None:
            return 0
        return count - len(self.pending)

    def _begin(self, number: int) -> None:
        plan = self._plan.batch(number)
        is_first = number == self.start.batches
        engine = self._maker.engine
        reader = engine.reader
        if reader is None:
            # The kernel reads the chunks of the shards that come next into its page cache.
            ranges = self._plan.reads(number, plan, is_first=is_first)
            engine.read_ahead(ranges, restart=is_first)
            self.pending.append(self._maker.begin(plan, self._plan, number))
            return

        if is_first:
            reader.restart(self.recipe.ranks.world_size)
        self.pending.append(self._maker.begin(plan, self._plan, number))
        # After the batch has begun, because its own samples have to be fetched first.
        upcoming_samples = self._plan.upcoming(number, is_first=is_first)
        reader.ahead(upcoming_samples)

    def has_ready_batch(self) -> bool:
        """Whether the next batch is ready in host memory. Also keeps the threads busy."""
        self.fill(self.capacity)
        if not self.pending:
            return False
        batch = self.pending[0]
        return batch.wait(0) and batch.done

    def stage_ready(self, count: int) -> None:
        """Queues batches on the device until `count` are, as far as they are ready; never waits."""
        while len(self._staged) < count and self._next_to_stage < self._end:
            try:
                if not self.has_ready_batch():
                    return
                self._stage_next()
            except Exception as problem:
                self._end = self._next_to_stage
                self.failure = problem

    def take(self, lookahead: int) -> StagedBatch:
        """Waits for the next batch; queues up to `lookahead` batches behind it on the device."""
        if not self._staged:
            self._stage_next()
        self.stage_ready(lookahead + 1)
        self.num_taken += 1
        previous_ids = self.last_ids[-1:]
        self.last_ids = self._ids_staged.popleft()
        # Of shuffled samples the first batch tells it.
        if not self._names_samples and not self.has_unmarked_order:
            ids = np.concatenate([previous_ids, self.last_ids])
            self.has_unmarked_order = bool((ids[1:] < ids[:-1]).any())
        return self._staged.popleft()

    def _stage_next(self) -> None:
        """Waits for the first pending batch and queues it on the device."""
        if self.failure is not None and self._next_to_stage == self._end:
            self._raise_failure(self.failure)
        # It stays pending while this waits: after an interrupt it is cancelled with the others.
        host_batch = self._maker.end(self.pending[0])
        self.pending.popleft()
        fields = host_batch.fields
        if fields is None or "valid" not in fields.names.values():
            self.num_unmarked_repeats += int((~host_batch.plan.valid).sum())
        self._names_samples = fields is not None and not _NAMING_FIELDS.isdisjoint(
            fields.names.values()
        )
        self._staged.append(self._transfer.begin(host_batch))
        self._ids_staged.append(host_batch.plan.ids)
        self._next_to_stage += 1

    def _raise_failure(self, failure: Exception) -> None:
        if not isinstance(failure, MemoryError):
            raise failure
        raise EngineError(
            f"not enough memory for batch {self._next_to_stage} of epoch {self._plan.epoch}: "
            f"{failure}. Pass a smaller batch_size, size or prefetch_factor, keep fewer batches, "
            "or raise the memory limit (ulimit -v, or the container's limit)"
        ) from failure

    def cancel(self) -> None:
        """Cancels everything that has not begun; nothing can be taken afterwards."""
        self._end = self._next_to_stage
        # Its traceback refers to this object, so neither would be freed.
        self.failure = None
        self._staged.clear()
        self._ids_staged.clear()
        while self.pending:
            self.pending.popleft().cancel()
