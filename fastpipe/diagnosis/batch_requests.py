"""An iterator of batches that may hang -> the same batches, and a call once a batch is late."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch

THREAD_NAME = "fastpipe-diagnose"
# The watching thread looks at the time so often.
_LOOK_S = 0.1
_END = object()


def request_here(
    batches: Iterator[Any], stall_s: float, on_stall: Callable[[float], None]
) -> Generator[Any, None, None]:
    """Asks for the batches in this thread.

    Another thread watches the time and calls `on_stall` if a batch is late.

    `on_stall` has to end the workers, so that this thread is free again.
    """
    lock = threading.Lock()
    is_over = threading.Event()
    # When the batch under way was requested; None: the caller has a batch. The watching thread
    # reads it, so it changes under the lock.
    requested_s: float | None = None

    def watch_time() -> None:
        while not is_over.wait(_LOOK_S):
            # `on_stall` runs under the lock: a batch that comes meanwhile waits until it is done.
            with lock:
                if requested_s is None:
                    continue
                if time.monotonic() - requested_s > stall_s:
                    on_stall(stall_s)
                    return

    threading.Thread(target=watch_time, name=THREAD_NAME, daemon=True).start()
    try:
        while True:
            with lock:
                requested_s = time.monotonic()
            batch = next(batches, _END)
            with lock:
                requested_s = None
            if batch is _END:
                return
            yield batch
    finally:
        is_over.set()


def request_from_thread(
    batches: Iterator[Any], stall_s: float, on_stall: Callable[[float], None]
) -> Generator[Any, None, None]:
    """Asks for the batches in a thread of their own, which is abandoned once a batch is late."""
    requests: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: the end
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def answer_requests(grad_enabled: bool) -> None:
        torch.set_grad_enabled(grad_enabled)  # each thread has its own setting
        while requests.get():
            answers.put(next(batches, _END))

    threading.Thread(
        target=contextvars.copy_context().run,
        args=(answer_requests, torch.is_grad_enabled()),
        name=THREAD_NAME,
        daemon=True,
    ).start()
    try:
        while True:
            requests.put(True)
            try:
                batch = answers.get(timeout=stall_s)
            except queue.Empty:
                on_stall(stall_s)
                return
            if batch is _END:
                return
            yield batch
    finally:
        requests.put(False)
