"""The files of a watched program -> what was seen of each of its DataLoaders; and the CPUs and memory it may use."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fastpipe.diagnosis.inject.fastpipe_probe.files import Batch, Ending, Epoch, Fetch, Snapshot
from fastpipe.diagnosis.inject.fastpipe_probe.watch import alike
from fastpipe.machine.cpus import granted_cpus
from fastpipe.machine.state import container_memory_bytes, container_oom_kills, memory_bytes, oom_kills

WITHOUT_WORKERS = -1
_ITEMS: dict[str, type] = {"batches": Batch, "epochs": Epoch, "errors": Ending, "fetches": Fetch, "snapshots": Snapshot}


@dataclass
class Worker:
    """A process that makes batches."""

    number: int = WITHOUT_WORKERS  # of the process that iterates
    pid: int = 0
    began_s: float = 0.0
    fetches: list[Fetch] = field(default_factory=list)
    start: Snapshot | None = None  # before its first batch
    cpus: Sequence[int] = ()  # that it may run on then; none: not known
    binding: str = ""  # variables of OpenMP that bind threads
    snapshots: list[Snapshot] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)  # errors of samples and of collate_fn
    read_again: list[str] = field(default_factory=list)  # samples that raised an error and, read once more, did not
    # Checksums of the dataset's generators and of the global ones, before and after the first batch.
    generators_before: dict[str, int] = field(default_factory=dict)
    generators_after: dict[str, int] = field(default_factory=dict)
    globals_before: dict[str, int] = field(default_factory=dict)
    globals_after: dict[str, int] = field(default_factory=dict)
    states: list[dict[str, int]] = field(default_factory=list)  # the global ones: at first, and after the first samples
    checksums: list[list[int]] = field(default_factory=list)  # of the first samples of a stream: the whole, each part
    reused: list[dict[str, str]] = field(default_factory=list)  # parts of samples that lie where the one before does
    inherited: list[dict[str, str]] = field(default_factory=list)  # files and handles from before the fork, in use
    locks: list[dict[str, str]] = field(default_factory=list)  # that were held at the fork
    threads: list[dict[str, str]] = field(default_factory=list)  # of its parent at the fork


@dataclass
class Observation:
    """All that was seen of one DataLoader, or of all that one line of a program makes with the same options."""

    key: str  # of its files
    facts: dict[str, Any] = field(default_factory=dict)  # those that `facts` in fastpipe_probe/watch.py lists
    batches: list[Batch] = field(default_factory=list)
    stepped: list[tuple[int, int, float]] = field(default_factory=list)  # epoch, number, and when its step had ended
    epochs: list[Epoch] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)  # in the order of their numbers, then of their starts
    snapshots: list[Snapshot] = field(default_factory=list)  # of the process that iterates
    errors: list[Ending] = field(default_factory=list)  # with which asking for a batch ended
    others: list[Observation] = field(default_factory=list)  # the same DataLoader in other processes
    holds: list[str] = field(default_factory=list)  # multiprocessing's locks that it held when it started workers

    @property
    def made_at(self) -> str:
        return str(self.facts["made_at"])

    @property
    def num_workers(self) -> int:
        return int(self.facts["num_workers"])


@dataclass
class Program:
    """A Python program of the command, its workers among them, that was watched."""

    pid: int = 0
    errors: list[Ending] = field(default_factory=list)  # with which it ended
    refused: list[dict[str, str]] = field(default_factory=list)  # errors of options, and the line that made the loader
    unguarded: str = ""  # the line that runs again in a worker, and would start workers itself


def programs(folder: Path) -> list[Program]:
    """Every Python program that was watched."""
    return [_filled(Program(), path) for path in sorted(folder.glob("program-*.jsonl"))]


def observations(folder: Path) -> list[Observation]:
    """Every DataLoader that was iterated, in the order in which they were."""
    found = [seen for path in folder.glob("loader-*.jsonl") if (seen := observation(path)) is not None]
    for seen in found:
        same = [other for other in found if alike(other.facts) == alike(seen.facts)]
        seen.others = [other for other in same if other.facts["pid"] != seen.facts["pid"]]
    return sorted(found, key=lambda seen: (seen.epochs[0].at_s if seen.epochs else 0.0, seen.key))


def observation(path: Path) -> Observation | None:
    """What the files of one DataLoader say; None if it has not said anything yet."""
    seen = _filled(Observation(path.stem.removeprefix("loader-")), path)
    seen.batches.sort(key=lambda batch: (batch.epoch, batch.number))  # of two loaders that one line made, by turns
    workers = [_filled(Worker(), other) for other in path.parent.glob(f"worker-{seen.key}-*.jsonl")]
    seen.workers = sorted((each for each in workers if each.pid), key=lambda each: (each.number, each.began_s))
    return seen if seen.facts else None


_Filled = TypeVar("_Filled", Observation, Worker, Program)


def _filled(to: _Filled, path: Path) -> _Filled:
    """Adds what a file says to the lists, and sets the other fields."""
    for line in records(path):
        for name, value in line.items():
            if name in _ITEMS:
                value = [_ITEMS[name](**each) for each in value]
            if isinstance(getattr(to, name), list):
                getattr(to, name).extend(value)
            else:
                setattr(to, name, Snapshot(**value) if name == "start" else value)
    return to


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file; one that its process did not get to finish is left out."""
    with path.open(encoding="utf-8") as file:
        for text in file:
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(text)


@dataclass(frozen=True)
class Surroundings:
    """What a diagnosis compares with."""

    cpus: int  # granted to this process
    free_bytes: int | None  # memory that programs, and this container, can still have; None: not known
    oom_kills: int | None  # as `kills` counts them


def surroundings() -> Surroundings:
    """The surroundings of this process, now."""
    memory, limit = memory_bytes(), container_memory_bytes()
    free = [*([memory[0]] if memory else []), *([limit[1] - limit[0]] if limit else [])]
    return Surroundings(granted_cpus(), min(free, default=None), kills())


def kills() -> int | None:
    """Processes that the kernel has killed for want of memory, here or in this container; None: it does not say."""
    counts = [count for count in (oom_kills(), container_oom_kills()) if count is not None]
    return sum(counts) if counts else None
