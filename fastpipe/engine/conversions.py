"""Rows whose picture the engine cannot decode -> PNGs or JPEGs made in Python threads -> rows of a slot.

The threads begin with the first such row, of unpacked sources only, and work mostly outside of the GIL, in libraries.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from fastpipe.engine.limits import PATIENCE_S
from fastpipe.engine.tasks import Slot, Tasks
from fastpipe.engine.watchdog import Activity
from fastpipe.errors import DatasetError, ImageError
from fastpipe.machine.binding import unbound
from fastpipe.native import _engine


class _Row(NamedTuple):
    sample: int  # its number
    tasks: Tasks  # one for each slot
    slots: Sequence[Slot]  # where its rows go
    # Gets None, or why the row failed. When only rows in line know it, nobody wants the row any more.
    ended: weakref.ref[Future[_engine.Reason | None]]


class _State:
    """What the threads know: nothing of their owner, so that dropping that ends them."""

    def __init__(self, convert: Callable[[int], bytes]) -> None:
        self.convert = convert
        self.queue: SimpleQueue[Any] = SimpleQueue()  # of rows; anything else ends a thread
        self.lock = threading.Lock()
        self.closed = False  # no row comes into the queue any more
        self.at_work = 0  # rows in the queue, and those that threads have taken from it
        self.busy: dict[int, tuple[float, _Row]] = {}  # by thread: since when, and with what
        self.figures: Any = Counter()  # by the names of Stats

    def work(self) -> None:
        """A thread's life."""
        while True:
            row = self.queue.get()
            if not isinstance(row, _Row):
                self.queue.put(row)  # for the other threads
                return
            ended = row.ended()
            if ended is not None and ended.set_running_or_notify_cancel():
                ended.set_result(self._timed(row))
            del row, ended  # the memory may be lent again
            with self.lock:
                self.at_work -= 1

    def _timed(self, row: _Row) -> _engine.Reason | None:
        started, me = time.monotonic(), threading.get_ident()
        with self.lock:
            self.busy[me] = started, row
        reason = self._fill(row)
        with self.lock:
            del self.busy[me]
            self.figures.update(convert_s=time.monotonic() - started, images_failed=reason is not None)
            if reason is None:
                size, rows = int(row.tasks["size"][0]), len(row.slots)
                self.figures.update(images_converted=1, images_read=1, bytes_read=size, images_decoded=rows)
        return reason

    def _fill(self, row: _Row) -> _engine.Reason | None:
        try:
            data = self.convert(row.sample)
            tasks = row.tasks.copy()
            tasks["size"] = len(data)
            for number, slot in enumerate(row.slots):
                task = tasks[number : number + 1]
                for _, reason in _engine.fill_rows([data], task, slot.images, slot.exact, **slot.keywords):
                    return reason
        except MemoryError:
            size = f"{row.tasks['width'][0]} x {row.tasks['height'][0]}"
            return _engine.reason(_engine.Code.out_of_memory, f"to convert an image of {size}")
        except OSError as problem:
            return _engine.Reason(f"the file cannot be read: {problem.strerror}")
        except (ImageError, DatasetError, ValueError) as problem:
            return _engine.Reason(problem)
        except Exception as problem:  # a thread that ends would leave its rows unfinished for ever
            return _engine.Reason(f"{type(problem).__name__}: {problem}")
        return None


class Conversions:
    """At most so many threads; `convert` makes what the engine decodes of a sample."""

    def __init__(self, convert: Callable[[int], bytes], threads: int) -> None:
        self._state = _State(convert)
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        # See Note [callbacks] in slots.py: the queue's method, in C, gets the dead reference, which ends a thread.
        self._reference = weakref.ref(self, self._state.queue.put)

    def begin(
        self, samples: list[int], tasks: Tasks, slots: Sequence[Slot], *, refused: bool = False
    ) -> list[Future[_engine.Reason | None]]:
        """Puts samples in line; for each, what will be None or why it failed. Dropping that takes the sample back."""
        found: list[Future[_engine.Reason | None]] = [Future() for _ in samples]
        with self._state.lock:  # the loop's thread comes here, and the one of requests
            # One for each row that is in line or being converted: a single odd row needs a single thread.
            wanted = min(self._most, self._state.at_work + len(samples))
            while len(self._threads) < wanted:
                thread = threading.Thread(target=self._state.work, name="fastpipe-convert", daemon=True)
                with unbound():
                    thread.start()
                self._threads.append(thread)
            self._state.figures["images_failed"] -= refused * len(samples)
            for at, (sample, ended) in enumerate(zip(samples, found, strict=True)):
                if self._state.closed:
                    ended.cancel()
                else:
                    self._state.at_work += 1
                    self._state.queue.put(_Row(sample, tasks[at : at + 1].ravel(), slots, weakref.ref(ended)))
        return found

    def counters(self) -> dict[str, Any]:
        """By the names of Stats."""
        with self._state.lock:
            return dict(self._state.figures)

    def levels(self) -> dict[str, int]:
        state = self._state
        return {"threads": len(self._threads), "threads_busy": len(state.busy), "rows_waiting": state.queue.qsize()}

    def activities(self) -> list[Activity]:
        """What each thread is at; those that are idle are left out."""
        with self._state.lock:
            busy = list(self._state.busy.values())
        return [
            Activity("converting", int(row.tasks["shard"][0]), int(row.tasks["offset"][0]), time.monotonic() - since)
            for since, row in busy
        ]

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Takes back the rows in line, and waits for those at hand and the threads' end, 10 s at most."""
        if os.getpid() != self._process:  # a forked child has none of the threads
            return
        with self._state.lock:
            self._state.closed = True
            with suppress(Empty):
                while True:
                    row = self._state.queue.get_nowait()
                    ended = row.ended() if isinstance(row, _Row) else None
                    if ended is not None:
                        ended.cancel()
            self._state.queue.put(None)
        deadline = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
