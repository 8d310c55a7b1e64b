"""Tasks, one after the other -> their results in the same order, computed in advance by threads."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Generic, TypeVar

from fastpipe.errors import PackError
from fastpipe.machine.binding import unbind_thread

# So many runs for each thread are under way or done, so that no thread waits for the caller.
_AHEAD_PER_WORKER = 4
# A thread takes a run of several tasks at once: to hand over each file by itself costs a tenth of
# the time of packing it. Larger runs would only take more memory.
RUN_BYTES = 1 << 20
RUN_TASKS = 16
# `read_ahead` hands over so many items at once, or fewer if they are large.
_RUN_ITEMS = 256

Result = TypeVar("Result")
Item = TypeVar("Item")


class Ahead(Generic[Item, Result]):
    """Threads that work on the next tasks, and hold a few MB of results a worker.

    A PackError that a task raises is raised when the results of the tasks before it have been
    taken.

    Args:
        work: a task -> its result; without the GIL for the most part.
        workers: number of threads.
        size_bytes: the size of a task; by default each task is a run of its own.
        begin: is called with the tasks of a run when the run is handed to the threads.
        end: is called with them when a thread has worked on them.
    """

    def __init__(
        self,
        work: Callable[[Item], Result],
        workers: int,
        size_bytes: Callable[[Item], int] = lambda _: RUN_BYTES,
        begin: Callable[[list[Item]], None] = lambda _: None,
        end: Callable[[list[Item]], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._size_bytes = size_bytes
        self._begin = begin
        self._end = end
        self._run: list[Item] = []
        self._run_bytes = 0
        self._max_pending = workers * _AHEAD_PER_WORKER
        self._pending: deque[tuple[list[Item], Future[list[Result | PackError]]]] = (
            deque()
        )
        self._threads = ThreadPoolExecutor(
            workers, thread_name_prefix="fastpipe-pack", initializer=unbind_thread
        )
        self._stopped = threading.Event()

    def put(self, task: Item) -> Iterator[tuple[Item, Result]]:
        """Adds a task. If enough are pending, yields the tasks of the oldest run with results."""
        self._run.append(task)
        self._run_bytes += self._size_bytes(task)
        if self._run_bytes >= RUN_BYTES or len(self._run) == RUN_TASKS:
            self._submit_run()
            if len(self._pending) >= self._max_pending:
                yield from self._take_oldest()

    def drain(self) -> Iterator[tuple[Item, Result]]:
        """Waits for all tasks, and yields them with their results."""
        self._submit_run()
        while self._pending:
            yield from self._take_oldest()

    def map(self, tasks: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Adds tasks as they are needed, and yields all of them with their results."""
        for task in tasks:
            yield from self.put(task)
        yield from self.drain()

    def close(self) -> None:
        """Stops the threads. Tasks that have not begun are dropped."""
        # A run that has begun cannot be cancelled. It looks at the event between its tasks.
        self._stopped.set()
        for _, future in self._pending:
            future.cancel()
        self._threads.shutdown()

    def _submit_run(self) -> None:
        run = self._run
        self._run = []
        self._run_bytes = 0
        if run:
            self._begin(run)
            future = self._threads.submit(self._work_on, run)
            self._pending.append((run, future))

    def _work_on(self, run: list[Item]) -> list[Result | PackError]:
        """Runs in a thread."""
        results: list[Result | PackError] = []
        try:
            for task in run:
                if self._stopped.is_set():
                    break
                results.append(self._work(task))
        except PackError as problem:
            # The error takes the place of the task's result. So the caller gets the results before
            # it first, which are good.
            results.append(problem)
        finally:
            self._end(run)
        return results

    def _take_oldest(self) -> Iterator[tuple[Item, Result]]:
        run, future = self._pending.popleft()
        # There are fewer results than tasks if one of them is a PackError.
        for task, result in zip(run, future.result(), strict=False):
            if isinstance(result, PackError):
                raise result
            yield task, result


def read_ahead(
    items: Generator[Item, None, None], size_bytes: Callable[[Item], int]
) -> Generator[Item, None, None]:
    """The same items, made by a thread in advance. Close it to stop the thread."""

    def read_some(_: object) -> list[Item]:
        some: list[Item] = []
        total_bytes = 0
        for item in items:
            some.append(item)
            total_bytes += size_bytes(item)
            if total_bytes >= RUN_BYTES or len(some) == _RUN_ITEMS:
                break
        return some

    # One thread: a generator cannot run in two. It is closed last, when the thread has ended.
    with closing(items), closing(Ahead(read_some, 1)) as ahead:
        for _, some in ahead.map(itertools.repeat(None)):
            if not some:
                return
            yield from some
