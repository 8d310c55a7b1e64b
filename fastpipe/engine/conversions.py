"""Images that the engine cannot decode -> PNGs or JPEGs made in Python threads -> rows of a slot.

Only unpacked sources have such images. The threads start with the first one, and work mostly in
libraries, outside of the GIL.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from fastpipe.arrays import Bools
from fastpipe.engine.limits import PATIENCE_S
from fastpipe.engine.tasks import Slot, Tasks
from fastpipe.engine.watchdog import Activity
from fastpipe.errors import DatasetError, ImageError
from fastpipe.machine.binding import unbound
from fastpipe.native import _engine


class _Row(NamedTuple):
    """A sample to convert, and where its pixels go."""

    sample: int
    tasks: Tasks  # one for each slot
    slots: Sequence[Slot]
    # Gets None, or why the row failed. If the job that waits for it was dropped, the reference is
    # dead, and the row is skipped.
    future: weakref.ref[Future[_engine.Reason | None]]


class _Worker:
    """What the threads share. It refers to no Conversions, so dropping that ends the threads."""

    def __init__(self, convert: Callable[[int], bytes]) -> None:
        self._convert = convert
        # It has rows; anything else ends a thread.
        self.queue: SimpleQueue[Any] = SimpleQueue()
        self.lock = threading.Lock()
        self.is_closed = False  # the queue takes no more rows
        self.unfinished = 0  # rows in the queue, and those that threads are converting
        # Number of a thread -> when it began with its row, and the row.
        self.busy: dict[int, tuple[float, _Row]] = {}
        self.counters: Any = Counter()  # by the names of Stats

    def run(self) -> None:
        """The work of a thread, until the end."""
        while True:
            row = self.queue.get()
            if not isinstance(row, _Row):
                self.queue.put(row)  # for the other threads
                return
            future = row.future()
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(self._process(row))
            # So that the slot's memory can be used again while this thread waits.
            del row, future
            with self.lock:
                self.unfinished -= 1

    def _process(self, row: _Row) -> _engine.Reason | None:
        """Fills the row and counts it; returns why it failed, or None."""
        started = time.monotonic()
        thread_id = threading.get_ident()
        with self.lock:  # `activities` reads it in another thread
            self.busy[thread_id] = started, row
        reason = self._fill(row)
        with self.lock:
            del self.busy[thread_id]
            self.counters["convert_s"] += time.monotonic() - started
            if reason is not None:
                self.counters["images_failed"] += 1
            else:
                self.counters["images_converted"] += 1
                self.counters["images_read"] += 1
                self.counters["bytes_read"] += int(row.tasks["size"][0])
                self.counters["images_decoded"] += len(row.slots)
        return reason

    def _fill(self, row: _Row) -> _engine.Reason | None:
        try:
            data = self._convert(row.sample)
            tasks = row.tasks.copy()
            tasks["size"] = len(data)
            for view, slot in enumerate(row.slots):
                errors = _engine.fill_rows(
                    [data],
                    tasks[view : view + 1],
                    slot.images,
                    slot.exact,
                    **slot.keywords,
                )
                if errors:
                    return errors[0][1]
        except MemoryError:
            width = row.tasks["width"][0]
            height = row.tasks["height"][0]
            size = f"{width} x {height}"
            return _engine.reason(
                _engine.Code.out_of_memory, f"to convert an image of {size}"
            )
        except OSError as problem:
            return _engine.Reason(f"the file cannot be read: {problem.strerror}")
        except (ImageError, DatasetError, ValueError) as problem:
            return _engine.Reason(problem)
        except Exception as problem:
            # A thread that died would leave its rows unfinished for ever.
            return _engine.Reason(f"{type(problem).__name__}: {problem}")
        return None


class Conversions:
    """Converts samples in at most so many threads.

    Args:
        convert: sample number -> the bytes of a JPEG or PNG that the engine decodes.
        most_threads: how many threads at most.
        needed: (samples,) which samples have to be converted. Jobs add those that they find.
    """

    def __init__(
        self, convert: Callable[[int], bytes], most_threads: int, needed: Bools
    ) -> None:
        self.needed = needed
        self._worker = _Worker(convert)
        self._most_threads = most_threads
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        # When this object dies, its queue gets the dead reference, which ends the threads. The
        # queue's method is written in C: Note [callbacks] in slots.py.
        self._reference = weakref.ref(self, self._worker.queue.put)

    def begin(
        self,
        samples: list[int],
        tasks: Tasks,
        slots: Sequence[Slot],
        *,
        refused: bool = False,
    ) -> list[Future[_engine.Reason | None]]:
        """Queues samples; returns for each a future of None, or of why it failed.

        Dropping a future cancels its sample. `refused`: the engine has counted these as failed.
        """
        worker = self._worker
        futures: list[Future[_engine.Reason | None]] = [Future() for _ in samples]
        with worker.lock:
            # The training loop's thread comes here, and the one that fetches.
            self._start_threads(len(samples))
            if refused:
                worker.counters["images_failed"] -= len(samples)
            for index, (sample, future) in enumerate(
                zip(samples, futures, strict=True)
            ):
                if worker.is_closed:
                    future.cancel()
                    continue
                worker.unfinished += 1
                row_tasks = tasks[index : index + 1].ravel()
                row = _Row(sample, row_tasks, slots, weakref.ref(future))
                worker.queue.put(row)
        return futures

    def _start_threads(self, new_rows: int) -> None:
        """Starts threads until there is one for each unfinished row, or the most."""
        wanted = min(self._most_threads, self._worker.unfinished + new_rows)
        while len(self._threads) < wanted:
            thread = threading.Thread(
                target=self._worker.run, name="fastpipe-convert", daemon=True
            )
            with unbound():
                thread.start()
            self._threads.append(thread)

    def counters(self) -> dict[str, Any]:
        """Counts and times, by the names of Stats."""
        with self._worker.lock:
            return dict(self._worker.counters)

    def levels(self) -> dict[str, int]:
        """Values of this moment, by the names of Stats."""
        return {
            "threads": len(self._threads),
            "threads_busy": len(self._worker.busy),
            "rows_waiting": self._worker.queue.qsize(),
        }

    def activities(self) -> list[Activity]:
        """What each thread that is not idle is doing."""
        with self._worker.lock:
            busy = list(self._worker.busy.values())
        activities = []
        for started, row in busy:
            shard = int(row.tasks["shard"][0])
            offset = int(row.tasks["offset"][0])
            activities.append(
                Activity("converting", shard, offset, time.monotonic() - started)
            )
        return activities

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Cancels the rows in the queue; waits for the others and the threads, 10 s at most."""
        if os.getpid() != self._process:  # a forked child has none of the threads
            return
        worker = self._worker
        with worker.lock:
            worker.is_closed = True
            self._cancel_queued()
            worker.queue.put(None)  # not a row: the threads end
        deadline = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _cancel_queued(self) -> None:
        while True:
            try:
                row = self._worker.queue.get_nowait()
            except Empty:
                return
            if not isinstance(row, _Row):
                continue
            future = row.future()
            if future is not None:
                future.cancel()
