"""Waiting for a CPU: how much of it is the program's own doing, and what others cost the loader."""

from __future__ import annotations

import statistics

from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import Stages, list_steps_s

# The share of its time that a worker waits for a CPU, from which the CPUs count as too few.
CROWDED = 0.3
# The scheduler does not share out the CPUs exactly: so much more may be the program's own doing.
UNSURE = 0.1


def is_delayed_by_others(
    observation: Observation,
    surroundings: Surroundings,
    stages: Stages,
    *,
    slowdown: float = 1.0,
) -> bool:
    """Whether the loader would keep up if other programs did not take the CPUs from it.

    Args:
        slowdown: by how much a busy machine may stretch CPU time itself (shared caches, two threads
            on one core).
    """
    delayed = stages.delayed or 0.0
    working = max(stages.working_workers, 1)
    if (
        stages.step_s is None
        or delayed < CROWDED
        or working > surroundings.cpus
        or stages.on_cpu > 1
    ):
        return False
    # The tenth part of the steps, the shortest, were delayed by nobody.
    steps_s = [*list_steps_s(observation), 0.0]
    short_step_s = statistics.quantiles(steps_s, n=10)[1]
    undelayed_fetch_s = stages.fetch_s * (1 - delayed) / working
    return undelayed_fetch_s < slowdown * short_step_s


def estimate_own_delay(
    observation: Observation, surroundings: Surroundings, stages: Stages
) -> float:
    """Estimates the share of its time that a worker waits for a CPU without other programs."""
    working = max(stages.working_workers, 1)
    if working > surroundings.cpus or stages.on_cpu > 1:
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
    # The loop's threads compute only in its steps; while it waits for a batch they sleep.
    busy_threads_in_loop = threads_in_loop * (1 - stages.waiting)
    # Each rank has its own loop and workers, on the same CPUs.
    threads_in_rank = working * threads_in_worker + busy_threads_in_loop
    threads = threads_in_rank * (1 + len(observation.others))
    return max(0.0, 1 - surroundings.cpus / threads)
