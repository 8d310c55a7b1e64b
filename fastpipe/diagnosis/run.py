"""A user's DataLoader, iterated for a while -> a Diagnosis."""

from __future__ import annotations

import contextlib
import copy
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastpipe.diagnosis import stuck
from fastpipe.diagnosis.ended import ended
from fastpipe.diagnosis.feeder import Feeder, FeederWithoutWorkers, wake
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.inject.fastpipe_probe.files import arm, disarm
from fastpipe.diagnosis.inject.fastpipe_probe.watch import LoaderWatch
from fastpipe.diagnosis.observation import Observation, observation
from fastpipe.diagnosis.report import Diagnosis, report
from fastpipe.diagnosis.stacks import Stack, children
from fastpipe.diagnosis.surroundings import surroundings
from fastpipe.errors import ConfigError

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
        with _kept_generators(dataloader):
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
    feeder: Feeder

    def stalled(waited_s: float) -> None:
        """Asks every process where it stands, then ends the workers: those of this loader, and no others."""
        seen = _seen(folder, watch)
        own = _own(feeder.iterator, watch)
        stacks.extend(stuck.stacks(seen, folder, own))
        found.append(stuck.finding(seen, folder, stacks, waited_s))
        _kill(feeder.iterator, own)

    arm(str(folder))
    kind = Feeder if loader.num_workers else FeederWithoutWorkers
    feeder = kind(loader, watch, lambda: stalled(limits.stall_s))
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


def _iterate(feeder: Feeder, watch: LoaderWatch, limits: Limits, step: Callable[[Any], Any] | None) -> tuple[str, Any]:
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
    wake(iterator)
    for pid in own:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _kept_generators(loader: Any) -> Iterator[None]:
    """Puts the CPU's generators of torch, NumPy and Python, and those of a loader and its sampler, back at the end."""
    own = [getattr(loader, "generator", None), getattr(loader.sampler, "generator", None)]
    states = [(each, each.get_state()) for each in own if isinstance(each, torch.Generator)]
    python, numpy, tensor = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.random.set_rng_state(tensor)
        for generator, state in states:
            generator.set_state(state)
