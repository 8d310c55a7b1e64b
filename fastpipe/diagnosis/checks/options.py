"""A DataLoader's options and its workers' libraries -> what does not fit together, or is too much for the machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import Stages

_MOST_OF_MEMORY = 0.5
_MOST_OF_SHARED_MEMORY = 0.8
_CROWDED = 0.3
_USUAL_THREADS = 3  # a worker's own thread, its queue's, and one more


def check(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """Options that do nothing, or more than is good."""
    facts = seen.facts
    if facts["batches"] == 0 and not seen.batches:
        yield Finding(
            Code.NO_BATCHES, seen.made_at, cause="drop-last" if facts["length"] and facts["drop_last"] else ""
        )
    useless = [f"{name}={facts[name]}" for name in ("persistent_workers", "prefetch_factor") if facts[name]]
    if useless and not seen.num_workers:
        evidence = {"options": " and ".join(useless)}
        yield Finding(Code.OPTIONS_WITHOUT_WORKERS, seen.made_at, evidence, severity=Severity.NOTE)
    if facts["pin_memory"] and facts["accelerator"] is False:
        yield Finding(Code.PIN_WITHOUT_GPU, seen.made_at, severity=Severity.NOTE)
    if not facts["pin_memory"] and facts["uses_cuda"]:
        yield Finding(Code.GPU_WITHOUT_PIN, seen.made_at, severity=Severity.NOTE)
    if seen.num_workers > around.cpus:
        delayed = time.delayed if time else None
        severity = Severity.BAD if (delayed or 0.0) > _CROWDED else Severity.NOTE
        # Workers that compute little may be more than there are CPUs, and be meant to.
        idle = time.on_cpu if time and delayed is not None and delayed <= _CROWDED and time.on_cpu < 0.3 else None
        yield Finding(Code.TOO_MANY_WORKERS, seen.made_at, {"idle": idle}, severity=severity)
    if seen.num_workers and seen.batches:
        yield from _made_ahead(seen, around)
    yield from _bound(seen, around)
    yield from _threads(seen, around, time)


def _bound(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Workers that have fewer CPUs than the program was granted."""
    workers = [worker for worker in seen.workers if worker.number >= 0 and worker.cpus]
    together = {cpu for worker in workers for cpu in worker.cpus}  # each may have one of its own
    if workers and len(together) < min(around.cpus, seen.num_workers):
        evidence = {"mask": len(together), "variable": workers[0].binding or None}
        yield Finding(Code.BOUND_WORKERS, seen.made_at, evidence)


def _made_ahead(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    batch_bytes = statistics.median(each.size_bytes for each in seen.batches)
    ahead_bytes = seen.num_workers * int(seen.facts["prefetch_factor"]) * batch_bytes
    # What is there already was taken from what is free: it was measured when the loader ran.
    for code, cause, free_bytes, most in (
        (Code.PREFETCH_MEMORY, "", around.free_bytes, _MOST_OF_MEMORY),
        (Code.SMALL_SHARED_MEMORY, "ahead", seen.facts["shared_free"], _MOST_OF_SHARED_MEMORY),
    ):
        if free_bytes is not None and ahead_bytes > most * free_bytes:
            evidence = {"batch_bytes": batch_bytes, "ahead_bytes": ahead_bytes, "free_bytes": free_bytes}
            yield Finding(code, seen.made_at, evidence, cause)


def _threads(seen: Observation, around: Surroundings, time: Stages | None) -> Iterator[Finding]:
    """OpenCV's, torch's and all others' of workers, against the CPUs."""
    workers = [worker for worker in seen.workers if worker.number >= 0]
    taken = [[each for each in (worker.start, *worker.snapshots[-1:]) if each] for worker in workers]
    last = [each[-1] for each in taken if each]
    if not last:
        return
    opencv = max(each.cv2_threads or 0 for each in last)  # a dataset may limit it when it reads its first sample
    if opencv > 1 and opencv * seen.num_workers > around.cpus:
        yield Finding(Code.OPENCV_THREADS, seen.made_at, {"threads": opencv})
    torch = max(each.torch_threads or 0 for some in taken for each in some)
    if torch > 1:
        place = str(seen.facts["init_place"] or seen.facts["dataset_place"])
        yield Finding(Code.TORCH_THREADS, place, {"threads": torch})
    threads = max(each.threads or 0 for some in taken for each in some)
    cpus_used = time.on_cpu if time else 0.0
    busy = cpus_used > 1.3
    # Idle ones cost next to nothing; a spawned worker has some before torch limits them.
    if threads > _USUAL_THREADS and threads * seen.num_workers > (2 if busy else 8) * around.cpus:
        evidence = {"threads": threads, "all_threads": threads * seen.num_workers, "cpus_used": cpus_used}
        yield Finding(Code.TOO_MANY_THREADS, "", evidence, severity=Severity.BAD if busy else Severity.NOTE)
