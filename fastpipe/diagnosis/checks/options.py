"""A DataLoader's options and its workers' libraries -> what does not fit together, or is too much for the machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import stages

_MOST_OF_MEMORY = 0.5
_MOST_OF_SHARED_MEMORY = 0.8
_CROWDED = 0.3
_USUAL_THREADS = 3  # a worker's own thread, its queue's, and one more


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Options that do nothing, or more than is good."""
    facts = seen.facts
    if facts["batches"] == 0 and not seen.batches:
        evidence = {"samples": facts["length"], "batch_size": facts["batch_size"]}
        cause = "drop-last" if facts["length"] and facts["drop_last"] else ""
        yield Finding(Code.NO_BATCHES, seen.made_at, evidence, cause)
    idle = [name for name in ("persistent_workers", "prefetch_factor") if facts[name]]
    if idle and not seen.num_workers:
        evidence = {"options": " and ".join(f"{name}={facts[name]}" for name in idle), "names": " and ".join(idle)}
        yield Finding(Code.OPTIONS_WITHOUT_WORKERS, seen.made_at, evidence, severity=Severity.NOTE)
    if facts["pin_memory"] and facts["accelerator"] is False:
        yield Finding(Code.PIN_WITHOUT_GPU, seen.made_at, severity=Severity.NOTE)
    if not facts["pin_memory"] and facts["uses_cuda"]:
        yield Finding(Code.GPU_WITHOUT_PIN, seen.made_at, severity=Severity.NOTE)
    if facts["unpicklable"] and facts["method"] != "fork" and seen.num_workers:
        yield Finding(
            Code.LAMBDA,
            facts["unpicklable"][0]["place"],
            {**several(facts["unpicklable"]), "method": facts["method"]},
        )
    yield from _workers(seen, around)
    yield from _made_ahead(seen, around)
    yield from _threads(seen, around)


def several(found: list[dict[str, str]]) -> dict[str, object]:
    """Evidence of objects of one kind: the first, and the paths of more."""
    others = ", ".join(each["path"] for each in found[1:4])
    return {**found[0], "more": len(found) - 1 or None, "others": others}


def _workers(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    if seen.num_workers <= around.cpus:
        return
    found = stages(seen)
    delayed = found.delayed if found else None
    crowded = delayed is not None and delayed > _CROWDED
    # Workers that compute little may be more than there are CPUs, and be meant to.
    on_cpu = found.on_cpu if found and delayed is not None and not crowded and found.on_cpu < 0.3 else None
    evidence = {"workers": seen.num_workers, "cpus": around.cpus, "delayed": delayed, "on_cpu": on_cpu}
    severity = Severity.BAD if crowded else Severity.NOTE
    yield Finding(Code.TOO_MANY_WORKERS, seen.made_at, evidence, severity=severity)


def _made_ahead(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    if not seen.batches or seen.num_workers == 0:
        return
    batch_bytes = statistics.median(each.size_bytes for each in seen.batches)
    prefetch = int(seen.facts["prefetch_factor"])
    ahead_bytes = seen.num_workers * prefetch * batch_bytes
    evidence = {
        "workers": seen.num_workers,
        "prefetch": prefetch,
        "batch_bytes": batch_bytes,
        "ahead_bytes": ahead_bytes,
        "lower": 1 if prefetch > 1 else None,
        "too_many": seen.num_workers if prefetch == 1 else None,
    }
    # What is there already was taken from what is free: it was measured when the loader ran.
    for code, cause, free_bytes, most in (
        (Code.PREFETCH_MEMORY, "", around.free_bytes, _MOST_OF_MEMORY),
        (Code.SMALL_SHARED_MEMORY, "ahead", seen.facts["shared_free"], _MOST_OF_SHARED_MEMORY),
    ):
        if free_bytes is not None and ahead_bytes > most * free_bytes:
            yield Finding(code, seen.made_at, {**evidence, "free_bytes": free_bytes}, cause)


def _threads(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """OpenCV's, torch's and all others' of workers, against the CPUs."""
    workers = [worker for worker in seen.workers if worker.number >= 0]
    taken = [[each for each in (worker.start, *worker.snapshots[-1:]) if each] for worker in workers]
    last = [each[-1] for each in taken if each]
    if not last:
        return
    evidence: dict[str, Any] = {"workers": seen.num_workers, "cpus": around.cpus}
    opencv = max(each.cv2_threads or 0 for each in last)  # a dataset may limit it when it reads its first sample
    if opencv > 1 and opencv * seen.num_workers > around.cpus:
        yield Finding(
            Code.OPENCV_THREADS,
            seen.made_at,
            {**evidence, "threads": opencv, "init": None if seen.facts["init"] else "none"},
        )
    torch = max(each.torch_threads or 0 for some in taken for each in some)
    if torch > 1:
        place = str(seen.facts["init_place"] or seen.facts["dataset_place"])
        yield Finding(Code.TORCH_THREADS, place, {"threads": torch})
    threads = max(each.threads or 0 for some in taken for each in some)
    fetches = [fetch for worker in seen.workers for fetch in worker.fetches]
    cpus_used = sum(fetch.cpu_s for fetch in fetches) / max(sum(fetch.seconds for fetch in fetches), 1e-9)
    busy = cpus_used > 1.3
    # Idle ones cost next to nothing; a spawned worker has some before torch limits them.
    if threads > _USUAL_THREADS and threads * seen.num_workers > (2 if busy else 8) * around.cpus:
        evidence |= {"threads": threads, "all_threads": threads * seen.num_workers, "cpus_used": cpus_used}
        severity = Severity.BAD if busy else Severity.NOTE
        yield Finding(Code.TOO_MANY_THREADS, "", evidence, severity=severity)
