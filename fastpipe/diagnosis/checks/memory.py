"""Snapshots of processes and at the dataset's containers -> memory that grows, and its likely cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation, Snapshot
from fastpipe.diagnosis.surroundings import Surroundings
from fastpipe.diagnosis.words import count, size

_LEAST_GROWTH = 8 << 20
_LEAST_PART = 2 << 20
_LEAST_HEAVY = 50 << 20
_MOST_OF_MEMORY = 0.1


@dataclass(frozen=True)
class Growth:
    """Memory of one process's own.

    Attributes:
        process: which one.
        first_bytes, last_bytes: at the first look and at the last.
        batches: between them.
        steady: it went on in the last third, as fast as before: not what a process takes once, at its start.
        epoch_bytes: an epoch's growth at this rate; None where it is not steady, or an epoch's length is not known.
    """

    process: str
    first_bytes: int
    last_bytes: int
    batches: int
    steady: bool
    epoch_bytes: int | None

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes


def growths(seen: Observation) -> list[Growth]:
    """The process that iterates, then each worker that was looked at twice."""
    batches = seen.facts["batches"]
    each_of = None if batches is None else batches / max(seen.num_workers, 1)
    found = [_growth("the process that iterates", seen.snapshots, batches)]
    for worker in seen.workers:
        if worker.number >= 0:
            found.append(_growth(f"worker {worker.number}, pid {worker.pid}", worker.snapshots, each_of))
    return [growth for growth in found if growth is not None]


def _growth(process: str, snapshots: list[Snapshot], batches_an_epoch: float | None) -> Growth | None:
    taken = [(snapshot.batch, snapshot.private_bytes) for snapshot in snapshots if snapshot.private_bytes is not None]
    if len(taken) < 2:
        return None
    sizes = [size_bytes for _, size_bytes in taken]
    steady, batches = _steady(sizes), taken[-1][0] - taken[0][0]
    rate = (sizes[-1] - sizes[0]) / max(batches, 1)
    an_epoch = round(rate * batches_an_epoch) if steady and batches_an_epoch is not None else None
    return Growth(process, sizes[0], sizes[-1], batches, steady, an_epoch)


def _steady(sizes: list[int]) -> bool:
    third = len(sizes) // 3
    if third < 2:
        return False
    first, middle, last = median(sizes[:third]), median(sizes[third:-third]), median(sizes[-third:])
    return middle - first > _LEAST_PART and last - middle > max(_LEAST_PART, (middle - first) / 3)


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Workers that copy the dataset's objects, and other growth."""
    heavy = seen.facts["heavy"]
    held = sum(each["bytes"] for each in heavy)
    grown = [growth for growth in growths(seen) if growth.steady and growth.grown_bytes > _LEAST_GROWTH]
    copying = [growth for growth in grown if growth.process.startswith("worker")]
    if heavy and seen.num_workers > 0:
        total = held * seen.num_workers
        copied = seen.facts["method"] == "fork" and bool(copying)
        if copied or total > _LEAST_HEAVY:
            yield _objects(seen, around, held, copying)
            grown = [growth for growth in grown if growth not in copying or not copied]
    if grown:
        worst = max(grown, key=lambda growth: growth.grown_bytes)
        yield Finding(
            "memory-grows",
            Severity.BAD,
            f"{worst.process} grew by {size(worst.grown_bytes)} in {count(worst.batches, 'batch')}"
            f" (from {size(worst.first_bytes)}), and had not stopped"
            + ("" if worst.epoch_bytes is None else f": {size(worst.epoch_bytes)} an epoch"),
            "something is kept for each sample or batch: a cache in the dataset, or in the loop a list of batches, "
            "losses or outputs with their graphs",
            "bound the cache; keep numbers (loss.item()) in place of tensors"
            if worst.process.startswith("the")
            else "bound what the dataset keeps in __getitem__",
            "" if worst.process.startswith("the") and seen.num_workers else str(seen.facts["dataset_place"]),
            5,
        )


def _objects(seen: Observation, around: Surroundings, held: int, copying: list[Growth]) -> Finding:
    largest = seen.facts["heavy"][0]
    total = held * seen.num_workers
    forked = seen.facts["method"] == "fork"
    what = f"{largest['path']} is a {largest['kind']}, about {size(largest['bytes'])}"
    if len(seen.facts["heavy"]) > 1:
        what += f", and {len(seen.facts['heavy']) - 1} more like it"
    if copying:
        most = max(copying, key=lambda growth: growth.grown_bytes)
        what += (
            f"; {most.process} grew by {size(most.grown_bytes)} in {most.batches:,} batches, and had not stopped: "
            f"up to {size(total)} in {count(seen.num_workers, 'worker')}"
        )
    else:
        what += f": up to {size(total)} in {count(seen.num_workers, 'worker')}"
    large = around.free_bytes is not None and total > _MOST_OF_MEMORY * around.free_bytes
    return Finding(
        "copy-on-write" if forked else "objects-in-each-worker",
        Severity.BAD if copying or large else Severity.NOTE,
        what,
        "looking at a Python object writes its reference count, so a forked worker copies the pages that it reads"
        if forked
        else f"a worker that is started by {seen.facts['method']} gets a copy of all of it, by pickle, at its start",
        f"{largest['path'].replace('dataset', 'self', 1)} = np.array(..., dtype='S') for names, or a tensor for "
        "numbers, in place of Python objects",
        str(seen.facts["dataset_place"]),
        5,
    )
