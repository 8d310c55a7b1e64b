"""`fastpipe.diagnose(dataloader)`: iterates a DataLoader of the user's for a while -> a Diagnosis."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from fastpipe.config import positive, whole
from fastpipe.diagnosis import stuck
from fastpipe.diagnosis.feeder import Feeder
from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.generators import kept_generators
from fastpipe.diagnosis.inject.fastpipe_probe.files import arm, disarm
from fastpipe.diagnosis.inject.fastpipe_probe.watch import LoaderWatch
from fastpipe.diagnosis.killed import killed
from fastpipe.diagnosis.observation import Observation, observation
from fastpipe.diagnosis.origin import made_at
from fastpipe.diagnosis.report import Diagnosis, report
from fastpipe.diagnosis.stacks import Stack, children
from fastpipe.diagnosis.surroundings import surroundings
from fastpipe.errors import ConfigError

_END_S = 15.0


def diagnose(
    dataloader: Any,
    *,
    batches: int = 100,
    epochs: int = 2,
    seconds: float = 120.0,
    step: Callable[[Any], Any] | None = None,
    stall_timeout: float = 60.0,
) -> Diagnosis:
    """Says why a torch DataLoader is slow or stuck: iterates it for a while and looks at every process that it has.

        print(fastpipe.diagnose(loader, step=train_step))

    The loader stays as it is: a copy of it is iterated, with workers of its own; order and results do not change, and
    the random generators of torch, NumPy and Python on the CPU, and the loader's, are afterwards where they were. It is
    iterated in a thread, so that a loader that hangs does not hang its caller; `step` is called in the caller's. A
    worker that hangs is ended; a dataset that hangs without workers keeps its thread until the program ends.

    Args:
        dataloader: a `torch.utils.data.DataLoader`, or of a subclass.
        batches: at most, of each epoch.
        epochs: at most.
        seconds: after which no more batches are asked for.
        step: called with each batch, as a training step would be; its time is what the loader's is compared with. None:
            batches are only read, as fast as they come.
        stall_timeout: seconds without a batch after which the loader is stuck: all stacks are dumped, and it ends.

    Returns:
        What was found; `print` shows it, `as_dict()` is for JSON.

    Raises:
        ConfigError: an argument is none of these. What `step` raises is passed on.
    """
    if not isinstance(dataloader, DataLoader):
        raise ConfigError(
            f"dataloader: expected a torch.utils.data.DataLoader, got {type(dataloader).__name__}; a fastpipe.loader "
            "tells by itself what holds it up: stats(), fastpipe.monitor(loader), stall_timeout="
        )
    limits = _Limits(
        whole("batches", batches, least=1, most=10**9),
        whole("epochs", epochs, least=1, most=10**6),
        time.monotonic() + positive("seconds", seconds),
        positive("stall_timeout", stall_timeout),
    )
    folder = Path(tempfile.mkdtemp(prefix="fastpipe-diagnose-"))
    try:
        with kept_generators(dataloader):
            return _watched(dataloader, folder, limits, step, made_at(dataloader, sys._getframe(1)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Limits:
    def __init__(self, batches: int, epochs: int, until_s: float, stall_s: float) -> None:
        self.batches, self.epochs, self.until_s, self.stall_s = batches, epochs, until_s, stall_s


def _watched(
    dataloader: Any, folder: Path, limits: _Limits, step: Callable[[Any], Any] | None, where: str
) -> Diagnosis:
    before = surroundings()
    watch = LoaderWatch(str(folder), dataloader, where)
    # A copy that differs in two attributes: it has no worker yet, and its iterator is watched. All others, those of a
    # subclass too, are the same objects.
    loader = copy.copy(dataloader)
    loader.__dict__["_iterator"] = None
    loader.__dict__["_get_iterator"] = lambda: watch.iterator(loader, type(loader)._get_iterator)
    others = children(os.getpid())
    arm(str(folder))
    feeder = Feeder(loader, watch)
    end_s = _END_S
    try:
        word, problem = _iterate(feeder, watch, limits, step)
        seen = observation(folder / f"loader-{watch.key}.jsonl")
        if seen is None:
            raise ConfigError(f"diagnose: nothing could be written to {folder}: is the disk full?")
        found: list[Finding] = []
        stacks: list[Stack] = []
        timed_out = word == "error" and "timed out after" in str(problem)
        if word == "late" or timed_out:
            waited_s = limits.stall_s if word == "late" else float(dataloader.timeout)
            stacks = stuck.stacks(seen, folder, others)
            found.append(stuck.finding(seen, folder, stacks, waited_s))
            _kill(feeder.iterator, [stack.pid for stack in stacks])
            if not seen.num_workers:
                end_s = 0.1  # nothing ends it
        elif word == "error":
            found += _error(seen, problem, before.oom_kills)
        return report(seen, before, more=tuple(found), stacks=tuple(stacks))
    finally:
        if not feeder.close(end_s):
            _kill(feeder.iterator, [])
        with contextlib.suppress(Exception):
            disarm()


def _iterate(feeder: Feeder, watch: LoaderWatch, limits: _Limits, step: Callable[[Any], Any] | None) -> tuple[str, Any]:
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


def _kill(iterator: Any, stacks: list[int]) -> None:
    """Ends a loader's workers, without torch's telling the main thread that they were killed."""
    workers = getattr(iterator, "_workers", [])
    with contextlib.suppress(Exception):
        from torch.utils.data._utils import signal_handling

        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
    for worker in workers:
        with contextlib.suppress(Exception):
            worker.kill()
    for pid in stacks:
        if pid != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _error(seen: Observation, problem: BaseException, oom_kills: int | None) -> list[Finding]:
    """A finding for an error that no sample explains."""
    text = f"{type(problem).__name__}: {problem}"
    if any(worker.failures for worker in seen.workers):
        return []
    if "killed by signal" in text or "exited unexpectedly" in text:
        return [killed(seen, text, oom_kills)]
    section = 10 if "pickle" in text or "local object" in text else 4 if "open files" in text else 0
    return [
        Finding(
            "error",
            Severity.BAD,
            f"the loader ended with {text[:1000]}",
            "this is not about speed: the loader does not run",
            "mend this first",
            seen.made_at,
            section,
        )
    ]
