"""The plan of an epoch -> its batches: made in advance in host memory by the engine, queued on the device, in order."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostBatch, HostFields
from fastpipe.engine.engine import Engine, Job, lacks_memory
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.errors import EngineError
from fastpipe.format.index import Index
from fastpipe.loading.state import Position
from fastpipe.plan.batch import BatchPlan, rows_of
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

if TYPE_CHECKING:  # a contact sheet needs no torch, most programs load no fields and read what lies here
    from fastpipe.device.transfer import StagedBatch, Transfer
    from fastpipe.engine.fetched_job import FetchedJob
    from fastpipe.loading.fields import FieldReader
    from fastpipe.loading.prepare import Prepare

_REPLACE_ATTEMPTS = 16


class Work(NamedTuple):
    """A batch that is being made. Dropping it takes back what has not begun.

    Attributes:
        of: its epoch.
        number: of the batch in it.
        plan: of the batch, or of the samples that replace some of it.
        images: by view.
        beside: the memory of masks and second pictures, by field.
        jobs: of the rows of the images, and of those beside them.
        prepared: what prepare= makes of it, None: nothing.
    """

    of: EpochPlan
    number: int
    plan: BatchPlan
    images: Sequence[NDArray[np.uint8]]
    beside: dict[str, NDArray[Any]]
    jobs: list[Job | FetchedJob]
    prepared: Future[HostFields] | None = None

    def wait(self, timeout_s: float) -> bool:
        """True when every row is done; False after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        return all(job.wait(max(deadline - time.monotonic(), 0.0)) for job in self.jobs)

    @property
    def done(self) -> bool:
        """Whether nothing is to be waited for. Any thread may ask: it changes nothing."""
        return all(job.done for job in self.jobs) and (self.prepared is None or self.prepared.done())

    def cancel(self) -> None:
        """Takes back what has not begun, and waits for what has; see Job."""
        for job in self.jobs:
            job.cancel()
        if self.prepared is not None:
            self.prepared.cancel()

    def errors(self) -> list[tuple[int, str]]:
        """(position in the plan, reason) of each sample of which something failed, in the order of the plan."""
        found: dict[int, str] = {}
        for job in self.jobs:
            for row, reason in job.errors():
                found.setdefault(row // self.plan.rows_per_sample, reason)
        return sorted(found.items())


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes batches in host memory. A loader has one.

    Attributes:
        views: of each view, its slots, and whether it is exact: never decoded at reduced size.
        ahead: batches that an epoch keeps in the works besides the one that is taken.
        fields: reads what else samples carry; None: batches are (images, labels).
        prepare: what a user makes of these ahead; None: nothing.
        epochs: those under way.
    """

    index: Index
    engine: Engine
    views: Sequence[tuple[SlotRing, bool]]
    stats: Stats
    watchdog: Watchdog
    ahead: int = 0
    replace_bad: bool = False
    fields: FieldReader | None = None
    prepare: Prepare | None = None
    epochs: list[weakref.ref[Epoch]] = field(default_factory=list)

    def begin(self, plan: BatchPlan, of: EpochPlan, number: int) -> Work:
        """Puts a batch in the works."""
        images = [
            ring.take((len(view.flips), *view.crops.size, 3))
            for (ring, _), view in zip(self.views, plan.views, strict=True)
        ]
        beside = {} if self.fields is None else self.fields.slots(plan)
        work = Work(of, number, plan, images, beside, self._jobs(plan, images, beside))
        if self.fields is None or self.prepare is None:
            return work
        return work._replace(prepared=self.prepare.begin(self.fields.read, plan, of.epoch, number))

    def end(self, work: Work) -> HostBatch:
        """Waits for a batch; bad samples are replaced, or the first of them is raised."""
        self._wait(work.wait, self.watchdog.look)
        shown, errors = work.plan, work.errors()
        if errors:
            self.engine.check_usable()  # rows that a close in another thread took back are no bad samples
            shown = self._replaced(work, errors)
        self.engine.intact.check(end=work.number + 1 == len(work.of))
        fields = self._read(work, shown)
        if fields is not None:
            fields.arrays.update(work.beside)
        return HostBatch(
            work.number,
            work.of.epoch,
            work.plan,
            tuple(work.images),
            shown.labels,
            shown.samples,
            fields,
            image_sizes=shown.crops.shown,
        )

    def _jobs(
        self,
        plan: BatchPlan,
        images: Sequence[NDArray[np.uint8]],
        beside: dict[str, NDArray[Any]],
        rows: NDArray[np.int64] | None = None,
    ) -> list[Job | FetchedJob]:
        """The pictures of a plan, and what is cropped beside them. `rows`: the samples' places; None: in order."""
        places = None if rows is None else rows_of(rows, plan.rows_per_sample)
        exacts = [exact for _, exact in self.views]
        jobs = [self.engine.submit(plan.by_row(), *zip(images, exacts, strict=True), rows=places)]
        if self.fields is not None:
            jobs += self.fields.begin(self.engine, plan, beside, exacts, places)
        return jobs

    def _read(self, work: Work, shown: BatchPlan) -> HostFields | None:
        """What a batch has besides images, of the samples that are there."""
        if self.fields is None or self.prepare is None:
            return None if self.fields is None else self.fields.read(shown)
        prepared = work.prepared
        if prepared is None or shown is not work.plan:  # other samples have taken the place of bad ones
            return self.prepare.now(self.fields.read, shown, work.of.epoch, work.number)
        stuck = f"prepare= has not returned for batch {work.number} of epoch {work.of.epoch}"
        self.stats.prepare_wait_s += self._wait(
            lambda timeout_s: bool(wait([prepared], timeout_s).done),
            lambda waited_s: self.watchdog.look_outside(waited_s, stuck),
        )
        self.engine.check_usable()  # a close in another thread takes it back
        return prepared.result()

    def _wait(self, ended: Callable[[float], bool], look: Callable[[float], None]) -> float:
        """Waits until `ended`, which takes a timeout, says so; looks now and then. The seconds that it took."""
        started = time.perf_counter()
        self.watchdog.begin()
        while not ended(self.watchdog.patience_s(time.perf_counter() - started)):
            self.engine.check_usable()
            look(time.perf_counter() - started)
        waited_s = time.perf_counter() - started
        self.stats.wait_s += waited_s
        return waited_s

    def _replaced(self, work: Work, errors: list[tuple[int, str]]) -> BatchPlan:
        """Raises for the first bad row, or fills all bad rows with other samples; the plan of what is there then."""
        self._check_memory(work.plan, errors)
        first_row, reason = errors[0]
        rows = np.array([row for row, _ in errors], dtype=np.int64)
        wanted, shown = len(rows), work.plan
        attempts = _REPLACE_ATTEMPTS if self.replace_bad and work.of.alternatives else 0
        if attempts:
            self.engine.intact.begin()  # a damaged index or column is no fault of samples
        for attempt in range(attempts):
            others = work.of.others(work.plan, rows, attempt)
            again = work._replace(plan=others, jobs=self._jobs(others, work.images, work.beside, rows))
            self._wait(again.wait, self.watchdog.look)
            self.engine.check_usable()
            shown = shown.replaced(rows, others)
            errors = again.errors()
            self._check_memory(others, errors)
            rows = rows[[row for row, _ in errors]]
            if not len(rows):
                self.stats.replaced += wanted
                return shown
        if attempts:
            reason += f" (and {attempts} other samples that could replace it failed too)"
        elif self.replace_bad:
            reason += " (and there is no other sample that could replace it)"
        raise self.index.sample_error(int(work.plan.samples[first_row]), reason, replace=self.replace_bad)

    def _check_memory(self, plan: BatchPlan, errors: list[tuple[int, str]]) -> None:
        """A lack of memory is no fault of a sample: to replace it would make batches depend on the moment."""
        for row, reason in errors:
            if lacks_memory(reason):
                shard, key, offset = self.index.where(int(plan.samples[row]))
                raise EngineError(
                    f"{reason} (sample {plan.samples[row]}, key {key}, at byte {offset} of {shard}). Pass a smaller "
                    "num_workers, or raise the memory limit (ulimit -v, or the container's limit)"
                )


class Epoch:
    """One pass over an epoch, or the rest of one from `start` on: what was before is neither planned nor decoded.

    A failure of a batch ahead is raised when that batch is taken.

    Attributes:
        recipe: of the epoch.
        position: where the loop stands in it. Whoever hands out batches counts them there.
    """

    def __init__(self, maker: Maker, transfer: Transfer, recipe: Recipe, start: Position) -> None:
        self._maker = maker
        self._transfer = transfer
        self.recipe = recipe
        self.position = replace(start)
        self._plan = EpochPlan(maker.index, recipe, start.epoch)
        self._first = self._submitted = self._taken = start.batches  # up to these batches
        self._end = len(self._plan)
        self._failure: Exception | None = None  # why there is no batch from the end on
        self._works: deque[Work] = deque()
        self._staged: deque[StagedBatch] = deque()
        maker.epochs[:] = [each for each in maker.epochs if each() is not None] + [weakref.ref(self)]

    def __len__(self) -> int:
        """Batches that `take` has not given yet."""
        return len(self._plan) - self._taken + len(self._staged)

    @property
    def failed(self) -> bool:
        """Whether a batch to be taken later could not be made or queued."""
        return self._failure is not None

    @property
    def made(self) -> list[bool]:
        """Of each batch in the works, whether it is made. Any thread may ask: it changes nothing."""
        return [work.done for work in list(self._works)]

    def fill(self, batches: int) -> int:
        """Puts batches in the works until there are so many; returns how many more there is room for after the last."""
        while len(self._works) < batches and self._submitted < self._end:
            started = time.perf_counter()
            try:
                self._submit()
            except Exception as problem:
                self._end, self._failure = self._submitted, problem
            self._maker.stats.plan_s += time.perf_counter() - started
        return 0 if self.failed else batches - len(self._works)

    @property
    def ready(self) -> bool:
        """Whether the next batch is made, so that nothing waits for it. Keeps the threads at work."""
        self.fill(self._maker.ahead + 1)
        return bool(self._works) and self._works[0].wait(0) and self._works[0].done

    def stage(self, batches: int) -> None:
        """Queues batches on the device until there are so many, as far as they are made: never waits for one."""
        while len(self._staged) < batches and self._taken < self._end:
            try:
                if not self.ready:
                    return
                self._stage()
            except Exception as problem:
                self._end, self._failure = self._taken, problem

    def take(self, ahead: int) -> StagedBatch:
        """Waits for the next batch, and queues up to `ahead` batches after it."""
        if not self._staged:
            self._stage()
        self.stage(ahead + 1)
        return self._staged.popleft()

    def cancel(self) -> None:
        """Takes back what has not begun; nothing can be taken afterwards."""
        self._staged.clear()
        while self._works:
            self._works.popleft().cancel()

    def _stage(self) -> None:
        self.fill(self._maker.ahead + 1)
        if self._failure is not None and self._taken == self._end:
            if isinstance(self._failure, MemoryError):
                raise EngineError(
                    f"not enough memory for batch {self._taken} of epoch {self._plan.epoch}: {self._failure}. Pass a "
                    "smaller batch_size, size or prefetch_factor, keep fewer batches, or raise the memory limit "
                    "(ulimit -v, or the container's limit)"
                ) from self._failure
            raise self._failure
        made = self._maker.end(self._works[0])
        self._works.popleft()
        self._taken += 1
        self._staged.append(self._transfer.begin(made))

    def _submit(self) -> None:
        """Puts the next batch in the works."""
        maker, number = self._maker, self._submitted
        plan, first = self._plan.batch(number), number == self._first
        if not maker.engine.fetches:
            maker.engine.read_ahead(self._plan.reads(number, plan, first=first), restart=first)
        elif first:
            maker.engine.restart_fetching(self._plan.world_size)
        self._works.append(maker.begin(plan, self._plan, number))
        if maker.engine.fetches:  # after the batch, whose own samples come first
            maker.engine.fetch_ahead(self._plan.upcoming(number, first=first))
        self._submitted += 1
