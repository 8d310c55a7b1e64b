"""The observation of a DataLoader -> seconds of each stage, and which process waited for which."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from fastpipe.diagnosis.observation import Observation


@dataclass(frozen=True)
class Stages:
    """Where the time goes; seconds a batch are means, over the batches that each process made or got."""

    batches: int
    samples: int
    seconds: float  # of the loop, without the starts of epochs
    dataset_s: float  # a batch, of the process that makes it; and in collate_fn
    collate_s: float
    # That the loop waited for a batch that was made: through shared memory, unpickled, pinned (the mean, without the
    # first batches). None where it cannot be told.
    transfer_s: float | None
    wait_s: float  # a batch, that the loop waited, the first batches of epochs left out
    step_s: float | None  # between a batch and the asking for the next; None where there was no step
    start_s: float  # from an epoch's beginning to its first batch
    waiting: float  # share of the loop in which it waited, 0 to 1
    busy: float  # share of the workers' time in which they made batches, 0 to 1
    # Shares of that busy time on a CPU (above 1 with several threads) and waiting for one; None where the kernel does
    # not say. The rest is disk, network, locks and sleep.
    on_cpu: float
    delayed: float | None

    @property
    def fetch_s(self) -> float:
        """Seconds that making a batch takes."""
        return self.dataset_s + self.collate_s

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


# Below this there is no step to speak of: a loop that only reads batches waits for them all the time.
_LEAST_STEP_S = 1e-4


def stages(seen: Observation) -> Stages | None:
    """The time of each stage; None before the first batch."""
    batches = seen.batches
    fetches = [fetch for worker in seen.workers for fetch in worker.fetches]
    if not batches or not fetches:
        return None
    # The first batch of each worker comes when the worker has started: that is the start of the epoch.
    later = [batch for batch in batches if batch.number >= max(seen.num_workers, 1)] or batches
    wait_s = _mean([batch.wait_s for batch in later])
    steps = steps_s(seen) if seen.facts["step"] else []
    step_s = _mean(steps) if steps and statistics.median(steps) > _LEAST_STEP_S else None
    began = {number: epoch.at_s for number, epoch in enumerate(seen.epochs)}
    starts = [each.came_s - began[each.epoch] for each in batches if each.number == 0 and each.epoch in began]
    waited, stepped = sum(batch.wait_s for batch in later), sum(steps)
    spent = sum(fetch.seconds for fetch in fetches)
    delays = [fetch.delayed_s for fetch in fetches if fetch.delayed_s is not None]
    return Stages(
        batches=len(batches),
        samples=round(len(batches) * _mean([fetch.samples for fetch in fetches])),
        seconds=waited + stepped,
        dataset_s=_mean([fetch.dataset_s for fetch in fetches]),
        collate_s=_mean([fetch.collate_s for fetch in fetches]),
        transfer_s=_transfer_s(seen),
        wait_s=wait_s,
        step_s=step_s,
        start_s=_mean(starts),
        waiting=waited / max(waited + stepped, 1e-9),
        busy=_busy(seen),
        on_cpu=sum(fetch.cpu_s for fetch in fetches) / max(spent, 1e-9),
        delayed=sum(delays) / max(spent, 1e-9) if delays else None,
    )


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / max(len(values), 1)


def steps_s(seen: Observation) -> list[float]:
    """Seconds of each step whose end was seen, by the asking for the next batch, or for the next epoch."""
    ends: dict[tuple[int, int], float] = {}
    if not any(batch.number for batch in seen.batches):  # next(iter(loader)) in each step
        ends = {(number - 1, 0): epoch.at_s for number, epoch in enumerate(seen.epochs)}
    ends |= {(epoch, number): at_s for epoch, number, at_s in seen.stepped}
    ends |= {(batch.epoch, batch.number - 1): batch.asked_s for batch in seen.batches}
    steps = [(batch, ends.get((batch.epoch, batch.number))) for batch in seen.batches]
    return [end_s - batch.came_s for batch, end_s in steps if end_s is not None]


def _busy(seen: Observation) -> float:
    """The share of the workers' time, between each one's first batch and its last."""
    long_lived = [worker for worker in seen.workers if len(worker.fetches) > 2]
    had = made = 0.0
    for worker in long_lived or [worker for worker in seen.workers if worker.fetches]:
        had += worker.fetches[-1].at_s - (worker.fetches[0].at_s - worker.fetches[0].seconds)
        made += sum(fetch.seconds for fetch in worker.fetches)
    return min(1.0, made / had) if had else 0.0


def _transfer_s(seen: Observation) -> float | None:
    """See Stages. Batch k is made by worker k modulo num_workers, unless order is given up or workers run out."""
    if seen.num_workers == 0:
        if not (seen.facts["pin_memory"] and seen.facts["accelerator"]):
            return None
        alone = [fetch for worker in seen.workers for fetch in worker.fetches]
        rest = [batch.wait_s - fetch.seconds for batch, fetch in zip(seen.batches, alone, strict=False) if batch.number]
        return max(0.0, statistics.median(rest)) if rest else None
    if not seen.facts["in_order"] or seen.facts["stream"]:
        return None
    found = []
    for batch in seen.batches:
        if batch.number < seen.num_workers:
            continue  # its worker was starting
        # The workers' times of the batches that were made while the loop waited for this one.
        made = [
            fetch.at_s
            for worker in seen.workers
            if worker.number == batch.number % seen.num_workers
            for fetch in worker.fetches
            if batch.asked_s < fetch.at_s <= batch.came_s
        ]
        found.append(batch.came_s - min(made) if made else batch.wait_s)  # none: it was made before the loop asked
    return _mean(found) if found else None
