"""Looks at processes and at the dataset's containers -> memory that grows, and its likely cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Look, Observation
from fastpipe.diagnosis.surroundings import Surroundings
from fastpipe.diagnosis.words import count, size

_LEAST_GROWTH = 8 << 20
_LEAST_PART = 2 << 20
_LEAST_HEAVY = 50 << 20
_MOST_OF_MEMORY = 0.1


@dataclass(frozen=True)
class Growth:
    """Memory of one process's own: at the first look, the last, and the batches between."""

    process: str
    first_bytes: int
    last_bytes: int
    batches: int
    steady: bool

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes


def growths(seen: Observation) -> list[Growth]:
    """The process that iterates, then each worker that was looked at twice."""
    found = [_growth("the process that iterates", seen.looks)]
    found += [_growth(f"worker {each.number}, pid {each.pid}", each.looks) for each in seen.workers if each.number >= 0]
    return [growth for growth in found if growth is not None]


def _growth(process: str, looks: list[Look]) -> Growth | None:
    taken = [(look.batch, look.private_bytes) for look in looks if look.private_bytes is not None]
    if len(taken) < 2:
        return None
    sizes = [size_bytes for _, size_bytes in taken]
    third = max(1, len(sizes) // 3)
    parts = [
        median(sizes[:third]),
        median(sizes[third : max(-third, -len(sizes) + third)] or sizes),
        median(sizes[-third:]),
    ]
    # Not what a process takes at its start, once: it goes on in the last third, and as fast as before.
    steady = (
        len(sizes) >= 6
        and parts[1] - parts[0] > _LEAST_PART
        and parts[2] - parts[1] > max(_LEAST_PART, (parts[1] - parts[0]) / 3)
    )
    return Growth(process, sizes[0], sizes[-1], taken[-1][0] - taken[0][0], steady)


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
            f" (from {size(worst.first_bytes)}), and had not stopped",
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
