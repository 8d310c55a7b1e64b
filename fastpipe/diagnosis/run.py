"""A user's DataLoader, iterated for a while -> a Diagnosis. Whoever waits for a batch can stop waiting.

With workers the caller's own thread asks, since that is what forks: OpenMP's threads belong to the thread that started
them, and a loader that hangs for their sake would not if another forked. Once the workers are ended, the caller is free
again. Without workers nothing can be ended, so a thread asks, and is left alone if it hangs.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fastpipe.diagnosis import stuck
from fastpipe.diagnosis.ended import ended
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.inject.fastpipe_probe.files import arm, disarm
from fastpipe.diagnosis.inject.fastpipe_probe.objects import kept_generators
from fastpipe.diagnosis.inject.fastpipe_probe.watch import LoaderWatch
from fastpipe.diagnosis.observation import Observation, observation, surroundings
from fastpipe.diagnosis.report import Diagnosis, report
from fastpipe.diagnosis.stacks import Stack, children
from fastpipe.errors import ConfigError

# What torch says of loaders that the findings say better, and what Python says of forks beside a thread: one of ours.
_SAID = r"[\s\S]*(pin_memory|worker processes in total|Got pickle error|multi-threaded, use of fork)"
_LOOK_S = 0.1
_END_S = 15.0


@dataclass(frozen=True)
class Limits:
    """How long a loader is iterated.

    Attributes:
        batches, epochs: at most.
        until_s: no batch is asked for after this (time.monotonic()).
        stall_s: seconds without a batch until it is stuck.
    """

    batches: int
    epochs: int
    until_s: float
    stall_s: float


def run(dataloader: Any, limits: Limits, step: Callable[[Any], Any] | None, where: str) -> Diagnosis:
    """Iterates a loader, of which `where` is the line that made it; arguments and errors: `fastpipe.diagnose`."""
    folder = Path(tempfile.mkdtemp(prefix="fastpipe-diagnose-"))
    try:
        with kept_generators(), _kept_own_generators(dataloader):
            return _watched(dataloader, folder, limits, step, where)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watched(dataloader: Any, folder: Path, limits: Limits, step: Callable[[Any], Any] | None, where: str) -> Diagnosis:
    before = surroundings()
    watch = LoaderWatch(str(folder), dataloader, where, step=step is not None)
    # A copy that differs in two attributes: it has no worker yet, and its iterator is watched. All others, those of a
    # subclass too, are the same objects.
    loader = copy.copy(dataloader)
    loader.__dict__["_iterator"] = None
    loader.__dict__["_get_iterator"] = lambda: watch.iterator(loader, type(loader)._get_iterator)
    found: list[Finding] = []
    stacks: list[Stack] = []

    def stalled(waited_s: float) -> None:
        """Asks every process where it stands, then ends the workers: those of this loader, and no others."""
        seen = _seen(folder, watch)
        own = _own(feeder.iterator, watch)
        stacks.extend(stuck.stacks(seen, folder, own))
        found.append(stuck.finding(seen, folder, stacks, waited_s))
        _kill(feeder.iterator, own)

    arm(str(folder))
    feeder = (_Feeder if loader.num_workers else _ThreadFeeder)(loader, watch, lambda: stalled(limits.stall_s))
    try:
        word, problem = _iterate(feeder, watch, limits, step)
        if word == "error" and "timed out after" in str(problem):
            stalled(float(dataloader.timeout))
        elif word == "error":
            seen = _seen(folder, watch)
            found += ended(seen, seen.errors[-1], before.oom_kills, folder)
        return report(_seen(folder, watch), before, more=tuple(found), stacks=tuple(stacks))
    finally:
        iterator = feeder.iterator
        feeder.close(_END_S)
        _kill(iterator, set())
        with contextlib.suppress(Exception):
            disarm()


def _seen(folder: Path, watch: LoaderWatch) -> Observation:
    seen = observation(folder / f"loader-{watch.key}.jsonl")
    if seen is None:
        raise ConfigError(f"diagnose: cannot write to {folder}; check that the disk is not full")
    return seen


def _iterate(feeder: _Feeder, watch: LoaderWatch, limits: Limits, step: Callable[[Any], Any] | None) -> tuple[str, Any]:
    """Iterates until a limit is reached: how it ended, "ended", "late" or "error"."""
    for _ in range(limits.epochs):
        word, content = feeder.ask("epoch", limits.stall_s)
        if word != "began":
            return word, content
        for _ in range(limits.batches):
            if time.monotonic() > limits.until_s:
                return "ended", None
            word, content = feeder.ask("batch", limits.stall_s)
            if word == "ended":
                break
            if word != "batch":
                return word, content
            if step is not None:
                step(content)
            watch.stepped()
    return "ended", None


def _own(iterator: Any, watch: LoaderWatch) -> set[int]:
    """The workers of a loader: those that its iterator has, and those that are being started for it."""
    known = [worker.pid for worker in getattr(iterator, "_workers", [])]
    starting = [getattr(process, "pid", None) for process in watch.starting]
    return {pid for pid in [*known, *starting] if pid} & set(children(os.getpid()))


def _kill(iterator: Any, own: set[int]) -> None:
    """Ends a loader's workers, and those that it has not come as far as to know of."""
    workers = getattr(iterator, "_workers", [])
    for worker in workers:
        with contextlib.suppress(Exception):
            worker.kill()
    _wake(iterator)
    for pid in own:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _kept_own_generators(loader: Any) -> Iterator[None]:
    """Puts the generators of a loader and its sampler back at the end."""
    own = [getattr(loader, "generator", None), getattr(loader.sampler, "generator", None)]
    states = [(each, each.get_state()) for each in own if isinstance(each, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


class _Feeder:
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
        _leave_to_us(self.iterator)
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


class _ThreadFeeder(_Feeder):
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


def _leave_to_us(iterator: Any) -> None:
    """Has torch not tell of workers that end: it does so by an error in the main thread, wherever that is."""
    if getattr(iterator, "_worker_pids_set", False):
        with contextlib.suppress(Exception):
            from torch.utils.data._utils import signal_handling

            signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
            iterator._worker_pids_set = False


def _wake(iterator: Any) -> None:
    """Has whoever waits for a batch of workers that are gone find out now; torch itself looks every five seconds."""
    answers = getattr(iterator, "_worker_result_queue", None)
    if answers is not None:
        with contextlib.suppress(Exception):
            answers.cancel_join_thread()
            answers.put((None, None))  # the answer to nothing that was asked: an error
