"""Tasks, one after the other -> their results in the same order, worked out in advance by threads."""

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

_AHEAD_PER_WORKER = 4
# A thread takes some tasks at once: handing over each file by itself costs a tenth of packing it, and more of large
# ones would only take memory.
RUN_BYTES = 1 << 20
RUN_TASKS = 16
_RUN_ITEMS = 256  # that are only read

Result = TypeVar("Result")
Item = TypeVar("Item")


class Ahead(Generic[Item, Result]):
    """Threads that work on the tasks next in line, without the GIL. A PackError comes behind the results before it.

    `begin` and `end` are called with the tasks that a thread takes at once, without `size_bytes` one. Results of a few
    MB a worker are held.
    """

    def __init__(
        self,
        work: Callable[[Item], Result],
        workers: int,
        size_bytes: Callable[[Item], int] = lambda _: RUN_BYTES,
        begin: Callable[[list[Item]], None] = lambda _: None,
        end: Callable[[list[Item]], None] = lambda _: None,
    ) -> None:
        self._work, self._size_bytes, self._begin, self._end = work, size_bytes, begin, end
        self._run: list[Item] = []
        self._run_bytes = 0
        self._most = workers * _AHEAD_PER_WORKER
        self._pending: deque[tuple[list[Item], Future[list[Result | PackError]]]] = deque()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="fastpipe-pack", initializer=unbind_thread)
        self._stopped = threading.Event()

    def put(self, task: Item) -> Iterator[tuple[Item, Result]]:
        """Adds a task. If enough are in line, waits for the oldest and gives them with their results."""
        self._run.append(task)
        self._run_bytes += self._size_bytes(task)
        if self._run_bytes >= RUN_BYTES or len(self._run) == RUN_TASKS:
            self._hand_over()
            if len(self._pending) >= self._most:
                yield from self._oldest()

    def rest(self) -> Iterator[tuple[Item, Result]]:
        self._hand_over()
        while self._pending:
            yield from self._oldest()

    def each(self, tasks: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """All of these, with their results."""
        for task in tasks:
            yield from self.put(task)
        yield from self.rest()

    def close(self) -> None:
        """Stops the threads; tasks that have not begun are dropped."""
        self._stopped.set()
        for _, future in self._pending:
            future.cancel()
        self._threads.shutdown()

    def _hand_over(self) -> None:
        run, self._run, self._run_bytes = self._run, [], 0
        if run:
            self._begin(run)
            self._pending.append((run, self._threads.submit(self._results, run)))

    def _results(self, run: list[Item]) -> list[Result | PackError]:
        found: list[Result | PackError] = []
        try:
            for task in run:
                if self._stopped.is_set():
                    break
                found.append(self._work(task))
        except PackError as problem:
            found.append(problem)
        finally:
            self._end(run)
        return found

    def _oldest(self) -> Iterator[tuple[Item, Result]]:
        run, future = self._pending.popleft()
        for task, result in zip(run, future.result(), strict=False):  # shorter behind a PackError
            if isinstance(result, PackError):
                raise result
            yield task, result


def read_ahead(items: Generator[Item, None, None], size_bytes: Callable[[Item], int]) -> Generator[Item, None, None]:
    """The same items, made by a thread while those before them are used. Close it to stop the thread."""

    def some(_: object) -> list[Item]:
        found: list[Item] = []
        found_bytes = 0
        for item in items:
            found.append(item)
            found_bytes += size_bytes(item)
            if found_bytes >= RUN_BYTES or len(found) == _RUN_ITEMS:
                break
        return found

    with closing(items), closing(Ahead(some, 1)) as ahead:
        for _, found in ahead.each(itertools.repeat(None)):
            if not found:
                return
            yield from found
