"""A user's DataLoader, iterated for a while -> a Diagnosis.

Whoever waits for a batch can stop waiting.

See "The caller never hangs" in README.md.
"""

from __future__ import annotations

import contextlib
import copy
import os
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
from torch.utils.data._utils import signal_handling

from fastpipe.diagnosis import stuck
from fastpipe.diagnosis.batch_requests import (
    THREAD_NAME,
    request_from_thread,
    request_here,
)
from fastpipe.diagnosis.ended import explain_ending
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.inject.fastpipe_probe.files import (
    install_dump_handler,
    remove_dump_handler,
)
from fastpipe.diagnosis.inject.fastpipe_probe.generators import preserve_generators
from fastpipe.diagnosis.inject.fastpipe_probe.watch import LoaderWatch
from fastpipe.diagnosis.observation import (
    Observation,
    measure_surroundings,
    read_observation,
)
from fastpipe.diagnosis.processes import list_children
from fastpipe.diagnosis.report import Diagnosis, make_diagnosis
from fastpipe.diagnosis.stacks import Stack
from fastpipe.errors import ConfigError

# The findings say the same better than torch. And Python warns of a fork beside a thread, which is
# one of ours.
_KNOWN_WARNINGS = r"[\s\S]*(pin_memory|worker processes in total|Got pickle error|multi-threaded, use of fork)"
_MAX_SHUTDOWN_S = 15.0
# Stands among the batches where an epoch has begun or ended. The time until a batch is late begins
# anew there.
_EPOCH_MARK = object()


@dataclass(frozen=True)
class Limits:
    """How long a loader is iterated."""

    batches: int  # of each epoch, at most
    epochs: int
    until_s: float  # the time.monotonic() after which no batch is asked for
    stall_s: float  # a loader is stuck after this time without a batch


def run(
    dataloader: Any, limits: Limits, step: Callable[[Any], Any] | None, made_at: str
) -> Diagnosis:
    """Iterates a loader that the line `made_at` has made.

    For arguments and errors see `fastpipe.diagnose`.
    """
    generators = []
    for owner in (dataloader, dataloader.sampler):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generators.append(generator)
    prefix = "fastpipe-diagnose-"
    with (
        tempfile.TemporaryDirectory(
            prefix=prefix, ignore_cleanup_errors=True
        ) as folder,
        preserve_generators(*generators),
    ):
        watch = LoaderWatch(folder, dataloader, made_at, step=step is not None)
        watched_run = _Run(dataloader, Path(folder), limits, watch)
        install_dump_handler(folder)
        try:
            return watched_run.diagnose(step)
        finally:
            watched_run.close()
            remove_dump_handler()


class _Run:
    """A loader that is iterated and watched.

    Nothing is read ahead: batches are asked for as a loop would.
    """

    def __init__(
        self, dataloader: Any, folder: Path, limits: Limits, watch: LoaderWatch
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._watch = watch
        self._surroundings = measure_surroundings()
        # A copy that differs in two attributes: it has no workers yet, and its iterator is watched.
        # All others, those of a subclass too, are the same objects.
        self._loader = copy.copy(dataloader)
        self._loader.__dict__["_iterator"] = None
        self._loader.__dict__["_get_iterator"] = self._get_iterator
        self._iterator: Any = None  # torch's, even if a subclass has its own around it
        self._findings: list[Finding] = []
        self._stacks: list[Stack] = []

    def diagnose(self, step: Callable[[Any], Any] | None) -> Diagnosis:
        """Iterates until a limit is reached, the loader is late, or it raises an error."""
        # Workers are forked by the thread that iterates: see "The caller never hangs" in README.md.
        request = request_here if self._loader.num_workers else request_from_thread
        batches = request(self._list_batches(), self._limits.stall_s, self._on_stall)
        with contextlib.closing(batches):
            for batch in batches:
                if self._findings:
                    break  # it was late
                if step is not None and batch is not _EPOCH_MARK:
                    step(batch)
                    self._watch.end_step()
        observation = self._read_observation()
        if observation.errors and not self._findings:
            error = observation.errors[-1]
            if error.is_timeout:
                self._on_stall(float(self._loader.timeout))
            else:
                self._findings += explain_ending(
                    observation, error, self._surroundings.oom_kills, self._folder
                )
        return make_diagnosis(
            observation,
            self._surroundings,
            more=tuple(self._findings),
            stacks=tuple(self._stacks),
        )

    def close(self) -> None:
        """Ends the workers; those that do not end in time, by force."""
        iterator = self._iterator
        self._iterator = None

        def shut_down() -> None:
            with contextlib.suppress(Exception):
                # An iterator without workers has no such method.
                iterator._shutdown_workers()

        # In a thread, because a worker that hangs would hang its shutdown, too.
        thread = threading.Thread(target=shut_down, name=THREAD_NAME, daemon=True)
        thread.start()
        thread.join(_MAX_SHUTDOWN_S)
        _kill_workers(iterator, set())

    def _list_batches(self) -> Iterator[Any]:
        """Yields the batches of all epochs, with marks, until a limit or an error of the loader."""
        try:
            for _ in range(self._limits.epochs):
                iterator = None
                if not self._loader.persistent_workers:
                    self._iterator = None  # that ends the workers of the epoch before
                self._watch.begin_epoch(self._loader)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=_KNOWN_WARNINGS)
                    iterator = iter(self._loader)
                yield _EPOCH_MARK
                for _ in range(self._limits.batches):
                    if time.monotonic() > self._limits.until_s:
                        return
                    try:
                        batch = self._watch.next_batch(iterator, next)
                    except StopIteration:
                        break
                    yield batch
                yield _EPOCH_MARK
        except (KeyboardInterrupt, GeneratorExit):
            raise  # the caller's doing, not the loader's
        except BaseException as problem:
            self._watch.record_error(problem, self._iterator, self._loader.dataset)

    def _get_iterator(self) -> Any:
        """Replaces the method of this name of the copied loader."""
        iterator = self._watch.make_iterator(
            self._loader, type(self._loader)._get_iterator
        )
        self._iterator = iterator
        # torch would raise an error in the main thread, wherever the caller is, if a worker ends by
        # an error.
        with contextlib.suppress(Exception):
            if iterator._worker_pids_set:
                signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
                iterator._worker_pids_set = False
        return iterator

    def _read_observation(self) -> Observation:
        observation = read_observation(
            self._folder / f"loader-{self._watch.line.key}.jsonl"
        )
        if observation is None:
            raise ConfigError(
                f"diagnose: cannot write to {self._folder}; check that the disk is not full"
            )
        return observation

    def _on_stall(self, waited_s: float) -> None:
        """Reads the stacks of all processes, then ends this loader's workers, and no others."""
        observation = self._read_observation()
        workers = getattr(self._iterator, "_workers", [])
        known = [*workers, *self._watch.starting]
        known_pids = {getattr(process, "pid", None) for process in known}
        children = list_children(os.getpid())
        worker_pids = {pid for pid in children if pid in known_pids}
        self._stacks += stuck.collect_stacks(observation, self._folder, worker_pids)
        finding = stuck.explain_stall(observation, self._folder, self._stacks, waited_s)
        self._findings.append(finding)
        _kill_workers(self._iterator, worker_pids)


def _kill_workers(iterator: Any, pids: set[int]) -> None:
    """Ends a loader's workers, also those that it does not know of yet, and wakes the caller."""
    for worker in getattr(iterator, "_workers", []):
        with contextlib.suppress(Exception):
            worker.kill()
    results = getattr(iterator, "_worker_result_queue", None)
    if results is not None:
        # The result of an index that was never sent is an error. Without it, torch looks every five
        # seconds only.
        with contextlib.suppress(Exception):
            results.cancel_join_thread()
            results.put((None, None))
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
