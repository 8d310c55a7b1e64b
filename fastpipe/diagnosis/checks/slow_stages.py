"""A slow stage -> the resource that its process lacks: CPUs, a faster disk, or a shorter way."""

from __future__ import annotations

import math

from fastpipe.diagnosis.checks.cpu_delays import (
    CROWDED,
    UNSURE,
    estimate_own_delay,
    is_delayed_by_others,
)
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.quantities import format_ms
from fastpipe.diagnosis.stages import Stages
from fastpipe.errors import format_count

# Batches that are made faster need no workers.
_MIN_FETCH_S = 2e-3
# CPU time takes up to so many times as long while other programs use the machine.
_SLOWDOWN = 2.5
# More workers than these are not advised at once, however long each sleeps.
_MAX_WORKERS = 32


def report_slow_stage(
    code: Code,
    where: str,
    observation: Observation,
    surroundings: Surroundings,
    stages: Stages,
    wait_text: str,
) -> Finding:
    """The dataset or collate_fn is slow: says what the workers, which are busy, lack.

    `wait_text` says how long the loop waits. All shares here are of the workers' busy time.
    """
    off_cpu = max(0.0, 1 - stages.on_cpu)
    delayed = min(stages.delayed or 0.0, off_cpu)
    asleep = 1 - stages.on_cpu - delayed
    uses_all_cpus = observation.num_workers >= surroundings.cpus
    # If workers sleep more than they wait for a CPU, other CPUs would not help.
    if delayed > max(CROWDED, asleep):
        own_delay = estimate_own_delay(observation, surroundings, stages)
        if delayed <= own_delay + UNSURE:
            # With CPUs free, its own threads wait all the same: go on to what the workers do.
            if uses_all_cpus:
                return _report_crowded(code, where, wait_text, surroundings)
        elif is_delayed_by_others(
            observation, surroundings, stages, slowdown=_SLOWDOWN
        ):
            return _report_delayed_by_others(code, where, wait_text, own_delay)
        else:
            wait_text += "; on free CPUs it would be too slow as well"
    # Time in which it waited for a CPU says nothing about its work.
    time_with_cpu = max(1 - min(delayed, 0.99), 0.01)
    if stages.on_cpu <= 0.5 * time_with_cpu:
        return _report_waiting_for_disk(code, where, wait_text, observation, stages)
    if uses_all_cpus:
        return _report_computing(code, where, wait_text, surroundings, stages)
    return _report_one_cpu_each(code, where, wait_text, observation, surroundings)


def _report_delayed_by_others(
    code: Code, where: str, wait_text: str, own_delay: float
) -> Finding:
    return Finding(
        code,
        where,
        what=f"{wait_text}; the program's own threads explain a wait for a CPU of "
        f"{own_delay:.0%} at most",
        why="other programs use the CPUs",
        change="run this again when no other program uses the CPUs: "
        "these figures say little about this line",
        section=6,
        severity=Severity.NOTE,
    )


def _report_crowded(
    code: Code, where: str, wait_text: str, surroundings: Surroundings
) -> Finding:
    return Finding(
        code,
        where,
        what=wait_text,
        why="more threads are ready to run than there are CPUs",
        change=f"fewer workers or threads for {format_count(surroundings.cpus, 'CPU')}: "
        "OMP_NUM_THREADS=1, cv2.setNumThreads(0) in worker_init_fn",
        section=2,
    )


def _report_waiting_for_disk(
    code: Code, where: str, wait_text: str, observation: Observation, stages: Stages
) -> Finding:
    num_workers = observation.num_workers
    # Workers that sleep make batches side by side: so many keep up with the steps.
    step_s = max(stages.step_s or 0.0, 1e-3)
    enough_workers = math.ceil(stages.fetch_s / step_s)
    more_workers = max(2 * num_workers, min(enough_workers, _MAX_WORKERS))
    return Finding(
        code,
        where,
        what=wait_text,
        why="workers spend more time on waiting for the disk, the network or a lock "
        "than on computing",
        change="a faster disk for the data, or a copy on this machine; or "
        f"DataLoader(..., num_workers={more_workers}), now {num_workers}: waiting uses no CPU. "
        "If workers wait for a lock (flock), hold it only around the lines that need it",
        section=6,
    )


def _report_computing(
    code: Code, where: str, wait_text: str, surroundings: Surroundings, stages: Stages
) -> Finding:
    batch_cpu_s = stages.fetch_s * stages.on_cpu
    sample_cpu_s = batch_cpu_s * stages.batches / max(stages.samples, 1)
    if code is Code.SLOW_COLLATE:
        change = "make whole arrays into tensors (numpy.stack, torch.from_numpy), not lists of numbers"
    else:
        change = (
            "make this line faster. Large images: image.draft(), or smaller files. Augmentation: on "
            "the GPU. Lists of numbers: use arrays. A compressed archive (.zip, .tar.gz): unpack "
            "it before training"
        )
    return Finding(
        code,
        where,
        what=f"{wait_text}; a sample takes {format_ms(sample_cpu_s)} of CPU time",
        why=f"the CPUs granted ({surroundings.cpus}) are all in use: "
        "making samples needs more CPU time than there is",
        change=f"{change}; or use fastpipe.loader",
        section=6,
    )


def _report_one_cpu_each(
    code: Code,
    where: str,
    wait_text: str,
    observation: Observation,
    surroundings: Surroundings,
) -> Finding:
    return Finding(
        code,
        where,
        what=wait_text,
        why="a worker uses at most one CPU, and there are more CPUs",
        change=f"DataLoader(..., num_workers={surroundings.cpus}), "
        f"now {observation.num_workers} ({observation.made_at}); or make this line faster",
        section=6,
    )


def report_slow_transfer(
    observation: Observation, stages: Stages, wait_text: str
) -> Finding:
    """The way from the workers to the loop is slow."""
    if stages.fetch_s > _MIN_FETCH_S:
        change = (
            "return tensors from collate_fn (torch.from_numpy(array)), "
            "of uint8 where that is enough: a quarter of float32"
        )
    else:
        change = f"DataLoader(..., num_workers=0): making a batch takes {format_ms(stages.fetch_s)}"
    return Finding(
        Code.SLOW_TRANSFER,
        str(observation.facts["collate_place"]),
        what=wait_text,
        why="each tensor goes through shared memory, and is copied again if it is pinned; "
        "arrays of NumPy, lists and other objects are pickled and go through a pipe, "
        "which is slower",
        change=change,
        section=3,
    )
