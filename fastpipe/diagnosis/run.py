"""A user's DataLoader, iterated for a while -> a Diagnosis. Whoever waits for a batch can stop waiting.

See "The caller never hangs" in README.md.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import os
import queue
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data._utils import signal_handling

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
_NAME = "fastpipe-diagnose"  # of threads
_END = object()
_BETWEEN = object()  # among batches: an epoch has begun, or ended; the time until one is late begins anew


@dataclass(frozen=True)
class Limits:
    """How long a loader is iterated."""

    batches: int  # of each epoch, at most
    epochs: int
    until_s: float  # no batch is asked for after this (time.monotonic())
    stall_s: float  # without a batch until it is stuck


def run(dataloader: Any, limits: Limits, step: Callable[[Any], Any] | None, where: str) -> Diagnosis:
    """Iterates a loader, of which `where` is the line that made it; arguments and errors: `fastpipe.diagnose`."""
    own = (getattr(dataloader, "generator", None), getattr(dataloader.sampler, "generator", None))
    with (
        tempfile.TemporaryDirectory(prefix="fastpipe-diagnose-", ignore_cleanup_errors=True) as folder,
        kept_generators(*(each for each in own if isinstance(each, torch.Generator))),
    ):
        watched = _Run(dataloader, Path(folder), limits, LoaderWatch(folder, dataloader, where, step=step is not None))
        arm(folder)
        try:
            return watched.diagnosis(step)
        finally:
            watched.close()
            disarm()


class _Run:
    """A loader that is iterated and watched. Nothing is read ahead: a batch is asked for as a loop would."""

    def __init__(self, dataloader: Any, folder: Path, limits: Limits, watch: LoaderWatch) -> None:
        self._folder, self._limits, self._watch = folder, limits, watch
        self._before = surroundings()
        # A copy that differs in two attributes: it has no worker yet, and its iterator is watched. All others, those of
        # a subclass too, are the same objects.
        self._loader = copy.copy(dataloader)
        self._loader.__dict__ |= {"_iterator": None, "_get_iterator": self._get_iterator}
        self._iterator: Any = None  # torch's, even where a subclass has one of its own around it
        self._found: list[Finding] = []
        self._stacks: list[Stack] = []

    def diagnosis(self, step: Callable[[Any], Any] | None) -> Diagnosis:
        """Iterates until a limit is reached, the loader is late, or it raises an error."""
        ask = _here if self._loader.num_workers else _elsewhere
        with contextlib.closing(ask(self._batches(), self._limits.stall_s, self._stalled)) as batches:
            for batch in batches:
                if self._found:
                    break  # it was late
                if step is not None and batch is not _BETWEEN:
                    step(batch)
                    self._watch.stepped()
        seen = self._seen()
        if seen.errors and not self._found:
            if seen.errors[-1].timed_out:
                self._stalled(float(self._loader.timeout))
            else:
                self._found += ended(seen, seen.errors[-1], self._before.oom_kills, self._folder)
        return report(seen, self._before, more=tuple(self._found), stacks=tuple(self._stacks))

    def close(self) -> None:
        """Ends the workers; those that do not end in time, by force."""
        iterator, self._iterator = self._iterator, None

        def shut_down() -> None:
            with contextlib.suppress(Exception):  # one without workers has no such method
                iterator._shutdown_workers()

        ending = threading.Thread(target=shut_down, name=_NAME, daemon=True)
        ending.start()
        ending.join(_END_S)
        _kill(iterator, set())

    def _batches(self) -> Iterator[Any]:
        """Of all epochs, until a limit is reached, and _BETWEEN; they end where the loader raises an error, noted."""
        try:
            for _ in range(self._limits.epochs):
                if not self._loader.persistent_workers:
                    self._iterator = iterator = None  # ends the workers of the epoch before
                self._watch.began(self._loader)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=_SAID)
                    iterator = iter(self._loader)
                yield _BETWEEN
                for _ in range(self._limits.batches):
                    if time.monotonic() > self._limits.until_s:
                        return
                    try:
                        batch = self._watch.next(iterator, next)
                    except StopIteration:
                        break
                    yield batch
                yield _BETWEEN
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as problem:
            self._watch.failed(problem, self._iterator, self._loader.dataset)

    def _get_iterator(self) -> Any:
        iterator = self._iterator = self._watch.iterator(self._loader, type(self._loader)._get_iterator)
        with contextlib.suppress(Exception):
            if iterator._worker_pids_set:  # torch would tell of workers that end by an error, wherever the caller is
                signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
                iterator._worker_pids_set = False
        return iterator

    def _seen(self) -> Observation:
        seen = observation(self._folder / f"loader-{self._watch.line.key}.jsonl")
        if seen is None:
            raise ConfigError(f"diagnose: cannot write to {self._folder}; check that the disk is not full")
        return seen

    def _stalled(self, waited_s: float) -> None:
        """Asks every process where it stands, then ends the workers: those of this loader, and no others."""
        seen = self._seen()
        known = [*getattr(self._iterator, "_workers", []), *self._watch.starting]
        own = {pid for each in known if (pid := getattr(each, "pid", None))} & set(children(os.getpid()))
        self._stacks += stuck.stacks(seen, self._folder, own)
        self._found.append(stuck.finding(seen, self._folder, self._stacks, waited_s))
        _kill(self._iterator, own)


def _here(batches: Iterator[Any], stall_s: float, stalled: Callable[[float], None]) -> Generator[Any, None, None]:
    """The batches, asked for by this thread; another one looks at the time, and tells once a batch is late.

    The workers are ended then, so that this thread is free again.
    """
    lock, over = threading.Lock(), threading.Event()
    asked_s: float | None = None

    def look() -> None:
        while not over.wait(_LOOK_S):
            with lock:  # the batch has to wait until all is known that is to be known of a stall
                if asked_s is not None and time.monotonic() - asked_s > stall_s:
                    stalled(stall_s)
                    return

    threading.Thread(target=look, name=_NAME, daemon=True).start()
    try:
        while True:
            with lock:
                asked_s = time.monotonic()
            batch = next(batches, _END)
            with lock:
                asked_s = None
            if batch is _END:
                return
            yield batch
    finally:
        over.set()


def _elsewhere(batches: Iterator[Any], stall_s: float, stalled: Callable[[float], None]) -> Generator[Any, None, None]:
    """The batches, asked for by a thread of their own, which is left alone once it is late."""
    orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def answer(grad: bool) -> None:
        torch.set_grad_enabled(grad)  # a thread's own, as the caller has it
        while orders.get():
            answers.put(next(batches, _END))

    run_as_here = contextvars.copy_context().run
    threading.Thread(target=run_as_here, args=(answer, torch.is_grad_enabled()), name=_NAME, daemon=True).start()
    try:
        while True:
            orders.put(True)
            try:
                batch = answers.get(timeout=stall_s)
            except queue.Empty:
                stalled(stall_s)
                return
            if batch is _END:
                return
            yield batch
    finally:
        orders.put(False)


def _kill(iterator: Any, own: set[int]) -> None:
    """Ends a loader's workers, and those that it does not know of yet; and wakes whoever waits for them."""
    for worker in getattr(iterator, "_workers", []):
        with contextlib.suppress(Exception):
            worker.kill()
    answers = getattr(iterator, "_worker_result_queue", None)
    if answers is not None:
        with contextlib.suppress(Exception):
            answers.cancel_join_thread()
            answers.put((None, None))  # the answer to nothing that was asked: an error. torch looks every five seconds
    for pid in own:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
