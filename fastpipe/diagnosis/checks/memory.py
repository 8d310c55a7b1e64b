"""Snapshots of processes and at the dataset's containers -> memory that grows, and its likely cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from fastpipe.diagnosis.code import kept_at, source
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import Snapshot
from fastpipe.diagnosis.observation import WITHOUT_WORKERS, Observation, Surroundings
from fastpipe.diagnosis.stages import Stages

_LEAST_COPIED = 4 << 20
_LEAST_KEPT = 16 << 20  # where a line of the program keeps something
_LEAST_GROWTH = 48 << 20  # where none is known
_LEAST_SNAPSHOTS = 8
_LEAST_COUNTS = 4  # of open files, which are exact
_LEAST_BATCHES = 40
_LEAST_OPENED = 32
_LEAST_EACH = 8  # of a worker that is one of many
_EVEN = 0.4
_LEAST_HEAVY = 200 << 20
_MOST_OF_MEMORY = 0.1


@dataclass(frozen=True)
class Growth:
    """Memory of one process's own; steady_bytes are 0 of growth that slowed down, as when a process takes it once."""

    process: str
    number: int  # of the worker; WITHOUT_WORKERS: the process that iterates
    first_bytes: int  # at the first look
    last_bytes: int
    batches: int  # between the two
    steady_bytes: int  # by which it grew after the first third, as fast to the end
    kept_bytes: int  # of these, in use: *Note [memory in use]* in fastpipe_probe/machine.py
    epoch_bytes: int | None  # an epoch's growth at this rate; None: not steady, or an epoch's length is not known

    @property
    def in_main(self) -> bool:
        return self.number == WITHOUT_WORKERS

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON, and as evidence."""
        return {**vars(self), "grown_bytes": self.grown_bytes}


def growths(seen: Observation) -> list[Growth]:
    """The process that iterates, then each worker that was looked at twice."""
    batches = seen.facts["batches"]
    each_of = None if batches is None else batches / max(seen.num_workers, 1)
    found = [_growth(*each, batches if each[1] == WITHOUT_WORKERS else each_of) for each in _processes(seen)]
    return [growth for growth in found if growth is not None]


def _processes(seen: Observation) -> list[tuple[str, int, list[Snapshot]]]:
    """The process that iterates, then each worker: in words, its number, what was seen of it."""
    workers = [worker for worker in seen.workers if worker.number != WITHOUT_WORKERS]
    named = [(f"worker {worker.number}, pid {worker.pid}", worker.number, worker.snapshots) for worker in workers]
    return [("the main process", WITHOUT_WORKERS, seen.snapshots), *named]


def _growth(process: str, number: int, snapshots: list[Snapshot], epoch: float | None) -> Growth | None:
    """Of a process that takes part in `epoch` batches of an epoch."""
    taken = [(snapshot.batch, snapshot.private_bytes) for snapshot in snapshots if snapshot.private_bytes is not None]
    if len(taken) < 2:
        return None
    steady, rate = _steady(taken)
    used = [(snapshot.batch, snapshot.used_bytes) for snapshot in snapshots if snapshot.used_bytes is not None]
    kept = min(_steady(used)[0], steady) if len(used) == len(taken) else steady
    an_epoch = round(rate * epoch) if steady and epoch is not None else None
    (first, first_bytes), (last, last_bytes) = taken[0], taken[-1]
    return Growth(process, number, first_bytes, last_bytes, last - first, steady, kept, an_epoch)


def _steady(taken: list[tuple[int, int]], least: int = _LEAST_SNAPSHOTS) -> tuple[int, float]:
    """What a process grew by evenly after the first third of its batches, and how much a batch; 0 if it did not, or was
    looked at less often.

    The rest is cut into four. The median grows from each quarter to the next, and in none much less than in another.
    """
    if len(taken) < least:
        return 0, 0.0
    first, last = taken[0][0], taken[-1][0]
    rest = [(batch, size_bytes) for batch, size_bytes in taken if batch - first >= (last - first) / 3]
    begin, length = rest[0][0], max(last - rest[0][0], 1)
    quarters: list[list[int]] = [[], [], [], []]
    for batch, size_bytes in rest:
        quarters[min(4 * (batch - begin) // length, 3)].append(size_bytes)
    if len(rest) < least or not all(quarters):
        return 0, 0.0
    steps = [after - before for before, after in pairwise(median(quarter) for quarter in quarters)]
    if min(steps) <= 0 or min(steps) < _EVEN * max(steps):
        return 0, 0.0
    grown_bytes = rest[-1][1] - rest[0][1]
    return grown_bytes, grown_bytes / length


def check(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """Workers that copy the dataset's objects, and other growth."""
    grown = [growth for growth in growths(seen) if growth.steady_bytes > _LEAST_COPIED]
    copying = [growth for growth in grown if not growth.in_main]
    total_bytes = seen.num_workers * sum(each["bytes"] for each in seen.facts["heavy"])
    copied = seen.facts["method"] == "fork" and bool(copying)
    if total_bytes and (copied or total_bytes > _LEAST_HEAVY):
        yield _objects(seen, around, total_bytes, copying)
        grown = [growth for growth in grown if growth.in_main or not copied]
    yield from _opened(seen)
    if grown:
        yield from _kept(seen, max(grown, key=lambda growth: growth.kept_bytes))


def _opened(seen: Observation) -> Iterator[Finding]:
    """A process that has more files open after each batch, up to its limit."""
    for process, number, snapshots in _processes(seen):
        taken = [(snapshot.batch, snapshot.files) for snapshot in snapshots if snapshot.files is not None]
        opened, rate = _steady(taken, _LEAST_COUNTS)
        if opened >= _LEAST_OPENED:
            limit, files = seen.facts["files_limit"], taken[-1][1]
            left = max(0, round((limit - files) / rate))
            evidence = {"process": process, "opened": opened, "files": files, "limit": limit, "left": left}
            loop = seen.epochs[-1].place if number == WITHOUT_WORKERS and seen.epochs else ""
            where = next(iter(kept_at(loop)), loop)
            # What is kept for an epoch's metrics may be let go of at its end.
            severity = Severity.BAD if left < (seen.facts["batches"] or 0) else Severity.NOTE
            yield Finding(Code.OPEN_FILES, where or str(seen.facts["dataset_place"]), evidence, "grows", severity)
            return


def _kept(seen: Observation, worst: Growth) -> Iterator[Finding]:
    """What a process keeps, where it is much, or where a line of the program is seen to keep something."""
    loops = Counter(epoch.place for epoch in seen.epochs if epoch.place and worst.in_main)
    loop = max(loops, key=lambda place: loops[place], default="")
    reads = not worst.in_main or seen.num_workers == 0  # it has the dataset in use
    dataset = str(seen.facts["dataset_place"]) if reads else ""
    lines = [*kept_at(loop), *kept_at(dataset)]
    each_of = 1 if worst.in_main else max(seen.num_workers, 1)
    if worst.batches >= max(_LEAST_EACH, _LEAST_BATCHES // each_of) and worst.kept_bytes >= (
        _LEAST_KEPT if lines else _LEAST_GROWTH
    ):
        evidence = {**worst.as_dict(), "source": source(lines[0]) if lines else None}
        cause = "" if worst.in_main else "worker"
        yield Finding(Code.MEMORY_GROWS, lines[0] if lines else loop or dataset, evidence, cause)


def _objects(seen: Observation, around: Surroundings, total_bytes: int, copying: list[Growth]) -> Finding:
    largest, *similar = seen.facts["heavy"]
    most = max(copying, key=lambda growth: growth.grown_bytes, default=None)
    evidence = {
        **largest,
        "similar": len(similar) or None,
        "total_bytes": total_bytes,
        **(most.as_dict() if most else {}),
    }
    evidence["attribute"] = largest["path"].replace("dataset", "self", 1)
    large = around.free_bytes is not None and total_bytes > _MOST_OF_MEMORY * around.free_bytes
    code = Code.COPY_ON_WRITE if seen.facts["method"] == "fork" else Code.OBJECTS_IN_EACH_WORKER
    severity = Severity.BAD if copying or large else Severity.NOTE
    return Finding(code, str(seen.facts["dataset_place"]), evidence, severity=severity)
