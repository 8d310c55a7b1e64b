"""Snapshots of processes -> how their memory and their open files grew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from fastpipe.diagnosis.inject.fastpipe_probe.records import Snapshot
from fastpipe.diagnosis.observation import WITHOUT_WORKERS, Observation

# Fewer snapshots do not show whether a growth goes on.
_MIN_SNAPSHOTS = 8
# Even growth: from quarter to quarter, the smallest step is at least this share of the largest.
_EVEN = 0.4


@dataclass(frozen=True)
class Growth:
    """How the private memory of one process grew."""

    process: str
    number: int  # of the worker; WITHOUT_WORKERS: the process that iterates
    first_bytes: int  # at the first snapshot
    last_bytes: int
    batches: int  # between the two
    # By how much it grew after the first third, if it went on as fast to the end. 0 if the growth
    # slowed down, as when a process takes some memory once.
    steadily_grown_bytes: int
    # The part of it in use: *Note [memory in use]* in fastpipe_probe/machine.py.
    kept_bytes: int
    # Growth in an epoch at this rate; None: not steady, or an epoch's length is not known.
    epoch_bytes: int | None

    @property
    def is_main(self) -> bool:
        return self.number == WITHOUT_WORKERS

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "grown_bytes": self.grown_bytes}


@dataclass(frozen=True)
class WatchedProcess:
    """A process whose snapshots were taken."""

    name: str  # in a sentence
    number: int  # of the worker; WITHOUT_WORKERS: the process that iterates
    snapshots: list[Snapshot]


def list_processes(observation: Observation) -> Iterator[WatchedProcess]:
    """Yields the process that iterates, then each worker."""
    yield WatchedProcess("the main process", WITHOUT_WORKERS, observation.snapshots)
    for worker in observation.workers:
        if worker.number != WITHOUT_WORKERS:
            name = f"worker {worker.number}, pid {worker.pid}"
            yield WatchedProcess(name, worker.number, worker.snapshots)


def measure_growth(observation: Observation) -> list[Growth]:
    """Measures the process that iterates, then each worker, if there are two snapshots of it."""
    epoch_batches = observation.facts["batches"]
    growths = []
    for process in list_processes(observation):
        process_batches = epoch_batches
        if epoch_batches is not None and process.number != WITHOUT_WORKERS:
            process_batches = epoch_batches / max(observation.num_workers, 1)
        growth = _measure_process(process, process_batches)
        if growth is not None:
            growths.append(growth)
    return growths


def _measure_process(
    process: WatchedProcess, epoch_batches: float | None
) -> Growth | None:
    """Measures a process that takes part in `epoch_batches` batches of an epoch."""
    private: list[tuple[int, int]] = []  # (batch, bytes)
    used: list[tuple[int, int]] = []
    for snapshot in process.snapshots:
        if snapshot.private_bytes is not None:
            private.append((snapshot.batch, snapshot.private_bytes))
        if snapshot.used_bytes is not None:
            used.append((snapshot.batch, snapshot.used_bytes))
    if len(private) < 2:
        return None
    steadily_grown_bytes, bytes_per_batch = measure_steady(private)
    kept_bytes = steadily_grown_bytes
    if len(used) == len(private):
        steady_used_bytes, _ = measure_steady(used)
        kept_bytes = min(steady_used_bytes, steadily_grown_bytes)
    epoch_bytes = None
    if steadily_grown_bytes and epoch_batches is not None:
        epoch_bytes = round(bytes_per_batch * epoch_batches)
    first_batch, first_bytes = private[0]
    last_batch, last_bytes = private[-1]
    return Growth(
        process=process.name,
        number=process.number,
        first_bytes=first_bytes,
        last_bytes=last_bytes,
        batches=last_batch - first_batch,
        steadily_grown_bytes=steadily_grown_bytes,
        kept_bytes=kept_bytes,
        epoch_bytes=epoch_bytes,
    )


def measure_steady(
    samples: list[tuple[int, int]], least_count: int = _MIN_SNAPSHOTS
) -> tuple[int, float]:
    """Measures by how much a number grew evenly after the first third, and how much a batch.

    That part is cut into four. The median has to grow from each quarter to the next, and in none
    much less than in another. Otherwise, or with fewer samples than `least_count`, it is (0, 0.0).

    Args:
        samples: (batch, number), in the order of the batches.
        least_count: samples that there have to be in the last two thirds.
    """
    if len(samples) < least_count:
        return 0, 0.0
    first_batch = samples[0][0]
    last_batch = samples[-1][0]
    third = (last_batch - first_batch) / 3
    later = []
    for batch, number in samples:
        if batch - first_batch >= third:
            later.append((batch, number))
    begin, _ = later[0]
    batch_count = max(last_batch - begin, 1)
    quarters: list[list[int]] = [[], [], [], []]
    for batch, number in later:
        index = 4 * (batch - begin) // batch_count
        quarter = quarters[min(index, 3)]
        quarter.append(number)
    if len(later) < least_count or not all(quarters):
        return 0, 0.0
    # A median ignores the peaks of single batches.
    medians = [median(quarter) for quarter in quarters]
    steps = [after - before for before, after in pairwise(medians)]
    least_step = min(steps)
    if least_step <= 0 or least_step < _EVEN * max(steps):
        return 0, 0.0
    _, first_number = later[0]
    _, last_number = later[-1]
    grown = last_number - first_number
    return grown, grown / batch_count
