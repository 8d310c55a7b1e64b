"""The time of each stage -> the stage that delays the loop, and what to change.

Note [less than this is no fault]: the loop has to wait for a fifth of its time, and for some milliseconds a batch.
A batch's way from a worker takes that long on a machine with other work, and no change to the program saves it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import Stages, stages, steps_s

_MOST_WAITING = 0.2
_LEAST_WAIT_S = 5e-3
_LEAST_LATE_S = 20e-3  # where workers have time
_BUSY = 0.6  # less than nearly 1: a machine that is busy otherwise delays the asking
_LEAST_FETCH_S = 2e-3
_LEAST_ALONE_S = 10e-3  # without workers: with them, their way would take about as long
_CROWDED = 0.3
_MOST_LATE = 0.1


class Bottleneck(StrEnum):
    """What the loop waits for, as a report names it."""

    DATASET = "the dataset"
    COLLATE = "collate_fn"
    TRANSFER = "the way from the workers"
    PINNING = "pinning memory"


def bottleneck(seen: Observation, found: Stages) -> Bottleneck | None:
    """Where most of the time goes before a batch is there; None where workers have time and their way is short."""
    transfer_s = found.transfer_s or 0.0
    if seen.num_workers == 0 and seen.facts["pin_memory"] and transfer_s > found.fetch_s:
        return Bottleneck.PINNING
    if seen.num_workers == 0 or found.busy >= _BUSY:
        return Bottleneck.COLLATE if found.collate_s > found.dataset_s else Bottleneck.DATASET
    slow = transfer_s > 0.3 * found.wait_s and transfer_s > found.fetch_s / 4
    return Bottleneck.TRANSFER if slow else None


def evidence_of(seen: Observation, found: Stages) -> dict[str, Any]:
    """Who waits for whom, and where the time goes: of "@bottleneck" in words.py."""
    if found.step_s is not None and _keeps_up(seen, found):
        waits = found.waiting > _MOST_WAITING
        crowded = found.delayed if (found.delayed or 0.0) > _CROWDED else None
        return {"kept_up_s" if waits else "kept_up": found.wait_s if waits else found.waiting, "crowded": crowded}
    evidence: dict[str, Any] = {"few": None if found.seconds else found.batches}
    if found.seconds:
        evidence["rate_alone" if found.step_s is None else "rate"] = found.samples / found.seconds
    stage = bottleneck(seen, found)
    evidence |= {
        "waiting": found.waiting,
        "stage": stage,
        "busy": found.busy if seen.num_workers else None,
        "transfer_s": found.transfer_s if stage is Bottleneck.TRANSFER else None,
    }
    if stage not in (Bottleneck.DATASET, Bottleneck.COLLATE):
        return evidence
    evidence["share"] = max(found.collate_s, found.dataset_s) / max(found.fetch_s, 1e-9)
    evidence["no_workers"] = None if seen.num_workers else 0
    if found.on_cpu > 1.05:
        return {**evidence, "cpus_used": found.on_cpu}
    on_cpu = min(found.on_cpu, 1.0)
    delayed = min(found.delayed or 0.0, 1 - on_cpu)
    rest = max(0.0, 1 - on_cpu - delayed)
    return {**evidence, "on_cpu": on_cpu, "delayed": None if found.delayed is None else delayed, "rest": rest}


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Whether the loop waits, and for what; *Note [less than this is no fault]*."""
    found = stages(seen)
    if found is None or (found.step_s is not None and _keeps_up(seen, found)):
        return
    evidence = {**evidence_of(seen, found), "wait_s": found.wait_s, "step_s": found.step_s, "fetch_s": found.fetch_s}
    evidence |= {"workers": seen.num_workers, "cpus": around.cpus, "made_at": seen.made_at}
    sampler_s = statistics.fmean([batch.sampler_s for batch in seen.batches])
    if found.step_s is not None and sampler_s > max(found.wait_s / 2, _LEAST_WAIT_S):
        evidence["sampler_s"] = sampler_s
        yield Finding(Code.SLOW_SAMPLER, str(seen.facts["sampler_place"]), evidence)
    elif seen.num_workers == 0 and found.step_s is None:
        if found.fetch_s > _LEAST_ALONE_S:
            yield Finding(Code.NO_WORKERS, seen.made_at, evidence, severity=Severity.NOTE)
    elif found.step_s is not None and not _others_work(seen, found, around):
        yield from _waiting(seen, found, around, evidence)


def _keeps_up(seen: Observation, found: Stages) -> bool:
    if seen.num_workers == 0:
        return found.fetch_s <= max(_LEAST_ALONE_S, _MOST_WAITING * (found.step_s or 0.0))
    least_s = _LEAST_WAIT_S if found.busy >= _BUSY else _LEAST_LATE_S
    return found.waiting <= _MOST_WAITING or found.wait_s <= least_s


def _others_work(seen: Observation, found: Stages, around: Surroundings) -> bool:
    """Whether the loader would keep up if other programs did not take the CPUs from it."""
    delayed = found.delayed or 0.0
    if delayed < _CROWDED or seen.num_workers > around.cpus or found.on_cpu > 1:
        return False
    short_s = statistics.quantiles([*steps_s(seen.batches), 0.0], n=10)[1]  # of a step that nobody delayed
    return found.fetch_s * (1 - delayed) / max(seen.num_workers, 1) < short_s


def _waiting(seen: Observation, found: Stages, around: Surroundings, evidence: dict[str, Any]) -> Iterator[Finding]:
    if seen.num_workers == 0:
        yield Finding(Code.NO_WORKERS, seen.made_at, evidence)
        return
    stage = bottleneck(seen, found)
    if stage in (Bottleneck.DATASET, Bottleneck.COLLATE):
        delayed = found.delayed or 0.0
        asleep = 1 - found.on_cpu - delayed  # for a disk, a server or a lock: other CPUs would not help
        computes = found.on_cpu / max(1 - min(delayed, 0.99), 0.01) > 0.5  # of the time in which it had a CPU
        all_cpus = seen.num_workers >= around.cpus
        crowded = all_cpus and delayed > max(_CROWDED, asleep)
        cause = "crowded" if crowded else "waits" if not computes else "computes" if all_cpus else "one-cpu"
        evidence["double"] = 2 * seen.num_workers
        if stage is Bottleneck.COLLATE:
            yield Finding(Code.SLOW_COLLATE, str(seen.facts["collate_place"]), evidence, cause)
        else:
            yield Finding(Code.SLOW_DATASET, str(seen.facts["dataset_place"]), evidence, cause)
    elif stage is Bottleneck.TRANSFER:
        cause = "" if found.fetch_s > _LEAST_FETCH_S else "quick"
        yield Finding(Code.SLOW_TRANSFER, str(seen.facts["collate_place"]), evidence, cause)
    elif seen.num_workers > 1 and seen.facts["in_order"] and (late := _late(seen, found)) > _MOST_LATE:
        yield Finding(Code.LATE_BATCHES, seen.made_at, {**evidence, "late": late})


def _late(seen: Observation, found: Stages) -> float:
    """The share of the loop in which it waited for a batch that took twice as long to make as others do, or longer."""
    usual_s = statistics.median(fetch.seconds for worker in seen.workers for fetch in worker.fetches)
    slow = [
        fetch
        for worker in seen.workers
        for fetch in worker.fetches[1:]
        if fetch.seconds > max(2 * usual_s, _LEAST_LATE_S) and (fetch.delayed_s or 0.0) < fetch.seconds / 4
    ]
    waited = sum(
        batch.wait_s
        for batch in seen.batches
        if batch.number >= seen.num_workers
        and batch.wait_s > _LEAST_LATE_S
        and any(batch.asked_s < fetch.at_s <= batch.came_s for fetch in slow)
    )
    return waited / max(found.seconds, 1e-9)
