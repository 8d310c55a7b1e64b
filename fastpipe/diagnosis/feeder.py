"""A DataLoader -> its epochs and batches, asked for one at a time, so that whoever waits can stop waiting.

With workers the caller's own thread asks, since that is what forks: OpenMP's threads belong to the thread that started
them, and a loader that hangs for their sake would not if another forked. Once the workers are ended, the caller is free
again. Without workers nothing can be ended, so a thread asks, and is left alone if it hangs.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from fastpipe.diagnosis.inject.fastpipe_probe.watch import LoaderWatch

# What torch says of loaders that the findings say better, and what Python says of forks beside a thread: one of ours.
_SAID = r"[\s\S]*(pin_memory|worker processes in total|Got pickle error|multi-threaded, use of fork)"
_LOOK_S = 0.1


class Feeder:
    """Asks a loader for its epochs and batches. Nothing is read ahead: a batch is asked for as a loop would.

    Args:
        loader: a copy of the user's.
        watch: that notes when batches are asked for and come.
        on_late: called when there was no answer in time; it ends the workers, if there are some.
    """

    def __init__(self, loader: Any, watch: LoaderWatch, on_late: Callable[[], None]) -> None:
        self._loader = loader
        self._watch = watch
        self._on_late = on_late
        self.iterator: Any = None

    def ask(self, order: str, timeout_s: float) -> tuple[str, Any]:
        """Begins an epoch ("epoch") or asks for a batch ("batch").

        Returns:
            A word and what belongs to it: ("batch", the batch), ("began", None), ("ended", None), ("error", it), or
            ("late", None) if there was no answer in time.
        """
        over, late, lock = threading.Event(), threading.Event(), threading.Lock()

        def look() -> None:
            until_s = time.monotonic() + timeout_s
            while not over.wait(_LOOK_S):
                if time.monotonic() > until_s:
                    with lock:
                        if not over.is_set():
                            late.set()
                            self._on_late()
                    return

        threading.Thread(target=look, name="fastpipe-diagnose", daemon=True).start()
        try:
            answer = self._answer(order)
        finally:
            over.set()
        with lock:  # until all is known that is to be known of a stall
            return ("late", None) if late.is_set() else answer

    def close(self, timeout_s: float) -> None:
        """Ends the loader's workers, or leaves that to a thread if it takes longer."""
        iterator, self.iterator = self.iterator, None
        if hasattr(iterator, "_shutdown_workers"):
            ending = threading.Thread(target=_shut_down, args=(iterator,), name="fastpipe-diagnose", daemon=True)
            ending.start()
            ending.join(timeout_s)

    def _answer(self, order: str) -> tuple[str, Any]:
        try:
            return self._epoch() if order == "epoch" else self._batch()
        except KeyboardInterrupt:
            raise
        except BaseException as problem:
            self._watch.failed(problem, self.iterator)
            return "error", problem

    def _epoch(self) -> tuple[str, Any]:
        if not self._loader.persistent_workers:
            self.iterator = None  # ends the workers of the epoch before
        self._watch.began()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_SAID)
            self.iterator = iter(self._loader)
        leave_to_us(self.iterator)
        return "began", None

    def _batch(self) -> tuple[str, Any]:
        self._watch.asked()
        try:
            batch = next(self.iterator)
        except StopIteration:
            self._watch.ended()
            return "ended", None
        self._watch.came(batch)
        return "batch", batch


class FeederWithoutWorkers(Feeder):
    """The same by a thread of its own."""

    def __init__(self, loader: Any, watch: LoaderWatch, on_late: Callable[[], None]) -> None:
        super().__init__(loader, watch, on_late)
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._grad = torch.is_grad_enabled()
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._run,), name="fastpipe-diagnose", daemon=True).start()

    def ask(self, order: str, timeout_s: float) -> tuple[str, Any]:
        self._orders.put(order)
        try:
            return self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self._on_late()
            return "late", None

    def close(self, timeout_s: float) -> None:
        self._orders.put("close")

    def _run(self) -> None:
        torch.set_grad_enabled(self._grad)  # a thread's own, as the caller has it
        while (order := self._orders.get()) != "close":
            self._answers.put(self._answer(order))


def _shut_down(iterator: Any) -> None:
    with contextlib.suppress(Exception):
        iterator._shutdown_workers()


def leave_to_us(iterator: Any) -> None:
    """Has torch not tell of workers that end: it does so by an error in the main thread, wherever that is."""
    if getattr(iterator, "_worker_pids_set", False):
        with contextlib.suppress(Exception):
            from torch.utils.data._utils import signal_handling

            signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
            iterator._worker_pids_set = False


def wake(iterator: Any) -> None:
    """Has whoever waits for a batch of workers that are gone find out now; torch itself looks every five seconds."""
    answers = getattr(iterator, "_worker_result_queue", None)
    if answers is not None:
        with contextlib.suppress(Exception):
            answers.cancel_join_thread()
            answers.put((None, None))  # the answer to nothing that was asked: an error
