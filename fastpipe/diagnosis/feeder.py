"""A DataLoader -> its batches, each asked for by a thread of its own, so that whoever waits can stop waiting."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
import warnings
from typing import Any

import torch

from fastpipe.diagnosis.inject.fastpipe_probe.watch import LoaderWatch

# What torch says of loaders that the findings say better, and what Python says of forks beside a thread: this one.
_SAID = r"[\s\S]*(pin_memory|worker processes in total|Got pickle error|multi-threaded, use of fork)"


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


class Feeder:
    """Asks a loader for its epochs and batches.

    Nothing is read ahead: a batch is asked for when `batch` is called, as a loop would. Only the asking is in a thread.

    Args:
        loader: a copy of the user's.
        watch: that notes when batches are asked for and come.
    """

    def __init__(self, loader: Any, watch: LoaderWatch) -> None:
        self._loader = loader
        self._watch = watch
        self.iterator: Any = None
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._grad = torch.is_grad_enabled()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="fastpipe-diagnose", daemon=True)
        self._thread.start()

    def ask(self, order: str, timeout_s: float) -> tuple[str, Any]:
        """Begins an epoch ("epoch") or asks for a batch ("batch").

        Returns:
            A word and what belongs to it: ("batch", the batch), ("began", None), ("ended", None), ("error", it), or
            ("late", None) if there was no answer in time.
        """
        self._orders.put(order)
        try:
            return self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return "late", None

    def close(self, timeout_s: float) -> bool:
        """Ends the loader's workers; False if that, too, was not answered in time."""
        self._orders.put("close")
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        torch.set_grad_enabled(self._grad)  # a thread's own, as the caller has it
        while (order := self._orders.get()) != "close":
            try:
                self._answers.put(self._epoch() if order == "epoch" else self._batch())
            except BaseException as problem:
                self._watch.failed(problem)
                self._answers.put(("error", problem))
        iterator, self.iterator = self.iterator, None
        with contextlib.suppress(Exception):
            if hasattr(iterator, "_shutdown_workers"):
                iterator._shutdown_workers()

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
