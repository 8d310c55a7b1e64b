"""The plan of a batch -> the batch in host memory, made by the engine's threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.engine.engine import Engine, lacks_memory
from fastpipe.engine.jobs import FetchedJob, Job, Reason
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.errors import EngineError
from fastpipe.plan.arrays import ArrayBatch
from fastpipe.plan.batch import BatchPlan, rows_of
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.host_batch import HostBatch, HostFields
from fastpipe.plan.picture_lists import PictureListBatch

if TYPE_CHECKING:  # most programs load no fields
    from fastpipe.dataset.fields import FieldReader
    from fastpipe.loading.prepare import Prepare

_REPLACE_ATTEMPTS = 16


# A job, and the sample of each of its rows, a position in the plan.
SampleJob = tuple[Job | FetchedJob, Int64s]


@dataclass(eq=False)
class PendingBatch:
    """A batch that the engine is making. Dropping it cancels the rows that have not begun."""

    epoch_plan: EpochPlan
    number: int  # in the epoch
    plan: BatchPlan
    # For each view the slot that its rows go to, and whether it is decoded at full size. Empty if
    # batches have no images.
    views: Sequence[tuple[NDArray[Any], bool]]
    # Memory of masks and second pictures, by entry.
    field_images: dict[str, NDArray[Any]]
    jobs: Sequence[SampleJob] = ()  # of images, masks and second pictures
    # The fields of arrays and of lists of pictures, by name.
    arrays: Mapping[str, ArrayBatch] = field(default_factory=dict)
    picture_lists: Mapping[str, PictureListBatch] = field(default_factory=dict)
    field_jobs: Sequence[SampleJob] = ()  # that make these
    prepared: Future[HostFields] | None = None  # the result of prepare=

    def wait(self, timeout_s: float) -> bool:
        """True when every row is done; False after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        for job in self._all_jobs:
            seconds_left = max(deadline - time.monotonic(), 0.0)
            if not job.wait(seconds_left):
                return False
        return True

    @property
    def _all_jobs(self) -> list[Job | FetchedJob]:
        return [job for job, _ in (*self.jobs, *self.field_jobs)]

    @property
    def done(self) -> bool:
        """Whether the batch is ready. Changes nothing, so any thread may read it."""
        if self.prepared is not None and not self.prepared.done():
            return False
        return all(job.done for job in self._all_jobs)

    def cancel(self) -> None:
        """Cancels the rows that have not begun, and waits for the others; see Job."""
        for job in self._all_jobs:
            job.cancel()
        if self.prepared is not None:
            self.prepared.cancel()

    def errors(self) -> list[tuple[int, Reason]]:
        """(position in the plan, reason) of each sample that failed, in the order of the plan."""
        reasons: dict[int, Reason] = {}  # the first one of each sample counts
        for job, samples in (*self.jobs, *self.field_jobs):
            for row, reason in job.errors():
                position = int(samples[row])
                reasons.setdefault(position, reason)
        return sorted(reasons.items())


@dataclass(frozen=True, eq=False)
class BatchMaker:
    """Makes batches in host memory. A loader has one, for all epochs."""

    index: Index
    engine: Engine
    # For each view its ring of slots, and whether it is decoded at full size.
    views: Sequence[tuple[SlotRing, bool]]
    stats: Stats
    watchdog: Watchdog
    form: PixelForm  # of images; the slots have its dtype
    replace_bad: bool = False
    fields: FieldReader | None = None  # None: batches are (images, labels)
    prepare: Prepare | None = None
    # Whether batches have images; else they have fields only.
    with_images: bool = True
    # For each field of arrays the ring of its slots.
    array_rings: Mapping[str, SlotRing] = field(default_factory=dict)

    def begin(
        self, plan: BatchPlan, epoch_plan: EpochPlan, number: int
    ) -> PendingBatch:
        """Has the engine make batch `number` of an epoch; does not wait."""
        pending = self._begin_rows(plan, epoch_plan, number)
        self._begin_prepare(pending)
        return pending

    def _begin_rows(
        self, plan: BatchPlan, epoch_plan: EpochPlan, number: int
    ) -> PendingBatch:
        """Begins what the engine makes of a batch, in memory of its own."""
        views = []
        if self.with_images:
            for (ring, exact), view in zip(self.views, plan.views, strict=True):
                shape = (*view.crops.slot_shape(), self.form.channels)
                views.append((ring.take(shape), exact))
        field_images = {}
        if self.fields is not None:
            field_images = self.fields.slots(plan)
        pending = PendingBatch(epoch_plan, number, plan, views, field_images)
        pending.jobs = self._submit(pending, plan)
        self._begin_arrays(pending)
        return pending

    def end(self, pending: PendingBatch) -> HostBatch:
        """Waits for a batch. Replaces samples that failed, or raises for the first of them."""
        filled = self._wait_for_rows(pending)
        # A thread compares the index and the columns with their hashes; raises if one has changed.
        is_last = pending.number + 1 == len(pending.epoch_plan)
        self.engine.intact.check(end=is_last)

        fields = self._read_fields(filled)
        if fields is not None:
            fields.arrays.update(filled.field_images)
            fields.add_arrays(filled.arrays)
            fields.add_picture_lists(filled.picture_lists)
        images = tuple(slot for slot, _ in filled.views)
        epoch = pending.epoch_plan.epoch
        # The augmentation is drawn by the planned samples, also for rows with other samples.
        return HostBatch(
            pending.number, epoch, pending.plan, filled.plan, images, fields
        )

    def _submit(
        self,
        pending: PendingBatch,
        plan: BatchPlan,
        samples: Int64s | None = None,
    ) -> list[SampleJob]:
        """Starts a job for the images, and one for each kind of mask and second picture.

        `samples`, (m,), are the places in the batch that the plan's samples go to; None: in order.
        """
        jobs: list[SampleJob] = []
        positions = np.arange(len(plan))
        if self.with_images and plan.crops.patches is not None:
            ((images, exact),) = pending.views
            jobs += self.engine.submit_patches(plan, images, exact=exact)
        elif self.with_images:
            job = self.engine.submit(plan, *pending.views, places=samples)
            jobs.append((job, positions))
        if self.fields is not None:
            rows = None if samples is None else rows_of(samples, plan.rows_per_sample)
            exacts = [exact for _, exact in self.views]
            positions_of_rows = np.repeat(positions, plan.rows_per_sample)
            for job in self.fields.begin(
                self.engine, plan, pending.field_images, exacts, rows
            ):
                jobs.append((job, positions_of_rows))
        return jobs

    def _begin_arrays(self, pending: PendingBatch) -> None:
        """Starts jobs for the arrays and the lists of pictures of the batch's samples."""
        if self.fields is None:
            return
        plan = pending.plan
        samples = np.arange(len(plan))
        arrays = {}
        jobs: list[SampleJob] = []
        for name, reader in self.fields.arrays.items():
            ring = self.array_rings[name]
            arrays[name], job = reader.begin(self.engine, plan, ring)
            if job is not None:
                jobs.append((job, samples))
        picture_lists = {}
        exacts = [exact for _, exact in self.views]
        for name, list_reader in self.fields.picture_lists.items():
            picture_lists[name], list_jobs = list_reader.begin(
                self.engine, pending.epoch_plan, plan, self.form, exacts
            )
            jobs += list_jobs
        pending.arrays = arrays
        pending.picture_lists = picture_lists
        pending.field_jobs = jobs

    def _begin_prepare(self, pending: PendingBatch) -> None:
        if self.prepare is not None:
            epoch = pending.epoch_plan.epoch
            pending.prepared = self.prepare.begin(pending.plan, epoch, pending.number)

    def _wait_for_rows(self, pending: PendingBatch) -> PendingBatch:
        """Waits for all rows; returns the batch with the samples that are really in it."""
        errors = self._wait_for_errors(pending)
        if not errors:
            return pending
        has_others = len(pending.epoch_plan.recipe.content) > 1
        if self.replace_bad and has_others:
            replaced = self._replace(pending, errors)
            if replaced is not None:
                return replaced

        place, reason = errors[0]
        details = ""
        if self.replace_bad and has_others:
            details = f" (and {_REPLACE_ATTEMPTS} other samples that could replace it failed too)"
        elif self.replace_bad:
            details = " (and there is no other sample that could replace it)"
        sample = int(pending.plan.samples[place])
        raise self.index.sample_error(sample, reason, details, replace=self.replace_bad)

    def _replace(
        self, pending: PendingBatch, errors: Sequence[tuple[int, Reason]]
    ) -> PendingBatch | None:
        """Puts other samples in the place of bad ones; None: all that were tried are bad, too."""
        # Another dataset in the folder, a damaged index or a damaged column is not the fault of
        # samples.
        self.index.refuse_replaced()
        self.engine.intact.begin()
        plan = pending.plan
        places = [place for place, _ in errors]
        bad = np.array(places, dtype=np.int64)
        for attempt in range(_REPLACE_ATTEMPTS):
            # Drawn from the seed, the row and the attempt, so a resumed run gets the same ones.
            others = pending.epoch_plan.others(pending.plan, bad, attempt)
            trial = self._begin_trial(pending, others, bad)
            still_bad = self._wait_for_errors(trial)
            plan = plan.replaced(bad, others)
            if not still_bad:
                self.stats.replaced += len(errors)
                replaced = self._with_replaced(pending, plan)
                # prepare= got the fields of the bad samples, so it is called again.
                self._begin_prepare(replaced)
                return replaced
            # Positions among the samples that were tried -> positions in the batch.
            bad = bad[[place for place, _ in still_bad]]
        return None

    def _begin_trial(
        self, pending: PendingBatch, others: BatchPlan, places: Int64s
    ) -> PendingBatch:
        """Begins samples that may replace those at these places of a batch, (m,)."""
        if others.has_own_sizes:
            # Rows of other sizes do not fit into the batch's memory.
            return self._begin_rows(others, pending.epoch_plan, pending.number)
        jobs = self._submit(pending, others, places)
        trial = replace(pending, plan=others, jobs=jobs)
        self._begin_arrays(trial)
        return trial

    def _with_replaced(self, pending: PendingBatch, plan: BatchPlan) -> PendingBatch:
        """The batch by a plan, some samples of which replace others; their rows are made.

        Arrays and lists of pictures of these may have other shapes and counts, so all are read
        again. Rows with sizes of their own are all made again.
        """
        if plan.has_own_sizes:
            replaced = self._begin_rows(plan, pending.epoch_plan, pending.number)
        else:
            replaced = replace(pending, plan=plan, jobs=())
            self._begin_arrays(replaced)
        errors = self._wait_for_errors(replaced)
        if errors:
            place, reason = errors[0]
            raise self.index.sample_error(int(plan.samples[place]), reason)
        return replaced

    def _wait_for_errors(self, pending: PendingBatch) -> list[tuple[int, Reason]]:
        """Waits for all rows; returns the samples that failed, as `PendingBatch.errors`."""
        self._wait(pending.wait)
        errors = pending.errors()
        if errors:
            # Rows that were cancelled because another thread closed the loader are not bad samples.
            self.engine.check_usable()
        for place, reason in errors:
            # Replacing the sample would make batches depend on the memory of the moment.
            if lacks_memory(reason):
                sample = int(pending.plan.samples[place])
                shard, _, offset = self.index.where(sample)
                raise EngineError(
                    f"{reason} (sample {sample}, at byte {offset} of {shard}). Pass a smaller "
                    "num_workers, or raise the memory limit (ulimit -v, or the container's limit)"
                )
        return errors

    def _read_fields(self, pending: PendingBatch) -> HostFields | None:
        """Reads what a batch has besides images, or waits for prepare=."""
        prepared = pending.prepared
        if prepared is None:
            if self.fields is None:
                return None
            epoch_plan = pending.epoch_plan
            seed = epoch_plan.recipe.seed
            return self.fields.read(pending.plan, seed=seed, epoch=epoch_plan.epoch)

        def wait_until_done(timeout_s: float) -> bool:
            return bool(wait([prepared], timeout_s).done)

        user_work = (
            f"prepare= has not returned for batch {pending.number} of epoch "
            f"{pending.epoch_plan.epoch}"
        )
        self.stats.prepare_wait_s += self._wait(wait_until_done, user_work)
        self.engine.check_usable()  # another thread's close cancels it
        return prepared.result()

    def _wait(
        self, wait_until_done: Callable[[float], bool], user_work: str = ""
    ) -> float:
        waited_s = self.watchdog.wait(
            wait_until_done, user_work, self.engine.check_usable
        )
        self.stats.wait_s += waited_s
        return waited_s
