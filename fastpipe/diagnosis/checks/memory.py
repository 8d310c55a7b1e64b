"""Snapshots of processes and at the dataset's containers -> memory that grows, and its likely cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from fastpipe.diagnosis.code import kept_in_class, kept_in_loop, source
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import Snapshot
from fastpipe.diagnosis.observation import Observation, Surroundings

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
        worker: its number and process; None: the process that iterates.
        first_bytes, last_bytes: at the first look and at the last.
        batches: between them.
        steady_bytes: by which it grew after the first third, if it went on as fast to the end; 0 if it slowed down, as
            growth does that a process takes once.
        kept_bytes: of these, that are in use: *Note [memory in use]* in fastpipe_probe/machine.py.
        epoch_bytes: an epoch's growth at this rate; None where it is not steady, or an epoch's length is not known.
    """

    worker: tuple[int, int] | None
    first_bytes: int
    last_bytes: int
    batches: int
    steady_bytes: int
    kept_bytes: int
    epoch_bytes: int | None

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes

    @property
    def process(self) -> str:
        """Its name."""
        return "the main process" if self.worker is None else f"worker {self.worker[0]}, pid {self.worker[1]}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, and as evidence."""
        told = {name: value for name, value in vars(self).items() if name != "worker"}
        return {"process": self.process, **told, "grown_bytes": self.grown_bytes}


def growths(seen: Observation) -> list[Growth]:
    """The process that iterates, then each worker that was looked at twice."""
    batches = seen.facts["batches"]
    each_of = None if batches is None else batches / max(seen.num_workers, 1)
    found = [_growth(None, seen.snapshots, batches)]
    for worker in seen.workers:
        if worker.number >= 0:
            found.append(_growth((worker.number, worker.pid), worker.snapshots, each_of))
    return [growth for growth in found if growth is not None]


def _growth(worker: tuple[int, int] | None, snapshots: list[Snapshot], epoch: float | None) -> Growth | None:
    """Of a process that takes part in `epoch` batches of an epoch."""
    taken = [(snapshot.batch, snapshot.private_bytes) for snapshot in snapshots if snapshot.private_bytes is not None]
    if len(taken) < 2:
        return None
    steady, rate = _steady(taken)
    used = [(snapshot.batch, snapshot.used_bytes) for snapshot in snapshots if snapshot.used_bytes is not None]
    kept = min(_steady(used)[0], steady) if len(used) == len(taken) else steady
    an_epoch = round(rate * epoch) if steady and epoch is not None else None
    return Growth(worker, taken[0][1], taken[-1][1], taken[-1][0] - taken[0][0], steady, kept, an_epoch)


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
    grown = [growth for growth in growths(seen) if growth.steady_bytes > _LEAST_COPIED]
    copying = [growth for growth in grown if growth.worker is not None]
    total_bytes = seen.num_workers * sum(each["bytes"] for each in heavy)
    copied = seen.facts["method"] == "fork" and bool(copying)
    if total_bytes and (copied or total_bytes > _LEAST_HEAVY):
        yield _objects(seen, around, total_bytes, copying)
        grown = [growth for growth in grown if growth not in copying or not copied]
    if grown:
        yield from _kept(seen, max(grown, key=lambda growth: growth.kept_bytes))


def _kept(seen: Observation, worst: Growth) -> Iterator[Finding]:
    """What a process keeps, where it is much, or where a line of the program is seen to keep something."""
    in_main = worst.worker is None
    reads = not in_main or seen.num_workers == 0  # it has the dataset in use
    dataset = str(seen.facts["dataset_place"])
    loops = Counter(epoch.place for epoch in seen.epochs if epoch.place).most_common(1)
    loop = loops[0][0] if loops and in_main else ""
    lines = [*(kept_in_loop(loop) if loop else []), *(kept_in_class(dataset) if reads else [])]
    if worst.batches < (_LEAST_BATCHES if in_main else max(_LEAST_EACH, _LEAST_BATCHES // max(seen.num_workers, 1))):
        return
    if worst.kept_bytes < (_LEAST_KEPT if lines else _LEAST_GROWTH):
        return
    evidence = {**worst.as_dict(), "source": source(lines[0]) if lines else None}
    where = lines[0] if lines else loop or (dataset if reads else "")
    yield Finding(Code.MEMORY_GROWS, where, evidence, "main" if in_main else "")


def _objects(seen: Observation, around: Surroundings, total_bytes: int, copying: list[Growth]) -> Finding:
    largest, *similar = seen.facts["heavy"]
    most = max(copying, key=lambda growth: growth.grown_bytes, default=None)
    evidence = {
        "path": largest["path"],
        "attribute": largest["path"].replace("dataset", "self", 1),
        "kind": largest["kind"],
        "held_bytes": largest["bytes"],
        "similar": len(similar) or None,
        "total_bytes": total_bytes,
        "workers": seen.num_workers,
        "method": seen.facts["method"],
        **(most.as_dict() if most else {}),
    }
    large = around.free_bytes is not None and total_bytes > _MOST_OF_MEMORY * around.free_bytes
    forked = seen.facts["method"] == "fork"
    code = Code.COPY_ON_WRITE if forked else Code.OBJECTS_IN_EACH_WORKER
    severity = Severity.BAD if copying or large else Severity.NOTE
    return Finding(code, str(seen.facts["dataset_place"]), evidence, severity=severity)
