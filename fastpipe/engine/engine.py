"""Batch plans -> pixels in a slot, by the native engine's threads."""

from __future__ import annotations

import atexit
import os
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastpipe.engine.jobs import FetchedJob, Job, MixedJob, Reason
from fastpipe.engine.limits import PATIENCE_S, most_open_shards
from fastpipe.engine.tasks import Pixels, Slot, Tasks, field_tasks, tasks_of
from fastpipe.engine.watchdog import Activity
from fastpipe.errors import EngineError
from fastpipe.format.description import Intact
from fastpipe.format.fields import NO_IMAGE
from fastpipe.format.index import Index
from fastpipe.format.mixed_index import ANY_TIME
from fastpipe.machine.binding import unbound
from fastpipe.machine.cpus import granted_cpus
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.draws import Int64s

if TYPE_CHECKING:  # most programs read folders
    from fastpipe.engine.conversions import Conversions
    from fastpipe.store.remote.reader import Reader
    from fastpipe.store.remote.wants import Where

_CLOSED = "this loader is closed; create a new loader with fastpipe.loader(...)"


@dataclass(frozen=True)
class EngineFacts:
    """What the engine runs on."""

    libjpeg_turbo: str  # version it was built with
    resize: str  # the kernels in use: "avx512", "avx2", "neon" or "scalar"
    decode: str  # what decodes common JPEGs: "baseline", our own decoder, or "libjpeg"
    coefficients: str  # what reads stored coefficients: "avx512", "avx2", "neon" or "scalar"


def engine_facts() -> EngineFacts:
    """What the engine was built with and which instructions this machine has for it."""
    number = int(_engine.LIBJPEG_TURBO_VERSION)  # 2001005 is 2.1.5
    version = f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
    decode = "baseline" if "baseline" in _engine.decode_methods() else "libjpeg"
    return EngineFacts(version, _engine.resize_kernels()[-1], decode, _engine.block_kernels()[-1])  # the best last


def extension_file() -> str:
    return _engine.__file__


def lacks_memory(reason: Reason) -> bool:
    """Whether a row failed because of this machine's memory, so that it may well succeed another time."""
    return reason.code == _engine.Code.out_of_memory


class Engine:
    """C++ threads that read, decode, crop, resize and collate, and never touch Python. With `verify` samples and the
    files beside the shards are compared with their hashes. EngineError: no threads; DatasetError: a file has changed.
    """

    def __init__(self, index: Index, num_workers: int, *, verify: bool = False, fields: Iterable[str] = ()) -> None:
        self.intact = Intact(index.hashed_files(fields))
        if verify:
            self.intact.begin()
        self._verify = verify
        self._index = index
        self.num_workers = num_workers
        shards = [(os.fsencode(f"{shard.folder}/{shard.name}"), shard.size_bytes) for shard in index.shards]
        # What fetches shards that come over the network: it has to be told what batches to come need.
        self.reader = cast("Reader | None", index.reader())
        if self.reader is not None:
            shards.append((os.fsencode(self.reader.ring.path), self.reader.ring.size_bytes))
            self._verify = True  # what lies in a cache may have been changed since it came
        try:
            times = [] if index.mtimes_ns is None else index.mtimes_ns.tolist()
            times += [ANY_TIME] * (len(shards) - len(times)) if times else []  # of the ring
            most_open = most_open_shards(index, num_workers)
            with unbound():  # it starts its threads
                self._engine = _engine.Engine(shards, num_workers, most_open, times, granted_cpus())
        except (RuntimeError, MemoryError) as problem:
            raise EngineError(
                f"cannot start {num_workers} threads: {problem}; pass a smaller num_workers or raise the limits on "
                "processes and memory (ulimit -u and -v, or the container's limits)"
            ) from problem
        self._process = os.getpid()
        self._conversions: Conversions | None = None
        if index.convert is not None:
            from fastpipe.engine.conversions import Conversions  # most programs read what is packed

            self._conversions = Conversions(index.convert, num_workers)
            self._odd = np.zeros(len(index), dtype=np.bool_) if index.odd is None else index.odd.copy()
        # When nothing refers to them any more, or at the end of the program, threads are joined. By themselves, and by
        # _close_all; see Note [callbacks] in slots.py.
        _live.update(weakref.ref(part, _live.discard) for part in (self._engine, self._conversions) if part is not None)
        if self.reader is not None:
            self.reader.begin(self._engine)

    def submit(self, plan: BatchPlan, *views: tuple[Pixels, bool], rows: Int64s | None = None) -> Job | FetchedJob:
        """Begins a batch: `views` says where each view goes, and whether it is exact; `rows`, (n,), in which rows."""
        of_views = zip(views, plan.views, strict=True)
        slots = [Slot(images, exact, view.crops.rendering) for (images, exact), view in of_views]
        return self._begin(plan, tasks_of(self._index, plan, rows), slots, np.arange(len(plan)), pictures=True)

    def submit_field(
        self, plan: BatchPlan, records: NDArray[np.void], out: Pixels, *, exact: bool = True, rows: Int64s | None = None
    ) -> Job | FetchedJob:
        """As `submit`, of the masks or second pictures of a batch, whose `records` are (n,) of FIELD_IMAGE_DTYPE. Masks
        are resized by nearest neighbour, so that no id is made up, and are always exact. Rows of samples that have none
        are filled: masks with the crop's mask_fill, pictures with 0.
        """
        tasks, rendering = field_tasks(plan, records, rows), plan.crops.rendering
        there, masks = records["format"] != NO_IMAGE, out.ndim == 3
        out[tasks["out_row"][~there]] = rendering.mask_fill if masks else 0
        return self._begin(plan, tasks, [Slot(out, exact, rendering, masks)], np.flatnonzero(there), pictures=False)

    def _begin(
        self, plan: BatchPlan, tasks: Tasks, slots: Sequence[Slot], rows: NDArray[np.intp], *, pictures: bool
    ) -> Job | FetchedJob:
        """Some of the plan's tasks, (n,) or (n, views); `pictures`: they are of its samples' own, which may be odd."""

        def begin(rows: NDArray[np.intp], where: Where | None = None) -> Job:
            here = tasks if where is None else _moved(tasks, rows, where)
            if self._conversions is None or not pictures:
                return Job(self._submitted(here[rows], slots), rows)
            return MixedJob(self._submitted, self._conversions, self._odd, plan.samples, here, slots, rows)

        if self.reader is None:
            return begin(rows)
        self.check_usable()
        return FetchedJob(self.reader, plan.samples, rows, begin, last=pictures)

    def _submitted(self, tasks: Tasks, slots: Sequence[Slot]) -> _engine.Job:
        """The tasks of pictures, (n,) or (n, slots)."""
        self.check_usable()
        try:
            views = [(slot.images, slot.exact, slot.keywords, slot.masks) for slot in slots]
            return _engine.Job(self._engine, tasks.ravel(), views, self._verify)
        except RuntimeError as problem:  # closed by another thread meanwhile
            raise EngineError(_CLOSED) from problem

    def decode(self, plan: BatchPlan, images: Pixels) -> list[tuple[int, Reason]]:
        """Does a batch at full size and waits for it; returns its errors, as `Job.errors`. See `submit`."""
        job = self.submit(plan, (images, True))
        while not job.wait(1.0):
            self.check_usable()
        return job.errors()

    def read_ahead(self, ranges: NDArray[np.void], *, restart: bool) -> None:
        """Has the kernel read ranges, (n,) of order.RANGE_DTYPE, ahead, in order; `restart` drops all before them."""
        if not len(ranges) and not restart:
            return
        native = np.empty(len(ranges), dtype=_engine.RANGE_DTYPE)
        for name in ("shard", "offset", "size"):
            native[name] = ranges[name]
        self._engine.read_ahead(native, restart)

    def figures(self) -> dict[str, Any]:
        """Counts, times and levels, by the names of Stats."""
        found: Counter[str] = Counter()
        parts: list[Any] = [self._engine, self.reader, self._conversions]
        for part in parts if not self.is_foreign() else ():
            if part is not None:
                found.update({**part.counters(), **part.levels()})
        return found

    def activities(self) -> list[Activity]:
        if self.is_foreign():
            return []
        found = [Activity(*each) for each in self._engine.activities()]
        if self._conversions is not None:
            found += self._conversions.activities()
        if self.reader is None:
            return found
        origins = [(each, self.reader.origin(each.shard, each.offset)) for each in found]
        found = [replace(each, shard=at[0], offset=at[1]) for each, at in origins if at is not None]  # None: done since
        delay = self.reader.delay()
        return found if delay is None else [*found, Activity(*delay)]

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Ends the threads, after 10 s all but those that a dead file system holds; in a forked child does nothing."""
        self.intact.close()
        if self.reader is not None:
            self.reader.close(patience_s)
        self._engine.close(patience_s)
        if self._conversions is not None:
            self._conversions.close()

    def is_foreign(self) -> bool:
        """Whether this process is a forked child of the one that made the engine: its threads are not here."""
        return os.getpid() != self._process

    def check_usable(self) -> None:
        """EngineError: the engine is closed, or of the parent process, or it fetches and the program ends."""
        if self.is_foreign():
            raise EngineError(
                f"process {self._process} created this loader, but its forked child {os.getpid()} uses it, and the "
                "loader's threads do not exist there; create the loader in the process that iterates over it"
            )
        if self._engine.closed():
            raise EngineError(_CLOSED)
        if self.reader is not None:
            self.reader.check_usable()


_live: set[weakref.ref[Any]] = set()


@atexit.register
def _close_all() -> None:
    for reference in list(_live):
        if (part := reference()) is not None:
            part.close(PATIENCE_S)


def _moved(tasks: Tasks, rows: NDArray[np.intp], where: Where) -> Tasks:
    """The tasks, those of some rows with bytes that are elsewhere than in the shards."""
    moved = tasks.copy()
    by_view = moved.reshape(len(tasks), -1)
    by_view["shard"][rows] = where.shard[:, None]
    by_view["offset"][rows] += where.shift.astype(np.uint64)[:, None]
    return moved
