"""The files that a watched program has written -> what was seen of each of its DataLoaders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

WITHOUT_WORKERS = -1


@dataclass(frozen=True)
class Batch:
    """A batch as the loop saw it; times in seconds of time.monotonic().

    Attributes:
        epoch, number: which one.
        asked_s, came_s: when it was asked for and when it was there.
        size_bytes: of its tensors.
        stepped_s: when the step ended that got it; None where that was not seen.
        sampler_s: seconds that the sampler took since the batch before, in the process that iterates.
    """

    epoch: int
    number: int
    asked_s: float
    came_s: float
    size_bytes: int
    stepped_s: float | None = None
    sampler_s: float = 0.0

    @property
    def wait_s(self) -> float:
        return self.came_s - self.asked_s


@dataclass(frozen=True)
class Fetch:
    """A batch as the process saw it that made it.

    Attributes:
        at_s: when it was made (time.monotonic()).
        seconds: it took; of these dataset_s in the dataset and collate_s in collate_fn.
        cpu_s: seconds of CPU, over all threads.
        delayed_s: seconds that the process waited for a CPU; None where the kernel does not say.
        samples: how many.
        times_us: microseconds of each sample; empty where the dataset reads whole batches.
        worst: the slowest samples: number, seconds, name.
    """

    at_s: float
    seconds: float
    dataset_s: float
    collate_s: float
    cpu_s: float
    delayed_s: float | None
    samples: int
    times_us: tuple[int, ...]
    worst: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Snapshot:
    """A process at one moment: memory of its own, threads, and what its libraries are set to; None: not known.

    `used_bytes` is memory in use: *Note [memory in use]* in fastpipe_probe/machine.py.
    """

    batch: int
    private_bytes: int | None
    threads: int | None
    torch_threads: int | None
    cv2_threads: int | None
    open_files: int | None = None
    used_bytes: int | None = None


@dataclass
class Worker:
    """A process that makes batches; number -1: the one that iterates.

    Attributes:
        start: a snapshot before its first batch.
        failures: errors of samples and of collate_fn.
        read_again: samples that raised an error and, read once more, did not.
        generators_before, generators_after: checksums of the dataset's generators, before and after the first batch.
        globals_before, globals_after: those of the global generators of random, NumPy and torch.
        states: the global generators before the first sample and after each of the first ones.
        checksums: of the first samples of a stream: of the whole, then of each part.
        inherited: files and handles that it has from the process that it was forked from, and uses.
        locks, threads: locks that were held at the fork, and the threads of its parent at that moment.
    """

    number: int
    pid: int
    began_s: float
    variables: dict[str, str] = field(default_factory=dict)
    fetches: list[Fetch] = field(default_factory=list)
    start: Snapshot | None = None
    snapshots: list[Snapshot] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    read_again: list[str] = field(default_factory=list)
    generators_before: dict[str, int] = field(default_factory=dict)
    generators_after: dict[str, int] = field(default_factory=dict)
    globals_before: dict[str, int] = field(default_factory=dict)
    globals_after: dict[str, int] = field(default_factory=dict)
    states: list[dict[str, int]] = field(default_factory=list)
    checksums: list[list[int]] = field(default_factory=list)
    inherited: list[dict[str, str]] = field(default_factory=list)
    locks: list[dict[str, str]] = field(default_factory=list)
    threads: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Epoch:
    """An epoch that was asked for.

    Attributes:
        at_s: when (time.monotonic()).
        place: the user's line that asked; "" where that is not known.
        sampler: name and epoch of a sampler that shuffles by its epoch; None of others.
        made: which of the DataLoaders made at the same line it is of.
        changed: attributes of the dataset that have another value than when workers that persist were started.
    """

    at_s: float
    place: str = ""
    sampler: dict[str, Any] | None = None
    made: int = 0
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ending:
    """An error with which asking for a batch, or the program, ended.

    Attributes:
        text: type and message.
        place: the user's line that it came through; "" where there is none.
        exits: workers that had ended with an error: number, process, exit code.
        refused: attributes of the dataset that pickle refuses, where it refused.
    """

    text: str
    place: str = ""
    exits: tuple[tuple[int, int, int], ...] = ()
    refused: tuple[dict[str, str], ...] = ()


@dataclass
class Observation:
    """All that was seen of one DataLoader.

    Attributes:
        key: of its files; `others` are those of DataLoaders that the same line made later.
        facts: its options and what is in its dataset; `facts` in fastpipe_probe/watch.py lists them.
        batches: in the order in which they came.
        epochs: that were asked for.
        workers: in the order of their numbers, then of their starts.
        snapshots: of the process that iterates.
        errors: with which asking for a batch ended.
        holds: locks of multiprocessing that the process which iterates held when it started workers.
        ended: epochs that came to their end.
    """

    key: str
    facts: dict[str, Any]
    batches: list[Batch] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    errors: list[Ending] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    ended: int = 0
    others: list[str] = field(default_factory=list)

    @property
    def made_at(self) -> str:
        return str(self.facts["made_at"])

    @property
    def num_workers(self) -> int:
        return int(self.facts["num_workers"])


def observations(folder: Path) -> list[Observation]:
    """Every DataLoader that was iterated, in the order in which they were."""
    found = [seen for path in folder.glob("loader-*.jsonl") if (seen := observation(path)) is not None]
    return sorted(found, key=lambda seen: (seen.epochs[0].at_s if seen.epochs else 0.0, seen.key))


def observation(path: Path) -> Observation | None:
    """What the files of one DataLoader say; None if it has not said anything yet."""
    lines = records(path)
    facts = next(lines, None)
    if facts is None:
        return None
    seen = Observation(path.stem.removeprefix("loader-"), facts)
    for line in lines:
        if "batch" in line:
            batch = Batch(
                line["epoch"], line["batch"], line["asked"], line["came"], line["bytes"], sampler_s=line["sampler"]
            )
            seen.batches.append(batch)
            if "snapshot" in line:
                seen.snapshots.append(_snapshot(len(seen.batches) - 1, line["snapshot"]))
        elif "stepped" in line:
            seen.batches[-1] = replace(seen.batches[-1], stepped_s=line["at"])
        elif "epoch" in line:
            seen.epochs.append(
                Epoch(line["at"], line["place"], line["sampler"], changed=tuple(line.get("changed", ())))
            )
        elif "error" in line:
            seen.errors.append(ending(line))
        elif "holds" in line:
            seen.holds = line["holds"]
        elif "ended" in line:
            seen.ended += 1
    workers = [_worker(other) for other in path.parent.glob(f"worker-{seen.key}-*.jsonl")]
    seen.workers = sorted((each for each in workers if each), key=lambda each: (each.number, each.began_s))
    return seen


def ending(line: dict[str, Any]) -> Ending:
    """From the line of a file."""
    exits = tuple((number, pid, code) for number, pid, code in line.get("exits", ()))
    return Ending(line["error"], line["place"], exits, tuple(line.get("refused", ())))


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file; one that its process did not get to finish is left out."""
    with path.open(encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(line, dict):
                yield line


def _worker(path: Path) -> Worker | None:
    lines = records(path)
    first = next(lines, None)
    if first is None:
        return None
    worker = Worker(first["id"], first["pid"], first["at"], first["variables"])
    for line in lines:
        if "failed" in line:
            worker.failures.append(line)
        elif "seconds" in line:
            worker.fetches.append(
                Fetch(
                    line["at"],
                    line["seconds"],
                    line["dataset"],
                    line["collate"],
                    line["cpu"],
                    line["delayed"],
                    line["samples"],
                    tuple(line["times"]),
                    tuple((index, seconds, name) for index, seconds, name in line["worst"]),
                )
            )
            if "snapshot" in line:
                worker.snapshots.append(_snapshot(len(worker.fetches) - 1, line["snapshot"]))
            worker.checksums += line.get("checksums", [])
            worker.generators_after = line.get("generators", worker.generators_after)
            worker.globals_after = line.get("globals", worker.globals_after)
            worker.states = line.get("states", worker.states)
        elif "again" in line:
            worker.read_again.append(line["again"])
        elif "inherited" in line:
            worker.inherited = line["inherited"]
        elif "locks" in line:
            worker.locks, worker.threads = line["locks"], line["threads"]
        elif "generators" in line:
            worker.generators_before = line["generators"]
            worker.globals_before = line["globals"]
            worker.start = _snapshot(0, line["snapshot"])
    return worker


def _snapshot(batch: int, taken: dict[str, Any]) -> Snapshot:
    return Snapshot(
        batch,
        taken["private"],
        taken["threads"],
        taken.get("torch"),
        taken.get("cv2"),
        taken["files"],
        taken["used"],
    )
