"""The observation of a DataLoader -> seconds of each stage, and which process waited for which."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fastpipe.diagnosis.observation import Observation

# A shorter step is none: a loop that only reads batches waits for them all the time.
_MIN_STEP_S = 1e-4
# A worker is at work if it makes this share of the batches that the busiest worker makes.
_MIN_SHARE_OF_MAX = 0.1


@dataclass(frozen=True)
class Stages:
    """Where the time goes.

    Seconds a batch are means over the batches that each process made or got.
    """

    batches: int
    samples: int
    seconds: float  # of the loop, without the starts of epochs
    dataset_s: float  # for a batch, in the process that makes it
    collate_s: float  # the same, in collate_fn
    # How long the loop waited for a batch that was made already: it came through shared memory, was
    # unpickled and pinned. A mean without the first batches. None if it cannot be measured.
    transfer_s: float | None
    # How long the loop waited for a batch, without the first batches of epochs.
    wait_s: float
    # Seconds from a batch to the request for the next one; None without a training step.
    step_s: float | None
    start_s: float  # from an epoch's beginning to its first batch
    waiting: float  # the share of the loop's time in which it waited, 0 to 1
    busy: float  # the share of the workers' time in which they made batches, 0 to 1
    # The shares of that busy time that were spent on a CPU (above 1 with several threads), and
    # waiting for a CPU; None if the kernel does not say. The rest is disk, network, locks and
    # sleep.
    on_cpu: float
    delayed: float | None
    # The workers that make batches; others have nothing to do. 0 with num_workers=0.
    working_workers: int

    @property
    def fetch_s(self) -> float:
        """Seconds that it takes to make a batch."""
        return self.dataset_s + self.collate_s

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def measure_stages(observation: Observation) -> Stages | None:
    """Measures the time of each stage; None before the first batch."""
    batches = observation.batches
    fetches = []
    for worker in observation.workers:
        fetches += worker.fetches
    if not batches or not fetches:
        return None
    # The first batch of each worker comes when the worker has started, so it belongs to the start
    # of the epoch.
    first_count = max(observation.num_workers, 1)
    later = [batch for batch in batches if batch.number >= first_count] or batches
    waits_s = [batch.wait_s for batch in later]
    waited_s = sum(waits_s)
    steps_s: list[float] = []
    step_s = None
    if observation.facts["step"]:
        steps_s = list_steps_s(observation)
        if steps_s and statistics.median(steps_s) > _MIN_STEP_S:
            step_s = _compute_mean(steps_s)
    # Without steps, the loop does nothing but wait.
    loop_s = waited_s + sum(steps_s)
    making_s = sum(fetch.seconds for fetch in fetches)
    cpu_s = sum(fetch.cpu_s for fetch in fetches)
    delays_s = [fetch.delayed_s for fetch in fetches if fetch.delayed_s is not None]
    delayed = None
    if delays_s:
        delayed = sum(delays_s) / max(making_s, 1e-9)
    # Workers may have made batches that the loop has not got yet.
    samples_per_batch = _compute_mean([fetch.samples for fetch in fetches])
    return Stages(
        batches=len(batches),
        samples=round(len(batches) * samples_per_batch),
        seconds=loop_s,
        dataset_s=_compute_mean([fetch.dataset_s for fetch in fetches]),
        collate_s=_compute_mean([fetch.collate_s for fetch in fetches]),
        transfer_s=_measure_transfer_s(observation),
        wait_s=_compute_mean(waits_s),
        step_s=step_s,
        start_s=_measure_start_s(observation),
        waiting=waited_s / max(loop_s, 1e-9),
        busy=_measure_busy(observation),
        on_cpu=cpu_s / max(making_s, 1e-9),
        delayed=delayed,
        working_workers=_count_working_workers(observation),
    )


def count_batches_by_worker(observation: Observation) -> Counter[int]:
    """Counts the batches that the workers of each number made in all epochs."""
    counts: Counter[int] = Counter()
    for worker in observation.workers:
        counts[worker.number] += len(worker.fetches)
    return counts


def list_working(counts: Counter[int]) -> list[int]:
    """Lists the counts of the workers that made more than next to nothing."""
    least = _MIN_SHARE_OF_MAX * max(counts.values())
    return [count for count in counts.values() if count > least]


def _count_working_workers(observation: Observation) -> int:
    if observation.num_workers == 0:
        return 0
    return len(list_working(count_batches_by_worker(observation)))


def _compute_mean(values: list[float] | list[int]) -> float:
    """The mean; 0 without a value."""
    return sum(values) / max(len(values), 1)


def _measure_start_s(observation: Observation) -> float:
    """Mean seconds from the beginning of an epoch to its first batch."""
    starts_s = []
    for batch in observation.batches:
        if batch.number == 0 and batch.epoch < len(observation.epochs):
            epoch = observation.epochs[batch.epoch]
            starts_s.append(batch.came_s - epoch.at_s)
    return _compute_mean(starts_s)


def list_steps_s(observation: Observation) -> list[float]:
    """Lists the seconds of each step, from a batch to the next request, if that was seen."""
    ends: dict[tuple[int, int], float] = {}  # (epoch, batch) -> end of its step
    if not any(batch.number for batch in observation.batches):
        # next(iter(loader)) in each step.
        for number, epoch in enumerate(observation.epochs):
            ends[number - 1, 0] = epoch.at_s
    for epoch_number, batch_number, at_s in observation.stepped:
        ends[epoch_number, batch_number] = at_s
    for batch in observation.batches:
        ends[batch.epoch, batch.number - 1] = batch.asked_s
    steps_s = []
    for batch in observation.batches:
        end_s = ends.get((batch.epoch, batch.number))
        if end_s is not None:
            steps_s.append(end_s - batch.came_s)
    return steps_s


def _measure_busy(observation: Observation) -> float:
    """The share of the time from a worker's first batch to its last in which it made batches."""
    # A worker of one or two batches, in a short epoch, hardly shows how busy it is.
    workers = [worker for worker in observation.workers if worker.fetches]
    long_lived = [worker for worker in workers if len(worker.fetches) > 2]
    lifetime_s = 0.0
    making_s = 0.0
    for worker in long_lived or workers:
        first = worker.fetches[0]
        began_s = first.finished_s - first.seconds
        lifetime_s += worker.fetches[-1].finished_s - began_s
        making_s += sum(fetch.seconds for fetch in worker.fetches)
    if lifetime_s == 0:
        return 0.0
    return min(1.0, making_s / lifetime_s)


def _measure_transfer_s(observation: Observation) -> float | None:
    """See `Stages.transfer_s`.

    With workers, it is None if the worker that made a batch is not known.
    """
    if observation.num_workers == 0:
        return _measure_pinning_s(observation)
    # Worker k modulo num_workers makes batch k. Not so with in_order=False, or when an
    # IterableDataset has ended in one of the workers.
    if not observation.facts["in_order"] or observation.facts["stream"]:
        return None
    transfers_s = []
    for batch in observation.batches:
        if batch.number < observation.num_workers:
            continue  # its worker was starting
        worker_number = batch.number % observation.num_workers
        finished_s = []  # batches that were made while the loop waited for this one
        for worker in observation.workers:
            if worker.number != worker_number:
                continue
            for fetch in worker.fetches:
                if batch.asked_s < fetch.finished_s <= batch.came_s:
                    finished_s.append(fetch.finished_s)
        # torch gives batches in order. If this worker made several meanwhile, the first was the
        # next.
        if finished_s:
            transfers_s.append(batch.came_s - min(finished_s))
        else:  # the batch was made before the loop asked for it
            transfers_s.append(batch.wait_s)
    return _compute_mean(transfers_s) if transfers_s else None


def _measure_pinning_s(observation: Observation) -> float | None:
    """Median seconds to pin a batch that was made without workers; None if nothing is pinned."""
    is_pinned = observation.facts["pin_memory"] and observation.facts["accelerator"]
    if not is_pinned:
        return None
    fetches = []
    for worker in observation.workers:
        fetches += worker.fetches
    rest_s = []
    # An error may leave a batch that was made and never came.
    for batch, fetch in zip(observation.batches, fetches, strict=False):
        if batch.number:
            rest_s.append(batch.wait_s - fetch.seconds)
    if not rest_s:
        return None
    return max(0.0, statistics.median(rest_s))
