"""A DataLoader's options -> options that do not fit together, and numbers that are too large for the machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.stages import stages
from fastpipe.diagnosis.surroundings import Surroundings
from fastpipe.diagnosis.words import count, size

_MOST_OF_MEMORY = 0.5
_MOST_OF_SHARED_MEMORY = 0.8


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """Options that do nothing, or more than is good."""
    yield from _no_batches(seen)
    yield from _without_workers(seen)
    yield from _pinning(seen)
    yield from _workers(seen, around)
    yield from _made_ahead(seen, around)


def _no_batches(seen: Observation) -> Iterator[Finding]:
    if seen.facts["batches"] == 0 and not seen.batches:
        left_out = bool(seen.facts["length"]) and seen.facts["drop_last"]
        yield Finding(
            "no-batches",
            Severity.BAD,
            f"the dataset has {seen.facts['length']} samples, and an epoch has no batch",
            f"drop_last=True leaves out the only batch: it has less than batch_size={seen.facts['batch_size']} samples"
            if left_out
            else "len(dataset) or len(sampler) is 0",
            "a smaller batch_size, or drop_last=False" if left_out else "look at how the dataset lists its samples",
            seen.made_at,
        )


def _without_workers(seen: Observation) -> Iterator[Finding]:
    if seen.num_workers > 0:
        return
    idle = [name for name in ("persistent_workers", "prefetch_factor") if seen.facts[name]]
    if idle:
        yield Finding(
            "options-without-workers",
            Severity.NOTE,
            f"{' and '.join(f'{name}={seen.facts[name]}' for name in idle)} with num_workers=0",
            "both options need workers, and there are none",
            f"leave out {' and '.join(idle)}, or set num_workers",
            seen.made_at,
            11,
        )


def _pinning(seen: Observation) -> Iterator[Finding]:
    if seen.facts["pin_memory"] and seen.facts["accelerator"] is False:
        yield Finding(
            "pin-without-gpu",
            Severity.NOTE,
            "pin_memory=True, and there is no GPU",
            "pinned memory is useful only for copies to a GPU that run while the GPU computes",
            "DataLoader(..., pin_memory=torch.cuda.is_available())",
            seen.made_at,
            12,
        )
    if not seen.facts["pin_memory"] and seen.facts["uses_cuda"]:
        yield Finding(
            "gpu-without-pin",
            Severity.NOTE,
            "pin_memory=False in a program that uses a GPU",
            "a copy from memory that is not pinned cannot run while the GPU computes",
            "DataLoader(..., pin_memory=True) and .to(device, non_blocking=True): use both or neither",
            seen.made_at,
            12,
        )


def _workers(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    if seen.num_workers <= around.cpus:
        return
    found = stages(seen)
    what = f"{count(seen.num_workers, 'worker')} for {count(around.cpus, 'CPU')} granted"
    severity = Severity.NOTE
    if found is not None and found.delayed is not None:
        what += f"; a worker that makes a batch waits {found.delayed:.0%} of the time for a CPU"
        if found.delayed > 0.3:
            severity = Severity.BAD
        elif found.on_cpu < 0.3:
            what += f" and computes {found.on_cpu:.0%} of it, so more workers than CPUs may be intended"
    yield Finding(
        "too-many-workers",
        severity,
        what,
        "os.cpu_count() counts the CPUs of the host, not the CPUs granted to a container; each worker also holds its "
        "own batches",
        f"DataLoader(..., num_workers={around.cpus}), divided by the training processes of the container",
        seen.made_at,
        6,
    )


def _made_ahead(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    if not seen.batches or seen.num_workers == 0:
        return
    batch = statistics.median(each.size_bytes for each in seen.batches)
    prefetch = int(seen.facts["prefetch_factor"])
    ahead = seen.num_workers * prefetch * batch
    sum_ = f"num_workers={seen.num_workers} x prefetch_factor={prefetch} x {size(batch)} per batch = {size(ahead)}"
    less = "DataLoader(..., prefetch_factor=1)" if prefetch > 1 else "DataLoader(...) with fewer num_workers"
    # What is there already was taken from what is free: it was measured when the loader ran.
    if around.free_bytes is not None and ahead > _MOST_OF_MEMORY * around.free_bytes:
        yield Finding(
            "prefetch-memory",
            Severity.BAD,
            f"{sum_}; only {size(around.free_bytes)} of memory are free",
            "prefetch_factor applies to each worker"
            + ("; pinned copies need additional memory" if seen.facts["pin_memory"] else ""),
            f"{less}, or smaller batches (uint8 instead of float32)",
            seen.made_at,
            7,
        )
    shared = seen.facts["shared_free"]
    if shared is not None and ahead > _MOST_OF_SHARED_MEMORY * shared:
        yield Finding(
            "small-shared-memory",
            Severity.BAD,
            f"{sum_}; /dev/shm had {size(shared)} free",
            "workers pass batches in files in /dev/shm",
            f"docker run --shm-size=8g (or --ipc=host), or {less}",
            seen.made_at,
            3,
        )
