"""Batch plans -> pixels in a slot, by the native engine's threads."""

from __future__ import annotations

import atexit
import os
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s, Records
from fastpipe.dataset.format.description import Intact
from fastpipe.dataset.format.fields import NO_IMAGE
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.joined_index import UNKNOWN_TIME
from fastpipe.engine.jobs import ConvertingJob, FetchedJob, Job, Reason
from fastpipe.engine.limits import PATIENCE_S, most_open_shards
from fastpipe.engine.tasks import (
    Pixels,
    Slot,
    Tasks,
    array_tasks,
    field_tasks,
    map_tasks,
    tasks_of,
)
from fastpipe.engine.watchdog import Activity
from fastpipe.errors import EngineError
from fastpipe.machine.binding import unbound
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.maps import MapForm

if TYPE_CHECKING:  # most programs read packed folders
    from fastpipe.engine.conversions import Conversions
    from fastpipe.store.remote.reader import Reader
    from fastpipe.store.remote.wants import Where

_CLOSED = "this loader is closed; create a new loader with fastpipe.loader(...)"


class EngineFacts(NamedTuple):
    """What the engine was built with, and the instructions that it uses on this machine."""

    libjpeg_turbo: str  # version
    resize: str  # kernels: "avx512", "avx2", "neon" or "scalar"
    decode: str  # decoder of common JPEGs: "baseline", our own, or "libjpeg"
    coefficients: str  # kernels for stored coefficients: as of `resize`


def read_engine_facts() -> EngineFacts:
    """Reads what the engine was built with and which instructions this machine has for it."""
    number = int(_engine.LIBJPEG_TURBO_VERSION)  # 2001005 is 2.1.5
    major, rest = divmod(number, 1_000_000)
    minor, patch = divmod(rest, 1000)
    version = f"{major}.{minor}.{patch}"
    decode = "baseline" if "baseline" in _engine.decode_methods() else "libjpeg"
    # The best kernels of this machine are the last ones.
    resize = _engine.resize_kernels()[-1]
    coefficients = _engine.block_kernels()[-1]
    return EngineFacts(version, resize, decode, coefficients)


def extension_file() -> str:
    """Path of the compiled extension."""
    return _engine.__file__


def lacks_memory(reason: Reason) -> bool:
    """Whether a row failed because memory was short, so that it may succeed another time."""
    return reason.code == _engine.Code.out_of_memory


class Engine:
    """C++ threads that read, decode, crop, resize and collate. They never touch Python.

    Args:
        index: of the dataset.
        num_workers: number of threads.
        verify: compare samples, and the files beside the shards, with their hashes.
        fields: names of fields whose columns are among these files.
        with_images: whether batches have images; else their fields alone are read.

    Raises:
        EngineError: the threads cannot be started.
        DatasetError: a file has changed.
    """

    def __init__(
        self,
        index: Index,
        num_workers: int,
        *,
        verify: bool = False,
        fields: Iterable[str] = (),
        with_images: bool = True,
    ) -> None:
        self.intact = Intact(index.list_hashed_files(fields))
        if verify:
            self.intact.begin()
        self._verify = verify
        self._with_images = with_images
        self._index = index
        self.num_workers = num_workers
        # Fetches shards that are behind URLs. It has to know which batches come next.
        self.reader = cast("Reader | None", index.reader())
        if self.reader is not None:
            # A file of the cache may have changed since it was fetched.
            self._verify = True
        self._engine = self._start_threads()
        self._process = os.getpid()
        self._conversions: Conversions | None = None
        if index.convert is not None:
            # Most programs read packed data.
            from fastpipe.engine.conversions import Conversions

            # (samples,) which of them have to be converted, as far as the index knows. A copy, as
            # jobs add those that they find.
            if index.needs_conversion is None:
                needed = np.zeros(len(index), dtype=np.bool_)
            else:
                needed = index.needs_conversion.copy()
            self._conversions = Conversions(index.convert, num_workers, needed)

        # The two parts end their threads when nothing refers to them any more; _close_all does it
        # at the end of the program. Note [callbacks] in slots.py
        _live.add(weakref.ref(self._engine, _live.discard))
        if self._conversions is not None:
            _live.add(weakref.ref(self._conversions, _live.discard))
        if self.reader is not None:
            self.reader.begin(self._engine)

    def _start_threads(self) -> _engine.Engine:
        index = self._index
        shards = []
        for shard in index.shards:
            shards.append(
                (os.fsencode(f"{shard.folder}/{shard.name}"), shard.size_bytes)
            )
        times: list[int] = []
        if index.mtimes_ns is not None:
            times = index.mtimes_ns.tolist()

        # The engine reads fetched samples that no cache keeps from a file behind the shards: the
        # ring.
        if self.reader is not None:
            ring = self.reader.ring
            shards.append((os.fsencode(ring.path), ring.size_bytes))
            if times:
                times.append(UNKNOWN_TIME)
        try:
            most_open = most_open_shards(index, self.num_workers)
            with unbound():
                return _engine.Engine(
                    shards, self.num_workers, most_open, times, count_granted_cpus()
                )
        except (RuntimeError, MemoryError) as problem:
            raise EngineError(
                f"cannot start {self.num_workers} threads: {problem}; pass a smaller num_workers "
                "or raise the limits on processes and memory (ulimit -u and -v, or the "
                "container's limits)"
            ) from problem

    def submit(
        self,
        plan: BatchPlan,
        *views: tuple[Pixels, bool],
        places: Int64s | None = None,
    ) -> Job | FetchedJob:
        """Begins a batch.

        Args:
            plan: which samples, crops and flips.
            views: of each view, where its rows go, and whether it is decoded exactly.
            places: (n,) the places in the batch that the samples fill; None: in order.
        """
        # One for each row of an image.
        slots = []
        for (images, exact), view in zip(views, plan.views, strict=True):
            crops = view.crops
            slot = Slot(images, exact, crops.rendering, layout=crops.layout)
            slots += [slot] * view.rows_per_sample
        tasks = tasks_of(self._index, plan, places)
        samples = np.arange(len(plan))
        return self._begin(plan.samples, tasks, slots, samples, is_field=False)

    def submit_patches(
        self, plan: BatchPlan, images: Pixels, *, exact: bool
    ) -> list[tuple[Job | FetchedJob, NDArray[np.intp]]]:
        """Begins a batch of parts of images; the arguments are those of `submit`.

        Patches of a Grid, or objects, of one image that follow one another are read and decoded
        together, as many as leave work for each thread.

        Returns:
            Jobs, and of each the first row of the batch for each of its images.
        """
        most_together = -(-len(plan) // self.num_workers)  # rounded up
        first_rows, counts = _runs_of_images(plan.samples, most_together)
        tasks = tasks_of(self._index, plan)
        slot = Slot(images, exact, plan.crops.rendering)
        jobs = []
        for count in np.unique(counts).tolist():
            firsts = first_rows[counts == count]
            # (images, count) the rows of each image that are made together.
            rows = firsts[:, None] + np.arange(count)
            job = self._begin(
                plan.samples[firsts],
                tasks[rows],
                [slot] * count,
                np.arange(len(firsts)),
                is_field=False,
            )
            jobs.append((job, firsts))
        return jobs

    def submit_field(
        self,
        plan: BatchPlan,
        records: Records,
        out: Pixels,
        *,
        exact: bool = True,
        rows: Int64s | None = None,
    ) -> Job | FetchedJob:
        """Begins the masks or second pictures of a batch; `records` are (n,) of FIELD_IMAGE_DTYPE.

        Masks are resized by nearest neighbour, so no new id appears, and are always exact. Rows of
        samples without one are filled: masks with the crop's mask_fill, pictures with 0.
        """
        tasks = field_tasks(plan, records, rows)
        rendering = plan.crops.rendering
        are_masks = out.ndim == 3
        # The engine gets no task for these rows, so they are filled here.
        is_missing = records["format"] == NO_IMAGE
        fill = rendering.mask_fill if are_masks else 0
        missing = tasks[is_missing]
        if plan.has_own_sizes:
            for row in missing:
                # The pixels of a row lie one behind the other.
                first = int(row["out_row"])
                pixel_count = int(row["out_width"]) * int(row["out_height"])
                out[first : first + pixel_count] = fill
        else:
            out[missing["out_row"]] = fill
        slots = [Slot(out, exact, rendering, layout=plan.crops.layout)]
        return self._begin(
            plan.samples, tasks, slots, np.flatnonzero(~is_missing), is_field=True
        )

    def submit_maps(
        self,
        plan: BatchPlan,
        records: NDArray[np.void],
        header_bytes: Int64s,
        out: Pixels,
        form: MapForm,
        rows: Int64s | None = None,
    ) -> Job | FetchedJob:
        """Begins the maps of a batch; the first three arguments are those of map_tasks.

        Args:
            plan, records, header_bytes: of the rows.
            out: (all rows, height, width, channels).
            form: how the rows are made.
            rows: (n,) the rows that are filled; None: in order.
        """
        tasks = map_tasks(plan, records, header_bytes, rows)
        slots = [Slot(out, True, plan.crops.rendering, form)]
        return self._begin(
            plan.samples, tasks, slots, np.arange(len(plan)), is_field=True
        )

    def submit_arrays(
        self,
        plan: BatchPlan,
        records: NDArray[np.void],
        header_bytes: Int64s,
        out: NDArray[np.uint8],
        rows: Int64s,
    ) -> Job | FetchedJob:
        """Begins to copy the arrays of a batch into `out`, (all rows, bytes).

        The other arguments are those of array_tasks.
        """
        tasks = array_tasks(plan, records, header_bytes, rows)
        # The engine gets no task for an array without numbers.
        has_numbers = records["size"] > header_bytes
        slots = [Slot(out, True, plan.crops.rendering)]
        return self._begin(
            plan.samples, tasks, slots, np.flatnonzero(has_numbers), is_field=True
        )

    def _begin(
        self,
        samples: Int64s,
        tasks: Tasks,
        slots: Sequence[Slot],
        rows: NDArray[np.intp],
        *,
        is_field: bool,
    ) -> Job | FetchedJob:
        """Begins a job, which waits for the bytes of its samples if they are behind a URL.

        Args:
            samples: (n,) of the rows of a plan.
            tasks: (n,) or (n, rows of an image) what the engine does for each.
            slots: where the rows of an image go.
            rows: which of the n are begun.
            is_field: whether they are values of a field, and not the images of the samples.
        """

        def start(some_rows: NDArray[np.intp], where: Where | None = None) -> Job:
            """Begins those of `rows` whose bytes can be read; None: where the index has them."""
            placed_tasks = tasks
            if where is not None:
                placed_tasks = _moved(tasks, some_rows, where)
            # Masks and second pictures need no conversion.
            if self._conversions is None or is_field:
                job = self._submit_tasks(placed_tasks[some_rows], slots)
                return Job(job, some_rows)
            return ConvertingJob(
                self._submit_tasks,
                self._conversions,
                samples,
                placed_tasks,
                slots,
                some_rows,
            )

        if self.reader is None:
            return start(rows)
        self.check_usable()
        # A sample counts as used when its image has been read, or a field if there are no images.
        # The other jobs of fields keep its bytes as long as they need them, by tickets of their own.
        is_use = not (is_field and self._with_images)
        return FetchedJob(self.reader, samples, rows, start, is_use=is_use)

    def _submit_tasks(self, tasks: Tasks, slots: Sequence[Slot]) -> _engine.Job:
        self.check_usable()
        views = []
        for slot in slots:
            views.append((slot.images, slot.exact, slot.keywords))
        try:
            return _engine.Job(self._engine, tasks.ravel(), views, self._verify)
        except RuntimeError as problem:  # another thread has closed it meanwhile
            raise EngineError(_CLOSED) from problem

    def decode(self, plan: BatchPlan, images: Pixels) -> list[tuple[int, Reason]]:
        """Decodes a batch at full size and waits for it; returns its errors, as `Job.errors`."""
        job = self.submit(plan, (images, True))
        while not job.wait(1.0):
            self.check_usable()
        return job.errors()

    def read_ahead(self, ranges: Records, *, restart: bool) -> None:
        """Asks the kernel to read ranges ahead, in order: (n,) of RANGE_DTYPE of plan/byte_ranges.py.

        `restart` drops the ranges that came before and have not been read.
        """
        if not len(ranges) and not restart:
            return
        # Copied by name, because the native struct has another layout.
        native = np.empty(len(ranges), dtype=_engine.RANGE_DTYPE)
        for name in ("shard", "offset", "size"):
            native[name] = ranges[name]
        self._engine.read_ahead(native, restart)

    def figures(self) -> dict[str, Any]:
        """Counts, times and levels, by the names of Stats."""
        figures: Counter[str] = Counter()
        if self.is_foreign():
            return figures
        parts: list[Any] = [self._engine, self.reader, self._conversions]
        for part in parts:
            if part is not None:
                figures.update(part.counters())
                figures.update(part.levels())
        return figures

    def activities(self) -> list[Activity]:
        """What each thread is doing."""
        if self.is_foreign():
            return []
        activities = [Activity(*values) for values in self._engine.activities()]
        if self._conversions is not None:
            activities += self._conversions.activities()
        if self.reader is None:
            return activities

        # A thread may be reading the ring: messages name the shard that the bytes came from.
        in_shards = []
        for activity in activities:
            origin = self.reader.origin(activity.shard, activity.offset)
            if origin is not None:  # else the thread has finished the row meanwhile
                shard, offset = origin
                in_shards.append(replace(activity, shard=shard, offset=offset))
        delay = self.reader.delay()
        if delay is not None:
            in_shards.append(Activity(*delay))
        return in_shards

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Ends the threads. After 10 s it leaves those that a dead file system holds.

        Does nothing in a forked child, which has none of the threads.
        """
        self.intact.close()
        if self.reader is not None:
            self.reader.close(patience_s)
        self._engine.close(patience_s)
        if self._conversions is not None:
            self._conversions.close()

    def is_foreign(self) -> bool:
        """Whether this process is a forked child, which has none of the engine's threads."""
        return os.getpid() != self._process

    def check_usable(self) -> None:
        """Raises EngineError if the engine is closed, or its threads are in the parent process.

        Also if it fetches shards and the program is ending.
        """
        if self.is_foreign():
            raise EngineError(
                f"process {self._process} created this loader, but its forked child {os.getpid()} "
                "uses it, and the loader's threads do not exist there; create the loader in the "
                "process that iterates over it"
            )
        if self._engine.closed():
            raise EngineError(_CLOSED)
        if self.reader is not None:
            self.reader.check_usable()


_live: set[weakref.ref[Any]] = set()  # native engines, and Conversions


@atexit.register
def _close_all() -> None:
    for reference in list(_live):
        part = reference()
        if part is not None:
            part.close(PATIENCE_S)


def _runs_of_images(
    samples: Int64s, most: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first row of each run of rows of one sample, (n,), and how many rows it has, at most
    `most`.
    """
    is_first = np.ones(len(samples), dtype=np.bool_)
    is_first[1:] = samples[1:] != samples[:-1]
    begins = np.flatnonzero(is_first)
    rows = np.arange(len(samples))
    run_of_row = np.cumsum(is_first) - 1
    row_in_run = rows - begins[run_of_row]
    firsts = np.flatnonzero(row_in_run % most == 0)
    counts = np.diff(firsts, append=len(samples))
    return firsts, counts


def _moved(tasks: Tasks, rows: NDArray[np.intp], where: Where) -> Tasks:
    """The tasks, where those of `rows` read their bytes from the files that `where` names."""
    moved = tasks.copy()
    by_row = moved.reshape(len(tasks), -1)  # (n, rows of an image)
    # A shift may be negative. As uint64 it wraps around, and the sum wraps back.
    by_row["shard"][rows] = where.shard[:, None]
    shifts = where.shift.astype(np.uint64)
    by_row["offset"][rows] += shifts[:, None]
    return moved
