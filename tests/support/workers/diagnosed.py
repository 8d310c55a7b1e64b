"""Datasets with one fault each, for the tests of diagnoses; workers that are spawned import this module."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import fastpipe
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.report import Diagnosis

FAULTS = str(Path(__file__))


class Numbers(Dataset[Any]):
    """Sound: a sample is its number, of 64; or what a subclass makes of it."""

    length = 64

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Any:
        return self.sample(number)

    def sample(self, number: int) -> Any:
        return torch.full((3, 8, 8), number, dtype=torch.uint8), number


class Stuck(Numbers):
    """One sample never comes; without the GIL (sleep) or with it (match)."""

    def __init__(self, how: str = "sleep") -> None:
        self.how = how

    def sample(self, number: int) -> Any:
        return self.never(number) if number == 20 else number

    def never(self, number: int) -> Any:
        if self.how == "match":
            return re.match(r"(a+)+b", "a" * 60)
        return time.sleep(3600)


class Failing(Numbers):
    """One sample raises, or ends the process."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.files = [f"photos/{number}.jpg" for number in range(self.length)]

    def sample(self, number: int) -> Any:
        if number == 20 and self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 20:
            raise OSError("image file is truncated")
        return number


class Slow(Numbers):
    """Every sample takes `usual_s`, numbers 40 and 50 take 0.2 s."""

    def __init__(self, usual_s: float, slow: tuple[int, ...] = ()) -> None:
        self.usual_s = usual_s
        self.slow = slow

    def sample(self, number: int) -> Any:
        time.sleep(0.2 if number in self.slow else self.usual_s)
        return number


class Own(Numbers):
    """Draws from a generator of its own, made once; or made anew in each worker."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)

    def sample(self, number: int) -> Any:
        return int(self.rng.integers(1 << 31))


def seed_own(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng([7, worker])  # type: ignore[attr-defined]


class Names(Numbers):
    """Holds many names, and reads some thousand of them for a sample."""

    length = 100

    def __init__(self, names: Any, seconds: float = 0.03) -> None:
        self.names = names
        self.seconds = seconds

    def sample(self, number: int) -> Any:
        part = len(self.names) // self.length
        for name in self.names[part * number : part * (number + 1)]:
            len(str(name))
        time.sleep(self.seconds)
        return number


class Telling(Numbers):
    """Has a lambda that its workers do not get."""

    def __init__(self) -> None:
        self.tell = lambda text: None

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Keeping(Numbers):
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def sample(self, number: int) -> Any:
        self.kept.append(np.full(1 << 20, number, np.uint8))
        return number


class Sums(Numbers):
    """A sample is work that torch does on several threads, if it may."""

    def sample(self, number: int) -> Any:
        return (torch.ones(2000, 2000) * number).sum()


class Stream(IterableDataset[Any]):
    """100 numbers; all of them in each worker, or a part in each."""

    def __init__(self, split: bool) -> None:
        self.split = split

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        numbers = range(100)
        return iter(numbers[worker.id :: worker.num_workers] if self.split and worker else numbers)


def never_starts(worker: int) -> None:
    time.sleep(3600)


def opencv_threads(worker: int) -> None:
    import cv2

    cv2.setNumThreads(4)


def torch_threads(worker: int) -> None:
    torch.set_num_threads(4)


def pause(batch: Any) -> None:
    """A step that a sound loader keeps up with."""
    time.sleep(0.02)


def slow_pause(batch: Any) -> None:
    """Leaves a large process's memory the time to be looked at often enough."""
    time.sleep(0.08)


class Locked(Numbers):
    """Its lock is held by another thread of the main process as workers are forked."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()

    def __getitem__(self, number: int) -> torch.Tensor:
        with self.lock:
            return super().__getitem__(number)


def diagnosed(
    dataset: Any, *, step: Any = pause, stall_timeout: float = 300.0, **options: Any
) -> Diagnosis:
    """Diagnoses a DataLoader of two forked workers, or with other options, for an epoch."""
    if options.setdefault("num_workers", 2):
        options.setdefault("multiprocessing_context", "fork")
    limits = {
        name: options.pop(name) for name in ("batches", "epochs", "seconds") if name in options
    }
    loader = DataLoader(dataset, **{"batch_size": 4, **options})
    return fastpipe.diagnose(
        loader, step=step, stall_timeout=stall_timeout, **{"epochs": 1, **limits}
    )


def line_of(text: str, path: str = FAULTS) -> int:
    """The line of a file that begins with a text."""
    lines = Path(path).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.lstrip().startswith(text))


def names(diagnosis: Diagnosis) -> set[str]:
    return {finding.name for finding in diagnosis.findings}


def finding(diagnosis: Diagnosis, name: str) -> Finding:
    (found,) = [each for each in diagnosis.findings if each.name == name]
    return found
