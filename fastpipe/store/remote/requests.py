"""The thread that makes all requests of a process, and its end."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from fastpipe.distribution import install_extra
from fastpipe.errors import ConfigError, EngineError

_T = TypeVar("_T")

THREAD_NAME = "fastpipe-requests"
# A program that ends waits so long for requests that it has cancelled.
END_PATIENCE_S = 3.0
_LOOK_S = 0.001
_ENDED = (
    "the program is ending, and nothing is fetched by URL any more: finish reading before the main "
    "module ends, or call atexit.register for what reads at the end after the dataset was opened"
)

# Note [obstore and fork]
# obstore's requests run in threads of a runtime that a process has once. After a fork the child has
# the runtime and none of its threads: a request would wait for ever. So a child of a process that
# has used obstore is refused; one of a process that has not starts its own.
_started: list[RequestThread] = []  # the first one counts

# Note [obstore and the end of a program]
# A thread of obstore's runtime sets the result of a future of asyncio, and takes the GIL for it. If
# the interpreter finalizes meanwhile, Python up to 3.13 ends a thread that waits for the GIL by
# pthread_exit, which aborts the process where Rust has called. So nothing may be under way when the
# interpreter finalizes: `atexit` comes before. A request that was cancelled is over when its thread
# has dropped the future: the event loop knows all futures by weak references. Some of them are
# dropped without the GIL, and are freed when a function of obstore is called next.


class _EventLoop(asyncio.SelectorEventLoop):
    """Knows the futures that have been made and are in use."""

    def __init__(self) -> None:
        super().__init__()
        self.futures: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()

    def create_future(self) -> asyncio.Future[Any]:
        future = super().create_future()
        self.futures.add(future)
        return future


class RequestThread:
    """A thread with an event loop, in which all coroutines run that make requests.

    Its methods are safe in threads.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = _EventLoop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=THREAD_NAME, daemon=True
        )
        self._lock = threading.RLock()  # a `__del__` may come in the middle of `start`
        self.has_ended = False

    def run(self) -> None:
        """Starts the thread, which ends with the program."""
        self._thread.start()
        atexit.register(self.end)

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Runs a coroutine. EngineError: the program ends."""
        with self._lock:
            if not self.has_ended:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise EngineError(_ENDED)

    def check_usable(self) -> None:
        """Raises EngineError if the program ends."""
        if self.has_ended:
            raise EngineError(_ENDED)

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function in the thread, soon; does nothing if the program ends."""
        with self._lock:
            if not self.has_ended:
                self._loop.call_soon_threadsafe(function)

    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Cancels all that is under way, and waits until obstore's threads have done with it."""
        if os.getpid() != self.process:
            return
        with self._lock:
            if self.has_ended:
                return
            self.has_ended = True
        deadline = time.monotonic() + END_PATIENCE_S
        asyncio.run_coroutine_threadsafe(
            self._cancel_all(), self._loop
        ).add_done_callback(self._stop)
        self._thread.join(END_PATIENCE_S)
        while self._is_in_use() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        if not self._thread.is_alive() and not self._is_in_use():
            self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_PATIENCE_S)

    def _stop(self, _: Future[None]) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _is_in_use(self) -> bool:
        """Whether a thread of obstore may have a future."""
        from obstore import parse_scheme

        # Any function frees what was dropped without the GIL.
        parse_scheme("s3://bucket")
        return bool(self._loop.futures)


def request_thread() -> RequestThread:
    """The thread of this process, which starts with the first dataset.

    Raises:
        ConfigError: obstore is not installed.
        EngineError: this is a forked child. Note [obstore and fork]
    """
    if not _started:
        try:
            import obstore  # noqa: F401
        except ImportError as missing:
            raise ConfigError(
                f"reading a dataset by its URL needs obstore: {install_extra('remote')}"
            ) from missing
        mine = RequestThread()
        # atomic: threads may come here at once, and all get the first one's.
        _started.append(mine)
        if _started[0] is mine:
            mine.run()
    first = _started[0]
    if first.process != os.getpid():
        raise EngineError(
            f"process {first.process} has read remote data, and this is its forked child "
            f"{os.getpid()}: the threads that make requests do not exist here. Start workers in "
            'another way: pass multiprocessing_context="forkserver" to the DataLoader, or call '
            'torch.multiprocessing.set_start_method("forkserver") before'
        )
    return first
