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

from fastpipe.engine.engine import Engine, lacks_memory
from fastpipe.engine.jobs import FetchedJob, Job, Reason
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.errors import EngineError
from fastpipe.format.index import Index
from fastpipe.format.pixel_form import PixelForm
from fastpipe.loading.state import Position
from fastpipe.plan.batch import BatchPlan, rows_of
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.host_batch import HostBatch, HostFields
from fastpipe.plan.recipe import Recipe

if TYPE_CHECKING:  # a contact sheet needs no torch, most programs load no fields and read what lies here
    from fastpipe.device.transfer import StagedBatch, Transfer
    from fastpipe.loading.prepare import Prepare
    from fastpipe.samples.fields import FieldReader

_REPLACE_ATTEMPTS = 16


class Work(NamedTuple):
    """A batch that is being made. Dropping it takes back what has not begun."""

    of: EpochPlan
    number: int
    plan: BatchPlan
    views: Sequence[tuple[NDArray[Any], bool]]  # of each, where its images go, and whether it is exact
    beside: dict[str, NDArray[Any]]  # where masks and second pictures go, by field
    jobs: Sequence[Job | FetchedJob] = ()
    prepared: Future[HostFields] | None = None  # what prepare= makes of it

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

    def errors(self) -> list[tuple[int, Reason]]:
        """(position in the plan, reason) of each sample of which something failed, in the order of the plan."""
        found: dict[int, Reason] = {}
        for job in self.jobs:
            for row, reason in job.errors():
                found.setdefault(row // self.plan.rows_per_sample, reason)
        return sorted(found.items())


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes the batches of a loader in host memory."""

    index: Index
    engine: Engine
    views: Sequence[tuple[SlotRing, bool]]  # of each, its slots, and whether it is exact: never decoded at reduced size
    stats: Stats
    watchdog: Watchdog
    form: PixelForm  # of images; the slots have its dtype
    ahead: int = 0  # batches that an epoch keeps in the works besides the one that is taken
    replace_bad: bool = False
    fields: FieldReader | None = None  # None: batches are (images, labels)
    prepare: Prepare | None = None
    epochs: list[weakref.ref[Epoch]] = field(default_factory=list)  # those under way

    def begin(self, plan: BatchPlan, of: EpochPlan, number: int) -> Work:
        of_views = zip(self.views, plan.views, strict=True)
        channels = self.form.channels
        views = [(ring.take((len(view.flips), *view.crops.size, channels)), exact) for (ring, exact), view in of_views]
        beside = {} if self.fields is None else self.fields.slots(plan)
        return self._prepared(self._begun(Work(of, number, plan, views, beside)))

    def end(self, work: Work) -> HostBatch:
        """Waits for a batch; bad samples are replaced, or the first of them is raised."""
        shown = self._mended(work)
        self.engine.intact.check(end=work.number + 1 == len(work.of))
        fields = self._read(shown)
        if fields is not None:
            fields.arrays.update(work.beside)
        images = tuple(each for each, _ in work.views)
        return HostBatch(work.number, work.of.epoch, work.plan, shown.plan, images, fields)

    def _begun(self, work: Work, rows: NDArray[np.int64] | None = None) -> Work:
        """With jobs for its pictures and for what is beside them, at the places `rows` of the batch; None: in order."""
        plan, exacts = work.plan, [exact for _, exact in work.views]
        places = None if rows is None else rows_of(rows, plan.rows_per_sample)
        jobs = [self.engine.submit(plan.by_row(), *work.views, rows=places)]
        if self.fields is not None:
            jobs += self.fields.begin(self.engine, plan, work.beside, exacts, places)
        return work._replace(jobs=jobs)

    def _prepared(self, work: Work) -> Work:
        if self.prepare is None:
            return work
        return work._replace(prepared=self.prepare.begin(work.plan, work.of.epoch, work.number))

    def _mended(self, work: Work) -> Work:
        """Waits for its rows. With other samples in the place of bad ones, or raises for the first of them."""
        errors = self._errors(work)
        if not errors:
            return work
        bad, plan = np.array([row for row, _ in errors], dtype=np.int64), work.plan
        attempts = _REPLACE_ATTEMPTS if self.replace_bad and len(work.of.recipe.content) > 1 else 0
        if attempts:
            self.engine.intact.begin()  # a damaged index or column is no fault of samples
        for attempt in range(attempts):
            others = work.of.others(work.plan, bad, attempt)
            still = self._errors(self._begun(work._replace(plan=others), bad))
            plan = plan.replaced(bad, others)
            bad = bad[[row for row, _ in still]]
            if not still:
                self.stats.replaced += len(errors)
                return self._prepared(work._replace(plan=plan))
        row, why = errors[0]
        more = ""
        if attempts:
            more = f" (and {attempts} other samples that could replace it failed too)"
        elif self.replace_bad:
            more = " (and there is no other sample that could replace it)"
        raise self.index.sample_error(int(work.plan.samples[row]), why, more, replace=self.replace_bad)

    def _errors(self, work: Work) -> list[tuple[int, Reason]]:
        """Waits for its rows; the bad samples, as `Work.errors`."""
        self._wait(work.wait)
        errors = work.errors()
        if errors:
            self.engine.check_usable()  # rows that a close in another thread took back are no bad samples
        for row, reason in errors:
            if lacks_memory(reason):  # to replace the sample would make batches depend on the moment
                shard, key, offset = self.index.where(int(work.plan.samples[row]))
                raise EngineError(
                    f"{reason} (sample {work.plan.samples[row]}, key {key}, at byte {offset} of {shard}). Pass a "
                    "smaller num_workers, or raise the memory limit (ulimit -v, or the container's limit)"
                )
        return errors

    def _read(self, work: Work) -> HostFields | None:
        """What a batch has besides images."""
        if (prepared := work.prepared) is None:
            return None if self.fields is None else self.fields.read(work.plan)
        stuck = f"prepare= has not returned for batch {work.number} of epoch {work.of.epoch}"
        self.stats.prepare_wait_s += self._wait(lambda timeout_s: bool(wait([prepared], timeout_s).done), stuck)
        self.engine.check_usable()  # a close in another thread takes it back
        return prepared.result()

    def _wait(self, ended: Callable[[float], bool], stuck: str = "") -> float:
        waited_s = self.watchdog.wait(ended, stuck, self.engine.check_usable)
        self.stats.wait_s += waited_s
        return waited_s


class Epoch:
    """An epoch from `start` on: what was before is neither planned nor decoded. A failure is raised in its turn."""

    def __init__(self, maker: Maker, transfer: Transfer, recipe: Recipe, start: Position) -> None:
        self._maker, self._transfer, self.recipe = maker, transfer, recipe
        self.position = replace(start)  # where the loop stands. Whoever hands out batches counts them there
        self._plan = EpochPlan(recipe, start.epoch)
        self._first = self._taken = start.batches  # up to these batches
        self._end = len(self._plan)
        self.failure: Exception | None = None  # of a batch ahead, behind which none is made
        self.works: deque[Work] = deque()  # in host memory, made or being made
        self._staged: deque[StagedBatch] = deque()
        maker.epochs[:] = [each for each in maker.epochs if each() is not None] + [weakref.ref(self)]

    def __len__(self) -> int:
        """Batches that `take` has not given yet."""
        return len(self._plan) - self._taken + len(self._staged)

    def fill(self, batches: int) -> int:
        """Puts batches in the works until there are so many; returns how many of the next epoch there is room for."""
        while len(self.works) < batches and (number := self._taken + len(self.works)) < self._end:
            started = time.perf_counter()
            try:
                self._submit(number)
            except Exception as problem:
                self._end, self.failure = number, problem
            self._maker.stats.plan_s += time.perf_counter() - started
        return 0 if self.failure else batches - len(self.works)

    @property
    def ready(self) -> bool:
        """Whether the next batch is made, so that nothing waits for it. Keeps the threads at work."""
        self.fill(self._maker.ahead + 1)
        return bool(self.works) and self.works[0].wait(0) and self.works[0].done

    def stage(self, batches: int) -> None:
        """Queues batches on the device until there are so many, as far as they are made: never waits for one."""
        while len(self._staged) < batches and self._taken < self._end:
            try:
                if not self.ready:
                    return
                self._stage()
            except Exception as problem:
                self._end, self.failure = self._taken, problem

    def take(self, ahead: int) -> StagedBatch:
        """Waits for the next batch, which is in the works, and queues up to `ahead` batches after it."""
        if not self._staged:
            self._stage()
        self.stage(ahead + 1)
        return self._staged.popleft()

    def cancel(self) -> None:
        """Takes back what has not begun; nothing can be taken afterwards."""
        self._end, self.failure = self._taken, None  # its traceback knows the epoch
        self._staged.clear()
        while self.works:
            self.works.popleft().cancel()

    def _stage(self) -> None:
        if self.failure is not None and self._taken == self._end:
            if isinstance(self.failure, MemoryError):
                raise EngineError(
                    f"not enough memory for batch {self._taken} of epoch {self._plan.epoch}: {self.failure}. Pass a "
                    "smaller batch_size, size or prefetch_factor, keep fewer batches, or raise the memory limit "
                    "(ulimit -v, or the container's limit)"
                ) from self.failure
            raise self.failure
        made = self._maker.end(self.works[0])
        self.works.popleft()
        self._staged.append(self._transfer.begin(made))
        self._taken += 1

    def _submit(self, number: int) -> None:
        maker, plan, first = self._maker, self._plan.batch(number), number == self._first
        reader = maker.engine.reader
        if reader is None:
            maker.engine.read_ahead(self._plan.reads(number, plan, first=first), restart=first)
        elif first:
            reader.restart(self.recipe.ranks.world_size)
        self.works.append(maker.begin(plan, self._plan, number))
        if reader is not None:  # after the batch, whose own samples come first
            reader.ahead(self._plan.upcoming(number, first=first))
