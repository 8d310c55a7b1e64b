"""The time of each stage -> what the loop waits for, and what to change.

Note [less than this is no fault]: the loop has to wait for a fifth of its time, and for some
milliseconds a batch. A batch's way from a worker takes that long on a machine with other work, and
no change to the program saves it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fastpipe.diagnosis.checks.cpu_delays import is_delayed_by_others
from fastpipe.diagnosis.checks.slow_stages import (
    report_slow_stage,
    report_slow_transfer,
)
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.quantities import format_ms
from fastpipe.diagnosis.stages import (
    Stages,
    count_batches_by_worker,
    list_working,
)
from fastpipe.errors import format_count

# The share of its time that the loop may wait.
_MAX_WAITING = 0.2
# A shorter wait is no fault; nor is the second if the workers are not busy.
_MIN_WAIT_S = 5e-3
_MIN_LATE_S = 20e-3
# Workers that make batches for this share of their time are busy. It is not nearly 1, because a
# machine with other work delays the loop's requests.
_BUSY = 0.6
# A batch that takes less to make, without workers: with workers, its way would take about as long.
_MIN_ALONE_S = 10e-3
# The share of its time that the loop may wait for late batches.
_MAX_LATE = 0.1
# Before so many batches for each worker, none counts as idle.
_MIN_BATCHES = 4


@dataclass(frozen=True)
class _Bottleneck:
    """Where most of the time goes before a batch comes."""

    code: Code
    name: str  # in a sentence
    place: str  # the fact that is the line to change


_DATASET = _Bottleneck(Code.SLOW_DATASET, "the dataset", "dataset_place")
_COLLATE = _Bottleneck(Code.SLOW_COLLATE, "collate_fn", "collate_place")
_TRANSFER = _Bottleneck(Code.SLOW_TRANSFER, "the way from the workers", "collate_place")
_PINNING = _Bottleneck(Code.NO_WORKERS, "pinning memory", "made_at")


def summarize(
    observation: Observation,
    surroundings: Surroundings,
    stages: Stages,
    *,
    is_sound: bool,
) -> str:
    """Says in one sentence who waits for whom; for a sound loader also where to look instead."""
    if not _keeps_up(observation, stages):
        sentence = _describe_waiting(observation, stages)
        if is_sound and is_delayed_by_others(observation, surroundings, stages):
            sentence += (
                "; the loader would keep up if other programs did not use the CPUs: "
                "run this again when none does"
            )
        return sentence
    sentence = f"the loader keeps up: the loop waits {format_ms(stages.wait_s)} a batch"
    # If a step is short, even a small wait may be a large share: then the share would mislead.
    if stages.waiting <= _MAX_WAITING:
        sentence += f", {stages.waiting:.0%} of its time"
        if is_sound:
            step_share = 1 - stages.waiting
            sentence += (
                f"; the loop's own step takes {step_share:.0%} of its time, "
                "so a faster loader would not help"
            )
    return sentence


def check(
    observation: Observation, surroundings: Surroundings, stages: Stages | None
) -> Iterator[Finding]:
    """Finds out whether the loop waits, and for what."""
    if stages is None or _keeps_up(observation, stages):
        return
    # The first batch of each worker waits for its start, and has no step before it that could hide
    # it.
    first_count = max(observation.num_workers, 1)
    if any(batch.number >= first_count for batch in observation.batches):
        yield from _explain_waiting(observation, surroundings, stages)


def _keeps_up(observation: Observation, stages: Stages) -> bool:
    """*Note [less than this is no fault]*; a loop without steps waits all the time."""
    if stages.step_s is None:
        return False
    if observation.num_workers == 0:
        return stages.fetch_s <= max(_MIN_ALONE_S, _MAX_WAITING * stages.step_s)
    least_wait_s = _MIN_WAIT_S if stages.busy >= _BUSY else _MIN_LATE_S
    return stages.waiting <= _MAX_WAITING or stages.wait_s <= least_wait_s


def _find_bottleneck(observation: Observation, stages: Stages) -> _Bottleneck | None:
    """Finds where most of the time goes; None if workers have time and the transfer is short."""
    transfer_s = stages.transfer_s or 0.0
    is_pinned_here = observation.num_workers == 0 and observation.facts["pin_memory"]
    if is_pinned_here and transfer_s > stages.fetch_s:
        return _PINNING
    if observation.num_workers == 0 or stages.busy >= _BUSY:
        return _COLLATE if stages.collate_s > stages.dataset_s else _DATASET
    # The workers have time. The way has to be a good part of the wait, and not short beside the
    # work.
    is_much_of_wait = transfer_s > 0.3 * stages.wait_s
    is_long = transfer_s > stages.fetch_s / 4
    if is_much_of_wait and is_long:
        return _TRANSFER
    return None


def _describe_waiting(observation: Observation, stages: Stages) -> str:
    """Says how long the loop waits, how fast batches come, and where the time goes."""
    if stages.step_s is None:
        text = f"{format_count(stages.batches, 'batch')}, without a training step"
    else:
        text = f"the loop waits {stages.waiting:.0%} of its time"
    if stages.seconds:
        rate = stages.samples / stages.seconds
        # Without a batch_size, each item may be a whole batch, of an unknown number of samples.
        is_batched_by_dataset = (
            observation.facts["batch_size"] is None and stages.samples == stages.batches
        )
        if is_batched_by_dataset:
            text += f"; {rate:,.1f} batches/s"
        else:
            text += f"; {rate:,.0f} samples/s"
    bottleneck = _find_bottleneck(observation, stages)
    if bottleneck is not None:
        text += f"; the bottleneck is {bottleneck.name}"
    if bottleneck is _DATASET or bottleneck is _COLLATE:
        text += _describe_making(stages)
    elif bottleneck is _TRANSFER and stages.transfer_s is not None:
        text += f" ({format_ms(stages.transfer_s)} a batch)"
    if observation.num_workers:
        text += f"; workers are busy {stages.busy:.0%}"
    return text


def _describe_making(stages: Stages) -> str:
    """Says whether a process that makes batches computes, waits for a CPU, or sleeps."""
    stage_s = max(stages.collate_s, stages.dataset_s)
    share = stage_s / max(stages.fetch_s, 1e-9)
    text = f" ({share:.0%} of making a batch)"
    if stages.on_cpu > 1.2:
        return (
            f"{text}, on {stages.on_cpu:.1f} CPUs on average: several threads compute"
        )
    on_cpu = min(stages.on_cpu, 1.0)
    text += f", {on_cpu:.0%} of it on a CPU"
    delayed = 0.0
    if stages.delayed is not None:
        delayed = min(stages.delayed, 1 - on_cpu)
        text += f", {delayed:.0%} waiting for a CPU"
    return f"{text}, {1 - on_cpu - delayed:.0%} for disk, network, locks or sleep"


def _explain_waiting(
    observation: Observation, surroundings: Surroundings, stages: Stages
) -> Iterator[Finding]:
    """Finds the reason why a loop waits. The first one that applies is the only one given."""
    waiting = _describe_waiting(observation, stages)
    # Without a training step, the loop does nothing but wait.
    if stages.step_s is None:
        if observation.num_workers == 0 and stages.fetch_s > _MIN_ALONE_S:
            yield _report_no_workers(observation, surroundings, stages, Severity.NOTE)
        return
    sampler_s = statistics.fmean([batch.sampler_s for batch in observation.batches])
    if sampler_s > max(stages.wait_s / 2, _MIN_WAIT_S):
        yield _report_slow_sampler(observation, stages, sampler_s)
        return
    # Idle workers come first: they explain a wait even while other programs use the CPUs.
    counts = count_batches_by_worker(observation)
    if observation.num_workers and _has_idle_workers(observation, counts):
        yield _report_idle_workers(observation, waiting, counts)
        return
    if is_delayed_by_others(observation, surroundings, stages):
        return
    if observation.num_workers == 0:
        yield _report_no_workers(observation, surroundings, stages, Severity.BAD)
        return

    bottleneck = _find_bottleneck(observation, stages)
    wait = format_ms(stages.wait_s)
    step = format_ms(stages.step_s)
    waiting_and_step = f"{waiting} (a wait is {wait}, a step {step})"
    if bottleneck is _TRANSFER:
        yield report_slow_transfer(observation, stages, waiting_and_step)
        return
    if bottleneck is not None:
        where = str(observation.facts[bottleneck.place])
        yield report_slow_stage(
            bottleneck.code, where, observation, surroundings, stages, waiting_and_step
        )
    elif observation.num_workers > 1 and observation.facts["in_order"]:
        late = _measure_late(observation, stages)
        if late > _MAX_LATE:
            yield _report_late_batches(observation, waiting_and_step, late)


def _report_no_workers(
    observation: Observation,
    surroundings: Surroundings,
    stages: Stages,
    severity: Severity,
) -> Finding:
    return Finding(
        Code.NO_WORKERS,
        observation.made_at,
        what=f"{_describe_waiting(observation, stages)}; "
        f"a batch takes {format_ms(stages.fetch_s)} to make",
        why="with num_workers=0, no batch is made while a training step runs",
        change=f"DataLoader(..., num_workers={surroundings.cpus}, persistent_workers=True)",
        section=6,
        severity=severity,
    )


def _report_slow_sampler(
    observation: Observation, stages: Stages, sampler_s: float
) -> Finding:
    return Finding(
        Code.SLOW_SAMPLER,
        str(observation.facts["sampler_place"]),
        what=f"the sampler takes {format_ms(sampler_s)} for a batch, "
        f"and the loop waits {format_ms(stages.wait_s)}",
        why="the sampler runs in the process of the training loop, between two batches",
        change="draw the numbers of a whole epoch at once, at the start of the sampler's __iter__",
        section=6,
    )


def _has_idle_workers(observation: Observation, counts: Counter[int]) -> bool:
    working = list_working(counts)
    has_enough = sum(working) >= _MIN_BATCHES * observation.num_workers
    return len(working) < len(counts) and has_enough


def _report_idle_workers(
    observation: Observation, waiting: str, counts: Counter[int]
) -> Finding:
    working = list_working(counts)
    share = sum(working) / counts.total()
    most = "all" if share == 1 else f"{share:.0%} of the"
    workers = format_count(observation.num_workers, "worker")
    return Finding(
        Code.IDLE_WORKERS,
        observation.made_at,
        what=f"{waiting}; {len(working)} of {workers} made {most} batches",
        why="an IterableDataset that shares out its shards or files among the workers "
        "has fewer of them than workers",
        change="more and smaller shards, at least one a worker, or share out samples; "
        "more num_workers do not help",
        section=6,
    )


def _measure_late(observation: Observation, stages: Stages) -> float:
    """The share of the loop's time in which it waited for batches that were slow to make."""
    fetch_s = [
        fetch.seconds for worker in observation.workers for fetch in worker.fetches
    ]
    usual_s = statistics.median(fetch_s)
    least_s = max(2 * usual_s, _MIN_LATE_S)
    slow_finished_s: list[float] = []  # when each slow batch was made
    for worker in observation.workers:
        for fetch in worker.fetches[1:]:
            is_delayed = (fetch.delayed_s or 0.0) >= fetch.seconds / 4
            if fetch.seconds > least_s and not is_delayed:
                slow_finished_s.append(fetch.finished_s)
    waited_s = 0.0
    for batch in observation.batches:
        if batch.number < observation.num_workers or batch.wait_s <= _MIN_LATE_S:
            continue
        if any(
            batch.asked_s < finished_s <= batch.came_s for finished_s in slow_finished_s
        ):
            waited_s += batch.wait_s
    return waited_s / max(stages.seconds, 1e-9)


def _report_late_batches(
    observation: Observation, waiting_and_step: str, late: float
) -> Finding:
    return Finding(
        Code.LATE_BATCHES,
        observation.made_at,
        what=f"{waiting_and_step}; {late:.0%} of its time it waits for batches that take more "
        "than twice as long to make as others",
        why="a worker makes a batch alone: "
        "a slow sample delays its own batch and all later batches",
        change="DataLoader(..., in_order=False) if the order does not matter; "
        "a larger prefetch_factor if few are slow",
        section=13,
    )
