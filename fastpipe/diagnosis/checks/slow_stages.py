"""A slow stage -> the resource that its process lacks: CPUs, a faster disk, or a shorter way."""

from __future__ import annotations

from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.quantities import format_count, format_ms
from fastpipe.diagnosis.stages import Stages

# Batches that are made faster need no workers.
_MIN_FETCH_S = 2e-3
# The share of its time that a worker waits for a CPU, from which the CPUs count as too few.
_CROWDED = 0.3
# The scheduler does not share out the CPUs exactly: so much more may be the program's own doing.
_UNSURE = 0.1


def report_slow_stage(
    code: Code,
    where: str,
    observation: Observation,
    surroundings: Surroundings,
    stages: Stages,
    waiting: str,
) -> Finding:
    """The dataset or collate_fn is slow: says what the workers, which are busy, lack."""
    own_delay = _estimate_own_delay(observation, stages, surroundings)
    delayed = min(stages.delayed or 0.0, max(0.0, 1 - stages.on_cpu))
    asleep = 1 - stages.on_cpu - delayed
    uses_all_cpus = observation.num_workers >= surroundings.cpus
    # If workers sleep more than they wait for a CPU, other CPUs would not help.
    if delayed > max(_CROWDED, asleep):
        if delayed > own_delay + _UNSURE:
            return _report_delayed_by_others(code, where, waiting, own_delay)
        if uses_all_cpus:
            return _report_crowded(code, where, waiting, surroundings)
    # Time in which it waited for a CPU says nothing about its work.
    time_with_cpu = max(1 - min(delayed, 0.99), 0.01)
    if stages.on_cpu <= 0.5 * time_with_cpu:
        return _report_waiting_for_disk(code, where, waiting, observation)
    if uses_all_cpus:
        return _report_computing(code, where, waiting, surroundings)
    return _report_one_cpu_each(code, where, waiting, observation, surroundings)


def _estimate_own_delay(
    observation: Observation, stages: Stages, surroundings: Surroundings
) -> float:
    """Estimates the share of its time that a worker waits for a CPU without other programs."""
    if observation.num_workers > surroundings.cpus or stages.on_cpu > 1:
        return 1.0  # the program has more threads at work than there are CPUs
    threads_in_worker = 1
    snapshots = [
        worker.snapshots[-1] for worker in observation.workers if worker.snapshots
    ]
    if snapshots:
        threads_in_worker = max(snapshot.cv2_threads or 1 for snapshot in snapshots)
    threads_in_loop = 1
    if observation.snapshots:
        threads_in_loop = observation.snapshots[-1].torch_threads or 1
    # Each rank has its own loop and workers, on the same CPUs.
    threads_in_rank = observation.num_workers * threads_in_worker + threads_in_loop
    threads = threads_in_rank * (1 + len(observation.others))
    return max(0.0, 1 - surroundings.cpus / threads)


def _report_delayed_by_others(
    code: Code, where: str, waiting: str, own_delay: float
) -> Finding:
    return Finding(
        code,
        where,
        what=f"{waiting}; the program's own threads explain a wait for a CPU of "
        f"{own_delay:.0%} at most",
        why="other programs use the CPUs",
        change="watch it again when no other program runs: "
        "these figures say little about this line",
        section=6,
        severity=Severity.NOTE,
    )


def _report_crowded(
    code: Code, where: str, waiting: str, surroundings: Surroundings
) -> Finding:
    return Finding(
        code,
        where,
        what=waiting,
        why="more threads are ready to run than there are CPUs",
        change=f"fewer workers or threads for {format_count(surroundings.cpus, 'CPU')}: "
        "OMP_NUM_THREADS=1, cv2.setNumThreads(0) in worker_init_fn",
        section=2,
    )


def _report_waiting_for_disk(
    code: Code, where: str, waiting: str, observation: Observation
) -> Finding:
    num_workers = observation.num_workers
    return Finding(
        code,
        where,
        what=waiting,
        why="workers spend more time on waiting for the disk, the network or a lock "
        "than on computing",
        change="a faster disk for the data; or "
        f"DataLoader(..., num_workers={2 * num_workers}), now {num_workers}: waiting uses no CPU, "
        "unless workers wait for each other: hold a lock (flock) only for what needs it",
        section=6,
    )


def _report_computing(
    code: Code, where: str, waiting: str, surroundings: Surroundings
) -> Finding:
    return Finding(
        code,
        where,
        what=waiting,
        why=f"the CPUs granted ({surroundings.cpus}) are all in use: "
        "making samples needs more CPU time than there is",
        change="make this line faster (smaller images, augmentation on the GPU, "
        "arrays for lists), or use fastpipe.loader",
        section=6,
    )


def _report_one_cpu_each(
    code: Code,
    where: str,
    waiting: str,
    observation: Observation,
    surroundings: Surroundings,
) -> Finding:
    return Finding(
        code,
        where,
        what=waiting,
        why="a worker uses at most one CPU, and there are more CPUs",
        change=f"DataLoader(..., num_workers={surroundings.cpus}), "
        f"now {observation.num_workers} ({observation.made_at}); or make this line faster",
        section=6,
    )


def report_slow_transfer(
    observation: Observation, stages: Stages, waiting: str
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
        what=waiting,
        why="each tensor goes through shared memory, and is copied again if it is pinned; "
        "arrays of NumPy, lists and other objects are pickled and go through a pipe, "
        "which is slower",
        change=change,
        section=3,
    )
