"""The time of each stage, and how epochs begin -> what delays the loop, and what to change.

Note [less than this is no fault]: the loop has to wait for a fifth of its time, and for some milliseconds a batch.
A batch's way from a worker takes that long on a machine with other work, and no change to the program saves it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastpipe.diagnosis.code import changed_at
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import Stages, steps_s
from fastpipe.diagnosis.words import say

_MOST_WAITING = 0.2
_LEAST_WAIT_S = 5e-3
_LEAST_LATE_S = 20e-3  # where workers have time
_BUSY = 0.6  # less than nearly 1: a machine that is busy otherwise delays the asking
_LEAST_FETCH_S = 2e-3
_LEAST_ALONE_S = 10e-3  # without workers: with them, their way would take about as long
_CROWDED = 0.3
_UNSURE = 0.1  # the scheduler's share for a thread is not exact
_MOST_LATE = 0.1
_LEAST_EPOCHS = 5
_LEAST_OF_MOST = 0.1  # of the batches of the worker that made most
_LEAST_BATCHES = 4  # a worker, to tell
_FEW_BATCHES = 1.5  # an epoch
_MOST_STARTING = 0.1
_LEAST_START_S = 1.0
_LEAST_FORK_S = 3.0


_STAGES = {  # the finding of each, with its name and the line to change
    Code.SLOW_DATASET: ("the dataset", "dataset_place"),
    Code.SLOW_COLLATE: ("collate_fn", "collate_place"),
    Code.SLOW_TRANSFER: ("the way from the workers", "collate_place"),
    Code.NO_WORKERS: ("pinning memory", "made_at"),
}


def _bottleneck(seen: Observation, time: Stages) -> Code | None:
    """Where most of the time goes before a batch is there; None where workers have time and their way is short."""
    way_s = time.transfer_s or 0.0
    if seen.num_workers == 0 and seen.facts["pin_memory"] and way_s > time.fetch_s:
        return Code.NO_WORKERS
    if seen.num_workers == 0 or time.busy >= _BUSY:
        return Code.SLOW_COLLATE if time.collate_s > time.dataset_s else Code.SLOW_DATASET
    return Code.SLOW_TRANSFER if way_s > 0.3 * time.wait_s and way_s > time.fetch_s / 4 else None


def _keeps_up(seen: Observation, time: Stages) -> bool:
    """*Note [less than this is no fault]*; a loop without steps waits all the time."""
    if time.step_s is None:
        return False
    if seen.num_workers == 0:
        return time.fetch_s <= max(_LEAST_ALONE_S, _MOST_WAITING * time.step_s)
    return time.waiting <= _MOST_WAITING or time.wait_s <= (_LEAST_WAIT_S if time.busy >= _BUSY else _LEAST_LATE_S)


def summary(seen: Observation, time: Stages, *, sound: bool) -> str:
    """Who waits for whom, in a sentence; of a sound loader also where to look instead."""
    if not _keeps_up(seen, time):
        return say("@waits", _evidence(seen, time))
    stepping = 1 - time.waiting if sound and time.waiting <= _MOST_WAITING else None
    waits = time.waiting if time.waiting <= _MOST_WAITING else None  # of a short step, much may be little
    return say("@keeps", {"wait_s": time.wait_s, "waits": waits, "stepping": stepping})


def _evidence(seen: Observation, time: Stages) -> dict[str, Any]:
    """Where the time goes: of "@waits" in words.py."""
    stage = _bottleneck(seen, time)
    rate = time.samples / time.seconds if time.seconds else None
    batched = seen.facts["batch_size"] is None and time.samples == time.batches  # how many samples it has is not known
    evidence: dict[str, Any] = {
        "waits": None if time.step_s is None else time.waiting,
        "alone": time.batches if time.step_s is None else None,
        "rate": None if batched else rate,
        "batch_rate": rate if batched else None,
        "stage": _STAGES[stage][0] if stage else None,
        "working": time.busy if seen.num_workers else None,
        "double": 2 * seen.num_workers,
        "way_s": time.transfer_s if stage is Code.SLOW_TRANSFER else None,
    }
    if stage not in (Code.SLOW_DATASET, Code.SLOW_COLLATE):
        return evidence
    evidence["share"] = max(time.collate_s, time.dataset_s) / max(time.fetch_s, 1e-9)
    if time.on_cpu > 1.05:
        return {**evidence, "cpus_used": time.on_cpu}
    on_cpu = min(time.on_cpu, 1.0)
    delayed = None if time.delayed is None else min(time.delayed, 1 - on_cpu)
    return {**evidence, "computing": on_cpu, "delaying": delayed, "rest": 1 - on_cpu - (delayed or 0.0)}


def check(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """Whether the loop waits, for what, and how its epochs begin."""
    changed = [epoch for epoch in seen.epochs if epoch.changed]
    if changed and seen.num_workers:  # workers that persist have a copy of the dataset
        attribute, loop = changed[0].changed[0], changed[0].place
        where = changed_at(attribute, loop) or loop or seen.made_at
        yield Finding(Code.STALE_DATASET, where, {"attribute": attribute})
    begun = {batch.epoch for batch in seen.batches}
    told = [(epoch, epoch.sampler) for number, epoch in enumerate(seen.epochs) if number in begun and epoch.sampler]
    if len(told) > 1 and len({(epoch.made, sampler["epoch"]) for epoch, sampler in told}) == 1:
        last, sampler = told[-1]
        evidence = {"sampler": sampler["name"], "epoch": sampler["epoch"], "epochs": len(told)}
        yield Finding(Code.SAME_ORDER_EACH_EPOCH, last.place or seen.made_at, evidence)
    if time is not None:
        yield from list(_fresh_iterators(seen, time)) or _slow_start(seen, time)
        # The first batch of each worker waits for its start, and has no batch before it whose step could hide it.
        if not _keeps_up(seen, time) and any(batch.number >= max(seen.num_workers, 1) for batch in seen.batches):
            yield from _waiting(seen, around, time)


def _fresh_iterators(seen: Observation, time: Stages) -> Iterator[Finding]:
    """`next(iter(loader))` in each step, or a new DataLoader in each step."""
    begun = len([batch for batch in seen.batches if batch.number == 0 and batch.epoch < len(seen.epochs)])
    anew = len({epoch.made for epoch in seen.epochs}) > begun / 2
    if begun < _LEAST_EPOCHS or len(seen.batches) > _FEW_BATCHES * begun or (seen.facts["batches"] == 1 and not anew):
        return
    share = begun * time.start_s / max(seen.batches[-1].came_s - seen.epochs[0].at_s, 1e-9)
    evidence = {
        "iterators": len(seen.epochs),
        "made": "a new DataLoader" if anew else "iter(loader)",
        "processes": len({worker.pid for worker in seen.workers if worker.number >= 0}) or None,
        "share": share,
        "shuffle": None if seen.num_workers or seen.facts["shuffled"] else True,
    }
    if share >= _MOST_STARTING:  # else now and then, as for a batch to look at
        place = Counter(epoch.place for epoch in seen.epochs).most_common(1)[0][0]
        yield Finding(Code.ITERATOR_EACH_STEP, place or seen.made_at, evidence)


def _slow_start(seen: Observation, time: Stages) -> Iterator[Finding]:
    """Workers that start for long, against the time of a batch; of a single epoch, if it is forks that take long."""
    typical_s, late_s = time.wait_s + (time.step_s or 0.0), time.start_s - time.fetch_s
    once = len({batch.epoch for batch in seen.batches}) < 2
    if seen.num_workers == 0 or seen.facts["persistent_workers"] or (once and seen.facts["method"] != "fork"):
        return
    if late_s > 10 * typical_s and late_s > (_LEAST_FORK_S if once else _LEAST_START_S):
        anew = "a new DataLoader" if len({epoch.made for epoch in seen.epochs}) > 1 else None
        yield Finding(Code.SLOW_EPOCH_START, seen.made_at, {"typical_s": typical_s, "made": anew})


def _waiting(seen: Observation, around: Surroundings, time: Stages) -> Iterator[Finding]:
    """What a loop waits for that does."""
    evidence, stage = _evidence(seen, time), _bottleneck(seen, time)
    sampler_s = statistics.fmean([batch.sampler_s for batch in seen.batches])
    if time.step_s is None:
        if seen.num_workers == 0 and time.fetch_s > _LEAST_ALONE_S:
            yield Finding(Code.NO_WORKERS, seen.made_at, evidence, severity=Severity.NOTE)
    elif sampler_s > max(time.wait_s / 2, _LEAST_WAIT_S):
        yield Finding(Code.SLOW_SAMPLER, str(seen.facts["sampler_place"]), {"sampler_s": sampler_s})
    elif _others_work(seen, time, around):
        return
    elif seen.num_workers == 0:
        yield Finding(Code.NO_WORKERS, seen.made_at, evidence)
    elif (idle := _idle(seen)) is not None and stage is not Code.SLOW_TRANSFER:
        yield Finding(Code.IDLE_WORKERS, seen.made_at, {**evidence, **idle})
    elif stage:
        cause = _why_slow(seen, time, around)
        if stage is Code.SLOW_TRANSFER:
            cause = "" if time.fetch_s > _LEAST_FETCH_S else "quick"
        evidence["own"] = _own_delay(seen, time, around)
        severity = Severity.NOTE if cause == "others" else Severity.BAD
        yield Finding(stage, str(seen.facts[_STAGES[stage][1]]), evidence, cause, severity)
    elif seen.num_workers > 1 and seen.facts["in_order"] and (late := _late(seen, time)) > _MOST_LATE:
        yield Finding(Code.LATE_BATCHES, seen.made_at, {**evidence, "late": late})


def _others_work(seen: Observation, time: Stages, around: Surroundings) -> bool:
    """Whether the loader would keep up if other programs did not take the CPUs from it."""
    delayed = time.delayed or 0.0
    if delayed < _CROWDED or seen.num_workers > around.cpus or time.on_cpu > 1:
        return False
    short_s = statistics.quantiles([*steps_s(seen), 0.0], n=10)[1]  # of a step that nobody delayed
    return time.fetch_s * (1 - delayed) / max(seen.num_workers, 1) < short_s


def _idle(seen: Observation) -> dict[str, Any] | None:
    """How many workers made the batches, where others made next to none; None: each made some."""
    counts: Counter[int] = Counter()
    for worker in seen.workers:
        counts[worker.number] += len(worker.fetches)  # of all epochs
    at_work = [count for count in counts.values() if count > _LEAST_OF_MOST * max(counts.values())]
    if len(at_work) == len(counts) or sum(at_work) < _LEAST_BATCHES * seen.num_workers:
        return None
    share = sum(at_work) / counts.total()
    return {"made": len(at_work), "most": "all" if share == 1 else f"{share:.0%} of the"}


def _why_slow(seen: Observation, time: Stages, around: Surroundings) -> str:
    """What workers lack that are busy with making batches."""
    delayed = min(time.delayed or 0.0, max(0.0, 1 - time.on_cpu))
    all_cpus = seen.num_workers >= around.cpus
    if delayed > max(_CROWDED, 1 - time.on_cpu - delayed):  # the rest sleeps: other CPUs would not help
        if delayed > _own_delay(seen, time, around) + _UNSURE:
            return "others"
        if all_cpus:
            return "crowded"
    if time.on_cpu <= 0.5 * max(1 - min(delayed, 0.99), 0.01):  # of the time in which it had a CPU
        return "waits"
    return "computes" if all_cpus else "one-cpu"


def _own_delay(seen: Observation, time: Stages, around: Surroundings) -> float:
    """The share of its time that a worker waits for a CPU, at most, if no other process takes one: 0 to 1."""
    if seen.num_workers > around.cpus or time.on_cpu > 1:
        return 1.0  # too many of its own
    in_worker = max((each.snapshots[-1].cv2_threads or 1 for each in seen.workers if each.snapshots), default=1)
    in_loop = seen.snapshots[-1].torch_threads if seen.snapshots else None
    threads = (seen.num_workers * in_worker + (in_loop or 1)) * (1 + len(seen.others))
    return max(0.0, 1 - around.cpus / threads)


def _late(seen: Observation, time: Stages) -> float:
    """The share of the loop in which it waited for a batch that took twice as long to make as others do, or longer."""
    usual_s = statistics.median(fetch.seconds for worker in seen.workers for fetch in worker.fetches)
    slow_s = [
        fetch.at_s
        for worker in seen.workers
        for fetch in worker.fetches[1:]
        if fetch.seconds > max(2 * usual_s, _LEAST_LATE_S) and (fetch.delayed_s or 0.0) < fetch.seconds / 4
    ]
    waited = sum(
        batch.wait_s
        for batch in seen.batches
        if batch.number >= seen.num_workers and batch.wait_s > _LEAST_LATE_S
        if any(batch.asked_s < at_s <= batch.came_s for at_s in slow_s)
    )
    return waited / max(time.seconds, 1e-9)
