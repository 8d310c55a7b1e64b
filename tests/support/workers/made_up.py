"""A sound DataLoader as a diagnosis sees it, made up; tests change what they are about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.workers.diagnosed import Numbers
from torch.utils.data import DataLoader

from fastpipe.diagnosis.checks import check
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.inject.fastpipe_probe.loader_facts import read_facts
from fastpipe.diagnosis.inject.fastpipe_probe.records import Batch, Epoch, Fetch, Snapshot
from fastpipe.diagnosis.observation import Observation, Surroundings, Worker

ROOMY = Surroundings(cpus=8, free_bytes=32 << 30, oom_kills=0)
FETCH = Fetch(0.0, 0.01, 0.008, 0.002, 0.009, 0.0, 4, (2000, 2000, 2000, 2000), ())


def seen(**changes: Any) -> Observation:
    """A sound loader of 2 workers that makes a batch in 10 ms for a step of 20 ms; with other facts."""
    made = read_facts(
        DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context="fork"), "train.py:7"
    )
    observation = Observation("1.0", {**made, "shared_free": 8 << 30, "step": True, **changes})
    observation.epochs = [Epoch(0.0)]
    for number in range(30):
        asked = 0.03 + 0.02 * number
        observation.batches.append(Batch(0, number, asked, asked + 0.0001, 1 << 20))
    for number in range(2):
        fetches = [replace(FETCH, finished_s=0.02 + 0.04 * batch) for batch in range(15)]
        snapshots = [Snapshot(batch, (50 << 20) + (batch << 10), 3, 1, None) for batch in range(15)]
        observation.workers.append(
            Worker(number, 100 + number, 0.0, fetches=fetches, snapshots=snapshots)
        )
    return observation


def found(observation: Observation, around: Surroundings = ROOMY) -> dict[str, Finding]:
    return {finding.name: finding for finding in check(observation, around)}


def late(
    wait_s: float, made_s: Callable[[int], float], way_s: float = 0.0005, **facts: Any
) -> Observation:
    """Each batch is asked for `wait_s` before it comes, is made `way_s` before, and takes `made_s` to make."""
    observation = seen(**facts)
    observation.batches = [
        replace(batch, asked_s=0.3 * batch.number, came_s=0.3 * batch.number + wait_s)
        for batch in observation.batches
    ]
    for worker in observation.workers:
        own = [
            batch
            for batch in observation.batches
            if batch.number % len(observation.workers) == worker.number
        ]
        worker.fetches = [
            replace(
                FETCH,
                finished_s=batch.came_s - way_s,
                seconds=made_s(batch.number),
                dataset_s=made_s(batch.number),
            )
            for batch in own
        ]
    return observation
