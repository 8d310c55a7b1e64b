"""Snapshots of processes and at the dataset's containers -> memory that grows, and its likely cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from fastpipe.diagnosis.code import kept_in_class, kept_in_loop, source
from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation, Snapshot
from fastpipe.diagnosis.surroundings import Surroundings
from fastpipe.diagnosis.words import count, size

_LEAST_COPIED = 8 << 20
_LEAST_KEPT = 16 << 20  # where a line of the program keeps something
_LEAST_GROWTH = 48 << 20  # where none is known
_LEAST_SNAPSHOTS = 8
_LEAST_BATCHES = 40
_LEAST_EACH = 8  # of a worker that is one of many
_EVEN = 0.4
_LEAST_HEAVY = 200 << 20
_MOST_OF_MEMORY = 0.1


@dataclass(frozen=True)
class Growth:
    """Memory of one process's own.

    Attributes:
        process: which one.
        first_bytes, last_bytes: at the first look and at the last.
        batches: between them.
        steady_bytes: by which it grew after the first third, if it went on as fast to the end; 0 if it slowed down, as
            growth does that a process takes once.
        kept_bytes: of these, that are in use: *Note [memory in use]* in fastpipe_probe/machine.py.
        epoch_bytes: an epoch's growth at this rate; None where it is not steady, or an epoch's length is not known.
    """

    process: str
    first_bytes: int
    last_bytes: int
    batches: int
    steady_bytes: int
    kept_bytes: int
    epoch_bytes: int | None

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes


def growths(seen: Observation) -> list[Growth]:
    """The process that iterates, then each worker that was looked at twice."""
    batches = seen.facts["batches"]
    each_of = None if batches is None else batches / max(seen.num_workers, 1)
    found = [_growth("the main process", seen.snapshots, batches)]
    for worker in seen.workers:
        if worker.number >= 0:
            found.append(_growth(f"worker {worker.number}, pid {worker.pid}", worker.snapshots, each_of))
    return [growth for growth in found if growth is not None]


def _growth(process: str, snapshots: list[Snapshot], batches_an_epoch: float | None) -> Growth | None:
    taken = [(snapshot.batch, snapshot.private_bytes) for snapshot in snapshots if snapshot.private_bytes is not None]
    if len(taken) < 2:
        return None
    batches = taken[-1][0] - taken[0][0]
    steady, rate = _steady(taken)
    used = [(snapshot.batch, snapshot.used_bytes) for snapshot in snapshots if snapshot.used_bytes is not None]
    kept = min(_steady(used)[0], steady) if len(used) == len(taken) else steady
    an_epoch = round(rate * batches_an_epoch) if steady and batches_an_epoch is not None else None
    return Growth(process, taken[0][1], taken[-1][1], batches, steady, kept, an_epoch)


def _steady(taken: list[tuple[int, int]]) -> tuple[int, float]:
    """Bytes by which a process grew evenly after the first third of its batches, and how many a batch; 0 if it did not.

    The rest is cut into four. The median grows from each quarter to the next, and in none much less than in another.
    """
    first, last = taken[0][0], taken[-1][0]
    rest = [(batch, size_bytes) for batch, size_bytes in taken if batch - first >= (last - first) / 3]
    if len(rest) < _LEAST_SNAPSHOTS:
        return 0, 0.0
    begin, length = rest[0][0], max(last - rest[0][0], 1)
    quarters: list[list[int]] = [[], [], [], []]
    for batch, size_bytes in rest:
        quarters[min(4 * (batch - begin) // length, 3)].append(size_bytes)
    if not all(quarters):
        return 0, 0.0
    middles = [median(quarter) for quarter in quarters]
    steps = [after - before for before, after in pairwise(middles)]
    if min(steps) <= 0 or min(steps) < _EVEN * max(steps):
        return 0, 0.0
    return rest[-1][1] - rest[0][1], (rest[-1][1] - rest[0][1]) / length


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Workers that copy the dataset's objects, and other growth."""
    heavy = seen.facts["heavy"]
    held = sum(each["bytes"] for each in heavy)
    grown = [growth for growth in growths(seen) if growth.steady_bytes > _LEAST_COPIED]
    copying = [growth for growth in grown if growth.process.startswith("worker")]
    if heavy and seen.num_workers > 0:
        total = held * seen.num_workers
        copied = seen.facts["method"] == "fork" and bool(copying)
        if copied or total > _LEAST_HEAVY:
            yield _objects(seen, around, held, copying)
            grown = [growth for growth in grown if growth not in copying or not copied]
    if grown:
        yield from _kept(seen, max(grown, key=lambda growth: growth.kept_bytes))


def _kept(seen: Observation, worst: Growth) -> Iterator[Finding]:
    """What a process keeps, where it is much, or where a line of the program is seen to keep something."""
    in_main = worst.process.startswith("the")
    dataset = str(seen.facts["dataset_place"])
    loops = Counter(epoch.place for epoch in seen.epochs if epoch.place).most_common(1)
    loop = loops[0][0] if loops and in_main else ""
    lines = [*(kept_in_loop(loop) if loop else []), *([] if in_main and seen.num_workers else kept_in_class(dataset))]
    if worst.batches < (_LEAST_BATCHES if in_main else max(_LEAST_EACH, _LEAST_BATCHES // max(seen.num_workers, 1))):
        return
    if worst.kept_bytes < (_LEAST_KEPT if lines else _LEAST_GROWTH):
        return
    what = (
        f"{worst.process} grew by {size(worst.grown_bytes)} in {count(worst.batches, 'batch')}"
        f" (from {size(worst.first_bytes)}), and had not stopped"
    )
    if worst.epoch_bytes is not None:
        what += f": {size(worst.epoch_bytes)} an epoch"
    if lines:
        what += f"; this line keeps something: {source(lines[0])}"
    yield Finding(
        "memory-grows",
        Severity.BAD,
        what,
        "the program keeps something for each sample or batch: a cache in the dataset, or in the loop a list of "
        "batches, losses or outputs with their graphs",
        "limit the size of the cache; keep numbers (loss.item()) instead of tensors"
        if in_main
        else "limit what the dataset keeps: each worker has a copy of it",
        lines[0] if lines else loop or ("" if in_main and seen.num_workers else dataset),
        5,
    )


def _objects(seen: Observation, around: Surroundings, held: int, copying: list[Growth]) -> Finding:
    largest = seen.facts["heavy"][0]
    total = held * seen.num_workers
    forked = seen.facts["method"] == "fork"
    what = f"{largest['path']} is a {largest['kind']}, about {size(largest['bytes'])}"
    if len(seen.facts["heavy"]) > 1:
        what += f", and {len(seen.facts['heavy']) - 1} similar objects"
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
        "reading a Python object changes its reference count, so a forked worker copies the memory pages that it reads"
        if forked
        else (
            f"with the start method {seen.facts['method']} each worker gets its own copy of all objects, by pickle, "
            "when it starts"
        ),
        f"{largest['path'].replace('dataset', 'self', 1)} = np.array(..., dtype='S') for names, or a tensor for "
        "numbers, instead of Python objects",
        str(seen.facts["dataset_place"]),
        5,
    )
