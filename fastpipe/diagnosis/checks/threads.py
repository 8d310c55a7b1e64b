"""Snapshots of workers -> libraries that run more threads than there are CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation, Snapshot
from fastpipe.diagnosis.surroundings import Surroundings
from fastpipe.diagnosis.words import count

_USUAL = 3  # a worker's own thread, its queue's, and one more
_VARIABLES = "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1"


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """OpenCV's, torch's and all others'."""
    workers = [worker for worker in seen.workers if worker.number >= 0]
    snapshots = [taken for worker in workers for taken in [worker.start, *worker.snapshots[-1:]] if taken is not None]
    if not snapshots:
        return
    latest = [taken for worker in workers if (taken := [worker.start, *worker.snapshots][-1]) is not None]
    yield from _opencv(seen, latest, around)  # a dataset may limit OpenCV when it reads its first sample
    yield from _torch(seen, snapshots)
    threads = max(snapshot.threads or 0 for snapshot in snapshots)
    busy = _parallel(seen) > 1.3
    # Idle ones cost next to nothing; a spawned worker has some before torch limits them.
    if threads > _USUAL and threads * seen.num_workers > (2 if busy else 8) * around.cpus:
        yield Finding(
            "too-many-threads",
            Severity.BAD if busy else Severity.NOTE,
            f"a worker has {threads} threads: {threads * seen.num_workers} in {count(seen.num_workers, 'worker')}, for "
            f"{count(around.cpus, 'CPU')} granted; while it makes a batch it uses {_parallel(seen):.1f} CPUs",
            "OpenBLAS, MKL and OpenMP start a thread for each CPU of the machine, in each worker; torch itself does "
            "not",
            f"{_VARIABLES} before the training's command",
            "",
            2,
        )


def _opencv(seen: Observation, snapshots: list[Snapshot], around: Surroundings) -> Iterator[Finding]:
    most = max(snapshot.cv2_threads or 0 for snapshot in snapshots)
    if most > 1 and most * seen.num_workers > around.cpus:
        yield Finding(
            "opencv-threads",
            Severity.BAD,
            f"OpenCV works on {most} threads in each of {count(seen.num_workers, 'worker')}, for "
            f"{count(around.cpus, 'CPU')} granted",
            "OpenCV has a thread for each CPU of the machine, in each worker; some builds of OpenCV do not work "
            "after a fork",
            f"cv2.setNumThreads(0) in worker_init_fn{'' if seen.facts['init'] else '; there is none yet'}",
            seen.made_at,
            2,
        )


def _torch(seen: Observation, snapshots: list[Snapshot]) -> Iterator[Finding]:
    most = max(snapshot.torch_threads or 0 for snapshot in snapshots)
    if most > 1:
        yield Finding(
            "torch-threads",
            Severity.BAD,
            f"torch works on {most} threads in a worker",
            "torch gives each worker one thread; OpenMP's threads do not exist after a fork, and a large operation "
            "waits for them forever",
            "remove torch.set_num_threads from the dataset and from worker_init_fn",
            str(seen.facts["init_place"] or seen.facts["dataset_place"]),
            1,
        )


def _parallel(seen: Observation) -> float:
    """CPUs that a worker uses while it makes a batch."""
    fetches = [fetch for worker in seen.workers for fetch in worker.fetches]
    return sum(fetch.cpu_s for fetch in fetches) / max(sum(fetch.seconds for fetch in fetches), 1e-9)
