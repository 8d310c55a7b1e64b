"""The files of a watched program -> what was seen of its DataLoaders, and of the machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fastpipe.diagnosis.inject.fastpipe_probe.loader_facts import identify_loader
from fastpipe.diagnosis.inject.fastpipe_probe.records import (
    Batch,
    Ending,
    Epoch,
    Fetch,
    Snapshot,
)
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.machine.state import (
    read_container_memory,
    read_container_oom_kills,
    read_memory,
    read_oom_kills,
)

WITHOUT_WORKERS = -1
# The fields whose items are objects in the files.
_ITEM_TYPES: dict[str, type] = {
    "batches": Batch,
    "epochs": Epoch,
    "errors": Ending,
    "fetches": Fetch,
    "snapshots": Snapshot,
}


@dataclass
class Worker:
    """A process that makes batches."""

    number: int = WITHOUT_WORKERS  # this number is of the process that iterates
    pid: int = 0
    began_s: float = 0.0
    fetches: list[Fetch] = field(default_factory=list)
    start: Snapshot | None = None  # before its first batch
    cpus: Sequence[int] = ()  # on which it might run then; empty: not known
    binding: str = ""  # variables of OpenMP that bind threads
    snapshots: list[Snapshot] = field(default_factory=list)
    # Errors of samples and of collate_fn.
    failures: list[dict[str, Any]] = field(default_factory=list)
    # Samples that raised an error once, and then did not.
    read_again: list[str] = field(default_factory=list)
    # Checksums of the dataset's generators and of the global ones, before and after the first
    # batch.
    generators_before: dict[str, int] = field(default_factory=dict)
    generators_after: dict[str, int] = field(default_factory=dict)
    globals_before: dict[str, int] = field(default_factory=dict)
    globals_after: dict[str, int] = field(default_factory=dict)
    # Checksums of the global generators: at first, then after each of the first samples.
    states: list[dict[str, int]] = field(default_factory=list)
    # For each of the first samples of a stream, the checksum of the whole, then of its first parts.
    checksums: list[list[int]] = field(default_factory=list)
    # Parts of samples that lie where the sample before lies.
    reused: list[dict[str, str]] = field(default_factory=list)
    # Files and handles that were open before the fork, and that it uses.
    inherited: list[dict[str, str]] = field(default_factory=list)
    # Locks that were held at the fork.
    locks: list[dict[str, str]] = field(default_factory=list)
    # Threads of its parent at the fork.
    threads: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Observation:
    """All that was seen of one DataLoader.

    The DataLoaders that one line makes with the same options count as one.
    """

    key: str  # of its files
    # See `read_facts` in fastpipe_probe/loader_facts.py.
    facts: dict[str, Any] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    # Ends of steps that no next batch shows: epoch, batch, time.
    stepped: list[tuple[int, int, float]] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    # Sorted by their numbers, then by their starts.
    workers: list[Worker] = field(default_factory=list)
    # Snapshots of the process that iterates.
    snapshots: list[Snapshot] = field(default_factory=list)
    # Errors with which a request for a batch ended.
    errors: list[Ending] = field(default_factory=list)
    # The same DataLoader in other processes.
    others: list[Observation] = field(default_factory=list)
    # Locks of multiprocessing that it held when it started workers.
    holds: list[str] = field(default_factory=list)

    @property
    def made_at(self) -> str:
        return str(self.facts["made_at"])

    @property
    def num_workers(self) -> int:
        return int(self.facts["num_workers"])


@dataclass
class Program:
    """A Python program of the command that was watched. Workers are such programs, too."""

    pid: int = 0
    errors: list[Ending] = field(default_factory=list)  # with which it ended
    # DataLoaders that torch did not create because of their options: "made_at", the line, and
    # "error".
    option_errors: list[dict[str, str]] = field(default_factory=list)
    # The line that a worker runs again, and that would start workers.
    unguarded: str = ""


def read_programs(folder: Path) -> list[Program]:
    """Reads the file of each Python program that was watched."""
    return [
        _read_fields(Program(), path) for path in sorted(folder.glob("program-*.jsonl"))
    ]


def read_observations(folder: Path) -> list[Observation]:
    """Reads the files of all DataLoaders, in the order in which they were iterated."""
    observations = []
    for path in folder.glob("loader-*.jsonl"):
        observation = read_observation(path)
        if observation is not None:
            observations.append(observation)
    for observation in observations:
        identity = identify_loader(observation.facts)
        for other in observations:
            is_other_process = other.facts["pid"] != observation.facts["pid"]
            if is_other_process and identify_loader(other.facts) == identity:
                observation.others.append(other)

    def begin(observation: Observation) -> tuple[float, str]:
        began_s = observation.epochs[0].at_s if observation.epochs else 0.0
        return began_s, observation.key

    return sorted(observations, key=begin)


def read_observation(path: Path) -> Observation | None:
    """Reads the files of one DataLoader; None if it has not written its facts yet."""
    observation = _read_fields(Observation(path.stem.removeprefix("loader-")), path)
    if not observation.facts:
        return None
    # Two loaders that one line made may have been iterated by turns.
    observation.batches.sort(key=lambda batch: (batch.epoch, batch.number))
    # The file of a worker that was killed at its start may be empty.
    for worker_path in path.parent.glob(f"worker-{observation.key}-*.jsonl"):
        worker = _read_fields(Worker(), worker_path)
        if worker.pid:
            observation.workers.append(worker)
    observation.workers.sort(key=lambda worker: (worker.number, worker.began_s))
    return observation


_Record = TypeVar("_Record", Observation, Worker, Program)


def _read_fields(record: _Record, path: Path) -> _Record:
    """Reads a file: its lines extend the lists of a record, and set its other fields."""
    for line in read_lines(path):
        for name, value in line.items():
            if name in _ITEM_TYPES:
                value = [_ITEM_TYPES[name](**item) for item in value]
            elif name == "start":
                value = Snapshot(**value)
            current = getattr(record, name)
            if isinstance(current, list):
                current.extend(value)
            else:
                setattr(record, name, value)
    return record


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of a file.

    A process may end in the middle of its last line: that one is left out.
    """
    with path.open(encoding="utf-8") as file:
        for text in file:
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(text)


@dataclass(frozen=True)
class Surroundings:
    """The limits that a diagnosis compares with."""

    cpus: int  # granted to this process
    # Memory that programs, and this container, can still have; None: not known.
    free_bytes: int | None
    oom_kills: int | None  # as `count_oom_kills` returns it


def measure_surroundings() -> Surroundings:
    """Measures the surroundings of this process."""
    free_bytes = []
    machine_memory = read_memory()
    if machine_memory is not None:
        available, _ = machine_memory
        free_bytes.append(available)
    container_memory = read_container_memory()
    if container_memory is not None:
        used, limit = container_memory
        free_bytes.append(limit - used)
    return Surroundings(
        count_granted_cpus(), min(free_bytes, default=None), count_oom_kills()
    )


def count_oom_kills() -> int | None:
    """Counts the processes that the kernel killed for want of memory; None if it is not known."""
    counts = [
        count
        for count in (read_oom_kills(), read_container_oom_kills())
        if count is not None
    ]
    return sum(counts) if counts else None
