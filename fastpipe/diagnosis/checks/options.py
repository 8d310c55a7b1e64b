"""A DataLoader's options and its workers' threads -> what does not fit together or is too much."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from fastpipe.diagnosis.advice import MORE_SHARED_MEMORY
from fastpipe.diagnosis.checks.cpu_delays import CROWDED
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.records import Snapshot
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.quantities import format_size
from fastpipe.diagnosis.stages import Stages
from fastpipe.errors import format_count

# Batches made ahead may take this share of the free memory: the model and the system need some,
# too.
_MAX_MEMORY_SHARE = 0.5
# Little else uses /dev/shm, so more of it may be in use.
_MAX_SHARED_MEMORY_SHARE = 0.8
# The share of its time that a worker computes, up to which it mostly waits for disk or network.
_MOSTLY_IDLE = 0.3
# A worker's own thread, its queue's, and one more.
_USUAL_THREADS = 3
# A worker that uses more CPUs than this computes on several threads.
_SEVERAL_CPUS = 1.3
# Threads in all workers may be that many times the CPUs.
_MAX_BUSY_THREADS = 2
_MAX_IDLE_THREADS = 8


def check(
    observation: Observation, surroundings: Surroundings, stages: Stages | None
) -> Iterator[Finding]:
    """Finds options that do nothing, give no batch, or ask for more than the machine has.

    `stages` has the times of the workers; None: too few batches were watched for them.
    """
    if observation.facts["batches"] == 0 and not observation.batches:
        yield _report_no_batches(observation)
    if observation.num_workers == 0:
        yield from _check_options_for_workers(observation)
    yield from _check_pinning(observation)
    # Workers without work do not wait for a CPU: another check reports them.
    working_workers = observation.num_workers
    if stages is not None:
        working_workers = stages.working_workers
    if working_workers > surroundings.cpus:
        yield _report_too_many_workers(observation, surroundings, stages)
    if observation.num_workers and observation.batches:
        yield from _check_prefetched(observation, surroundings)
    yield from _check_binding(observation, surroundings)
    yield from _check_threads(observation, surroundings, stages)


def _report_no_batches(observation: Observation) -> Finding:
    facts = observation.facts
    if facts["length"] and facts["drop_last"]:
        why = (
            "drop_last=True leaves out the only batch: it has less than "
            f"batch_size={facts['batch_size']} samples"
        )
        change = "a smaller batch_size, or drop_last=False"
    else:
        why = "len(dataset) or len(sampler) is 0"
        change = "look at how the dataset lists its samples"
    return Finding(
        Code.NO_BATCHES,
        observation.made_at,
        what=f"the dataset has {facts['length']} samples, and an epoch has no batch",
        why=why,
        change=change,
    )


def _check_options_for_workers(observation: Observation) -> Iterator[Finding]:
    names = ("persistent_workers", "prefetch_factor")
    useless = [
        f"{name}={observation.facts[name]}" for name in names if observation.facts[name]
    ]
    if useless:
        yield Finding(
            Code.OPTIONS_WITHOUT_WORKERS,
            observation.made_at,
            what=f"{' and '.join(useless)} with num_workers=0",
            why="such options need workers, and there are none",
            change="leave them out, or set num_workers",
            section=11,
            severity=Severity.NOTE,
        )


def _check_pinning(observation: Observation) -> Iterator[Finding]:
    facts = observation.facts
    if facts["pin_memory"] and facts["accelerator"] is False:
        yield Finding(
            Code.PIN_WITHOUT_GPU,
            observation.made_at,
            what="pin_memory=True, and there is no GPU",
            why="pinned memory is useful only for copies to a GPU that run while the GPU computes",
            change="DataLoader(..., pin_memory=torch.cuda.is_available())",
            section=12,
            severity=Severity.NOTE,
        )
    if not facts["pin_memory"] and facts["uses_cuda"]:
        yield Finding(
            Code.GPU_WITHOUT_PIN,
            observation.made_at,
            what="pin_memory=False in a program that uses a GPU",
            why="a copy from memory that is not pinned cannot run while the GPU computes",
            change="DataLoader(..., pin_memory=True) and .to(device, non_blocking=True): "
            "use both or neither",
            section=12,
            severity=Severity.NOTE,
        )


def _report_too_many_workers(
    observation: Observation, surroundings: Surroundings, stages: Stages | None
) -> Finding:
    workers = format_count(observation.num_workers, "worker")
    cpus = format_count(surroundings.cpus, "CPU")
    symptom = f"{workers} for {cpus} granted"
    severity = Severity.NOTE
    # Too many workers hurt only if they have to wait for the CPUs.
    if stages is not None and stages.delayed is not None:
        symptom += f"; a worker that makes a batch waits {stages.delayed:.0%} of the time for a CPU"
        if stages.delayed > CROWDED:
            severity = Severity.BAD
        elif stages.on_cpu < _MOSTLY_IDLE:
            symptom += (
                f" and computes {stages.on_cpu:.0%} of it, so more workers than CPUs "
                "may be intended"
            )
    return Finding(
        Code.TOO_MANY_WORKERS,
        observation.made_at,
        what=symptom,
        why="os.cpu_count() counts the host's CPUs, not those granted to a container; "
        "each worker holds its own batches",
        change=f"DataLoader(..., num_workers={surroundings.cpus}), "
        "divided by the training processes of the container",
        section=6,
        severity=severity,
    )


def _check_binding(
    observation: Observation, surroundings: Surroundings
) -> Iterator[Finding]:
    """Finds workers that may run on too few CPUs: on fewer than there are workers, all together,
    although the program was granted more.
    """
    workers = [
        worker for worker in observation.workers if worker.number >= 0 and worker.cpus
    ]
    if not workers:
        return
    # A worker_init_fn may give each worker a CPU of its own, so only all of them together count.
    usable: set[int] = set()
    for worker in workers:
        usable.update(worker.cpus)
    if len(usable) >= min(surroundings.cpus, observation.num_workers):
        return
    symptom = (
        f"{format_count(observation.num_workers, 'worker')} may run on "
        f"{format_count(len(usable), 'CPU')} together; "
        f"{format_count(surroundings.cpus, 'CPU')} are granted"
    )
    if workers[0].binding:
        symptom += f"; {workers[0].binding} is set"
    yield Finding(
        Code.BOUND_WORKERS,
        observation.made_at,
        what=symptom,
        why="a worker inherits the CPUs of the main thread, and OMP_PROC_BIND, GOMP_CPU_AFFINITY "
        "or os.sched_setaffinity has bound that to few of them",
        change="unset the variable (OMP_PROC_BIND=false); or in worker_init_fn: "
        "os.sched_setaffinity(0, range(os.cpu_count()))",
        section=6,
    )


def _check_prefetched(
    observation: Observation, surroundings: Surroundings
) -> Iterator[Finding]:
    """Compares the batches that workers make ahead with the free memory, also the shared one."""
    facts = observation.facts
    batch_bytes = statistics.median(batch.size_bytes for batch in observation.batches)
    ahead_bytes = observation.num_workers * int(facts["prefetch_factor"]) * batch_bytes
    product = (
        f"num_workers={observation.num_workers} x prefetch_factor={facts['prefetch_factor']} x "
        f"{format_size(batch_bytes)} per batch = {format_size(ahead_bytes)}"
    )
    # Measured before the loader ran, so that none of its batches is in use yet.
    free_bytes = surroundings.free_bytes
    if free_bytes is not None and ahead_bytes > _MAX_MEMORY_SHARE * free_bytes:
        yield Finding(
            Code.PREFETCH_MEMORY,
            observation.made_at,
            what=f"{product}; only {format_size(free_bytes)} of memory were free at the start",
            why="prefetch_factor applies to each worker; pinned copies need memory, too",
            change="DataLoader(..., prefetch_factor=1), fewer num_workers, or smaller batches "
            "(uint8 instead of float32)",
            section=7,
        )
    shared_free = facts["shared_free"]
    if shared_free is not None and ahead_bytes > _MAX_SHARED_MEMORY_SHARE * shared_free:
        yield Finding(
            Code.SMALL_SHARED_MEMORY,
            observation.made_at,
            what=f"{product}; /dev/shm had {format_size(shared_free)} free",
            why="workers pass batches in files in /dev/shm",
            change=MORE_SHARED_MEMORY,
            section=3,
        )


def _check_threads(
    observation: Observation, surroundings: Surroundings, stages: Stages | None
) -> Iterator[Finding]:
    """Compares the threads of OpenCV, torch and other libraries in the workers with the CPUs."""
    latest: list[Snapshot] = []  # the newest of each worker
    snapshots: list[Snapshot] = []  # the first and the newest of each worker
    for worker in observation.workers:
        if worker.number < 0:
            continue
        candidates = [worker.start, *worker.snapshots[-1:]]
        known = [snapshot for snapshot in candidates if snapshot is not None]
        snapshots += known
        latest += known[-1:]
    if not latest:
        return
    # OpenCV: only the newest counts, because a dataset may limit it when it reads its first sample.
    opencv_threads = max(snapshot.cv2_threads or 0 for snapshot in latest)
    if (
        opencv_threads > 1
        and opencv_threads * observation.num_workers > surroundings.cpus
    ):
        yield _report_opencv_threads(observation, surroundings, opencv_threads)
    torch_threads = max(snapshot.torch_threads or 0 for snapshot in snapshots)
    if torch_threads > 1:
        yield _report_torch_threads(observation, torch_threads)
    threads = max(snapshot.threads or 0 for snapshot in snapshots)
    if opencv_threads > 1:
        threads -= opencv_threads - 1  # those have a finding of their own
    cpus_used = stages.on_cpu if stages is not None else 0.0
    is_busy = cpus_used > _SEVERAL_CPUS
    # Idle threads cost next to nothing. A spawned worker has some before torch limits them.
    most_a_cpu = _MAX_BUSY_THREADS if is_busy else _MAX_IDLE_THREADS
    most_threads = most_a_cpu * surroundings.cpus
    if threads > _USUAL_THREADS and threads * observation.num_workers > most_threads:
        yield _report_too_many_threads(
            observation, surroundings, threads, cpus_used, is_busy=is_busy
        )


def _report_opencv_threads(
    observation: Observation, surroundings: Surroundings, threads: int
) -> Finding:
    workers = format_count(observation.num_workers, "worker")
    cpus = format_count(surroundings.cpus, "CPU")
    return Finding(
        Code.OPENCV_THREADS,
        observation.made_at,
        what=f"OpenCV works on {threads} threads in each of {workers}, for {cpus} granted",
        why="OpenCV has a thread for each CPU of the machine, in each worker; "
        "some builds do not work after a fork",
        change="cv2.setNumThreads(0) in worker_init_fn",
        section=2,
    )


def _report_torch_threads(observation: Observation, threads: int) -> Finding:
    return Finding(
        Code.TORCH_THREADS,
        str(observation.facts["init_place"] or observation.facts["dataset_place"]),
        what=f"torch works on {threads} threads in a worker",
        why="OpenMP's threads do not exist after a fork, "
        "and a large operation waits for them forever",
        change="remove torch.set_num_threads from the dataset and from worker_init_fn: "
        "torch gives each worker one thread",
        section=1,
    )


def _report_too_many_threads(
    observation: Observation,
    surroundings: Surroundings,
    threads: int,
    cpus_used: float,
    *,
    is_busy: bool,
) -> Finding:
    workers = format_count(observation.num_workers, "worker")
    cpus = format_count(surroundings.cpus, "CPU")
    return Finding(
        Code.TOO_MANY_THREADS,
        "",
        what=f"a worker has {threads} threads: {threads * observation.num_workers} in {workers}, "
        f"for {cpus} granted; while it makes a batch it uses {cpus_used:.1f} CPUs",
        why="OpenBLAS, MKL and OpenMP start a thread for each CPU of the machine, in each worker; "
        "torch itself does not",
        change="OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 "
        "before the training's command",
        section=2,
        severity=Severity.BAD if is_busy else Severity.NOTE,
    )
