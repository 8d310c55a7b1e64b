"""The plan of an epoch -> its batches in host memory, made in advance by the engine, in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostBatch, HostFields
from fastpipe.engine.engine import Engine, lacks_memory
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.errors import EngineError
from fastpipe.format.index import Index
from fastpipe.loading.row_jobs import RowJobs
from fastpipe.plan.batch import BatchPlan, rows_of
from fastpipe.plan.epoch import EpochPlan

if TYPE_CHECKING:  # most programs load no fields
    from fastpipe.loading.fields import FieldReader
    from fastpipe.loading.prepare import Prepare

_REPLACE_ATTEMPTS = 16

_Views = list[NDArray[np.uint8]]  # the images of a batch, by view


class _Work(NamedTuple):
    """A batch that is being made."""

    plan: BatchPlan
    images: _Views
    beside: dict[str, NDArray[Any]]
    job: RowJobs
    prepared: Future[HostFields] | None

    @property
    def done(self) -> bool:
        """Whether nothing is to be waited for."""
        return self.job.done and (self.prepared is None or self.prepared.done())


class EpochWorks:
    """One pass over an epoch, or the rest of one: keeps `ahead` batches in the works and gives them out in order.

    Args:
        views: of each view, its slots, and whether it is exact: never decoded at reduced size.
        first: the batch to begin with; those before it are neither planned nor decoded.
        batch_rows: of a whole batch.
        fields: reads what else samples carry; None: batches are (images, labels).
        prepare: what a user makes of these ahead; None: nothing.
    """

    def __init__(
        self,
        index: Index,
        plan: EpochPlan,
        engine: Engine,
        views: Sequence[tuple[SlotRing, bool]],
        stats: Stats,
        *,
        first: int,
        batch_rows: int,
        ahead: int,
        replace_bad: bool,
        watchdog: Watchdog,
        fields: FieldReader | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        self._index = index
        self._plan = plan
        self._engine = engine
        self._views = views
        self._stats = stats
        self._ahead = ahead
        self._replace_bad = replace_bad
        self._watchdog = watchdog
        self._fields = fields
        self._prepare = prepare
        self._first = first
        self._batch_rows = batch_rows
        self._submitted = self._taken = first  # up to these batches
        self._works: deque[_Work] = deque()
        self._follow: Callable[[int], None] | None = None

    def __len__(self) -> int:
        """Batches not taken yet."""
        return len(self._plan) - self._taken

    def begin(self, batches: int) -> None:
        """Puts the first batches in the works, as far as they fit and have not been."""
        self._submit_up_to(min(batches, self._ahead))

    def follow_with(self, begin: Callable[[int], None]) -> None:
        """Once all of this epoch is in the works, calls `begin` with the number of batches that there is room for."""
        self._follow = begin

    def check_usable(self) -> None:
        """Raises EngineError if the engine is closed or belongs to the parent process."""
        self._engine.check_usable()

    def cancel(self) -> None:
        """Takes back what has not begun; nothing can be taken afterwards."""
        while self._works:
            work = self._works.popleft()
            work.job.cancel()
            if work.prepared is not None:
                work.prepared.cancel()

    @property
    def ready(self) -> bool:
        """Whether the next batch is made, so that `take` does not wait. Keeps the threads at work."""
        self.check_usable()
        self._submit_up_to(self._ahead + 1)
        return bool(self._works) and self._works[0].job.wait(0) and self._works[0].done

    @property
    def made(self) -> list[bool]:
        """Of each batch in the works, whether it is made. Any thread may ask: it changes nothing."""
        return [work.done for work in list(self._works)]

    def take(self) -> HostBatch:
        """Waits for the next batch; keeps the threads at those after it."""
        self.check_usable()
        self._submit_up_to(self._ahead + 1)
        plan, images, beside, job, prepared = self._works[0]
        room = self._ahead + 1 - len(self._works)
        if room > 0 and self._follow is not None:
            self._follow(room)
        self._wait(job.wait, self._watchdog.look)
        shown = plan
        errors = job.errors()
        if errors:
            self._engine.check_usable()  # rows that a close in another thread took back are no bad samples
            shown = self._handle(plan, images, beside, errors)
        self._engine.intact.check(end=self._taken + 1 == len(self._plan))
        fields = self._read(shown, prepared if shown is plan else None)
        if fields is not None:
            fields.arrays.update(beside)
        self._works.popleft()
        self._taken += 1
        return HostBatch(
            self._taken - 1,
            self._plan.epoch,
            plan,
            tuple(images),
            shown.labels,
            shown.samples,
            fields,
            image_sizes=shown.crops.shown,
        )

    def _read(self, rows: BatchPlan, prepared: Future[HostFields] | None) -> HostFields | None:
        """What the batch to be taken has besides images."""
        if self._fields is None or self._prepare is None:
            return None if self._fields is None else self._fields.read(rows)
        if prepared is None:  # other samples have taken the place of bad ones
            return self._prepare.now(self._fields.read, rows, self._plan.epoch, self._taken)
        stuck = f"prepare= has not returned for batch {self._taken} of epoch {self._plan.epoch}"
        self._stats.prepare_wait_s += self._wait(
            lambda timeout_s: bool(wait([prepared], timeout_s).done),
            lambda waited_s: self._watchdog.look_outside(waited_s, stuck),
        )
        self._engine.check_usable()  # a close in another thread takes it back
        return prepared.result()

    def _submit_up_to(self, count: int) -> None:
        while len(self._works) < count and self._submitted < len(self._plan):
            started = time.perf_counter()
            try:
                self._submit()
            except MemoryError as problem:
                raise EngineError(
                    f"not enough memory for batch {self._submitted} of epoch {self._plan.epoch}: {problem}. Pass a "
                    "smaller batch_size, size or prefetch_factor, keep fewer batches, or raise the memory limit "
                    "(ulimit -v, or the container's limit)"
                ) from problem
            self._stats.plan_s += time.perf_counter() - started

    def _submit(self) -> None:
        """Puts the next batch in the works."""
        plan = self._plan.batch(self._submitted)
        first = self._submitted == self._first
        if not self._engine.fetches:
            self._engine.read_ahead(self._plan.reads(self._submitted, plan, first=first), restart=first)
        elif first:
            self._engine.restart_fetching(self._plan.world_size)
        images = [
            ring.take((self._batch_rows, *view.crops.size, 3))
            for (ring, _), view in zip(self._views, plan.views, strict=True)
        ]
        beside = {} if self._fields is None else self._fields.slots(len(plan), plan.crops.size)
        job, prepared = self._begin(plan, images, beside), None
        if self._fields is not None and self._prepare is not None:
            prepared = self._prepare.begin(self._fields.read, plan, self._plan.epoch, self._submitted)
        self._works.append(_Work(plan, images, beside, job, prepared))
        if self._engine.fetches:  # after the batch, whose own samples come first
            self._engine.fetch_ahead(self._plan.upcoming(self._submitted, first=first))
        self._submitted += 1

    def _begin(
        self,
        plan: BatchPlan,
        images: _Views,
        beside: dict[str, NDArray[Any]],
        rows: NDArray[np.int64] | None = None,
    ) -> RowJobs:
        """The pictures of a plan, and what is cropped beside them."""
        records = {name: self._fields.stored(name, plan.samples) for name in beside} if self._fields else {}
        places = None if rows is None else rows_of(rows, plan.rows_per_sample)
        exacts = [exact for _, exact in self._views]
        jobs = [self._engine.submit(plan.by_row(), *zip(images, exacts, strict=True), rows=places)]
        for name, out in beside.items():
            jobs.append(self._engine.submit_field(plan, records[name], out, exact=exacts[0], rows=rows))
        return RowJobs(jobs, plan.rows_per_sample)

    def _wait(self, ended: Callable[[float], bool], look: Callable[[float], None]) -> float:
        """Waits until `ended`, which takes a timeout, says so; looks now and then. The seconds that it took."""
        started = time.perf_counter()
        self._watchdog.begin()
        while not ended(self._watchdog.patience_s(time.perf_counter() - started)):
            self._engine.check_usable()
            look(time.perf_counter() - started)
        waited_s = time.perf_counter() - started
        self._stats.wait_s += waited_s
        return waited_s

    def _handle(
        self,
        plan: BatchPlan,
        images: _Views,
        beside: dict[str, NDArray[Any]],
        errors: list[tuple[int, str]],
    ) -> BatchPlan:
        """Raises for the first bad row, or fills all bad rows with other samples; the plan of what is there then."""
        self._check_memory(plan, errors)
        first_row, reason = errors[0]
        rows = np.array([row for row, _ in errors], dtype=np.int64)
        wanted = len(rows)
        shown = plan
        attempts = _REPLACE_ATTEMPTS if self._replace_bad and self._plan.alternatives else 0
        if attempts:
            self._engine.intact.begin()  # a damaged index or column is no fault of samples
        for attempt in range(attempts):
            others = self._plan.others(plan, rows, attempt)
            job = self._begin(others, images, beside, rows)
            self._wait(job.wait, self._watchdog.look)
            self._engine.check_usable()
            shown = shown.replaced(rows, others)
            errors = job.errors()
            self._check_memory(others, errors)
            rows = rows[[row for row, _ in errors]]
            if not len(rows):
                self._stats.replaced += wanted
                return shown
        if attempts:
            reason += f" (and {attempts} other samples that could replace it failed too)"
        elif self._replace_bad:
            reason += " (and there is no other sample that could replace it)"
        raise self._index.sample_error(int(plan.samples[first_row]), reason, replace=self._replace_bad)

    def _check_memory(self, plan: BatchPlan, errors: list[tuple[int, str]]) -> None:
        """A lack of memory is no fault of a sample: to replace it would make batches depend on the moment."""
        for row, reason in errors:
            if lacks_memory(reason):
                shard, key, offset = self._index.where(int(plan.samples[row]))
                raise EngineError(
                    f"{reason} (sample {plan.samples[row]}, key {key}, at byte {offset} of {shard}). Pass a smaller "
                    "num_workers, or raise the memory limit (ulimit -v, or the container's limit)"
                )
