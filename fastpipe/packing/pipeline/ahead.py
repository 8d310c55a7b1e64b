"""Tasks, one after the other -> their results in the same order, worked out in advance by threads."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_AHEAD_PER_WORKER = 4

Task = TypeVar("Task")
Result = TypeVar("Result")
Item = TypeVar("Item")


class Ahead(Generic[Task, Result]):
    """Threads that work on the tasks next in line; long work looks at `stopped` now and then."""

    def __init__(self, work: Callable[[Task], Result], workers: int) -> None:
        self._work = work
        self._most = workers * _AHEAD_PER_WORKER
        self._pending: deque[tuple[Task, Future[Result]]] = deque()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="fastpipe-pack")
        self.stopped = threading.Event()

    def put(self, task: Task) -> Iterator[tuple[Task, Result]]:
        """Adds a task. If enough are in line, waits for the oldest and gives it with its result."""
        self._pending.append((task, self._threads.submit(self._work, task)))
        if len(self._pending) >= self._most:
            yield self._oldest()

    def rest(self) -> Iterator[tuple[Task, Result]]:
        """Waits for all tasks."""
        while self._pending:
            yield self._oldest()

    def each(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """All of these, with their results."""
        for task in tasks:
            yield from self.put(task)
        yield from self.rest()

    def close(self) -> None:
        """Stops the threads; tasks that have not begun are dropped."""
        self.stopped.set()
        for _, future in self._pending:
            future.cancel()
        self._threads.shutdown()

    def _oldest(self) -> tuple[Task, Result]:
        task, future = self._pending.popleft()
        return task, future.result()


def read_ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """The same items, made by a thread while those before them are used. Close it to stop the thread."""
    none = object()
    ahead: Ahead[None, Item | object] = Ahead(lambda _: next(items, none), 1)
    try:
        for _, item in ahead.each(itertools.repeat(None)):
            if item is none:
                return
            yield item  # type: ignore[misc]  # it is one
    finally:
        ahead.close()
        items.close()
