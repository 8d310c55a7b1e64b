"""This machine, and a packed dataset -> a list of checks: what was found, whether it is well, and what to do."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import torch

from fastpipe.config import RandomResizedCrop
from fastpipe.cpus import granted_cpus
from fastpipe.engine import Engine, engine_facts
from fastpipe.errors import DatasetError
from fastpipe.index import Index
from fastpipe.machine import container_memory_bytes, memory_bytes, oom_kills, swap_used_bytes
from fastpipe.plan import EpochPlan, Recipe

SHARED_MEMORY = Path("/dev/shm")
_LEAST_SHARED_BYTES = 1 << 30
_LEAST_FILES = 1024
_LEAST_FREE_BYTES = 2 << 30
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_READ_BYTES = 64 << 20
_DECODED = 256


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"  # worth knowing
    BAD = "bad"  # will hurt


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes:
        name: what was looked at.
        found: what there is.
        verdict: how that is.
        advice: what to do; empty where nothing is to be done.
    """

    name: str
    found: str
    verdict: Verdict
    advice: str = ""


def examine(data: Path | None = None) -> list[Check]:
    """Looks at the machine and, if one is given, at a dataset. Changes nothing.

    Raises:
        DatasetError: `data` holds no finished dataset.
    """
    checks = [check() for check in (_cpus, _memory, _shared_memory, _files, _processes, _threads, _engine, _gpu)]
    checks += [_swap(), _oom()]
    if data is not None:
        checks += _dataset(Index(data))
    return checks


def _cpus() -> Check:
    granted, all_of_them = granted_cpus(), os.cpu_count() or 1
    found = f"{granted} granted of {all_of_them}"
    if granted == all_of_them:
        return Check("CPUs", found, Verdict.OK)
    advice = (
        f"os.cpu_count() says {all_of_them}: give DataLoader num_workers={granted}; fastpipe.loader knows by itself"
    )
    return Check("CPUs", found, Verdict.NOTE, advice)


def _memory() -> Check:
    memory, limit = memory_bytes(), container_memory_bytes()
    if memory is None:
        return Check("memory", "the system does not say", Verdict.OK)
    free, total = memory
    found = f"{_gb(free)} of {_gb(total)} available"
    if limit is not None:
        found += f"; this container uses {_gb(limit[0])} of {_gb(limit[1])}"
        free = min(free, limit[1] - limit[0])
    if free >= _LEAST_FREE_BYTES:
        return Check("memory", found, Verdict.OK)
    return Check("memory", found, Verdict.BAD, "end other programs, ask for more, or pass a smaller prefetch_factor")


def _shared_memory() -> Check:
    if not SHARED_MEMORY.is_dir():
        return Check(
            str(SHARED_MEMORY), "not there", Verdict.NOTE, "DataLoader's workers need it; fastpipe.loader does not"
        )
    usage = shutil.disk_usage(SHARED_MEMORY)
    found = f"{_gb(usage.free)} of {_gb(usage.total)} free"
    if usage.free >= _LEAST_SHARED_BYTES:
        return Check(str(SHARED_MEMORY), found, Verdict.OK)
    advice = "too small for DataLoader's workers: docker run --shm-size=8g (or --ipc=host); fastpipe.loader uses none"
    return Check(str(SHARED_MEMORY), found, Verdict.NOTE, advice)


def _files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= _LEAST_FILES:
        return Check("open files (ulimit -n)", found, Verdict.OK)
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return Check("open files (ulimit -n)", found, Verdict.NOTE, f"raise it: ulimit -n {most}")


def _processes() -> Check:
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    method = multiprocessing.get_start_method(allow_none=True)
    found = f"tensors by {strategy}, {method or multiprocessing.get_all_start_methods()[0]} by default"
    return Check("worker processes", found, Verdict.OK)


def _threads() -> Check:
    granted = granted_cpus()
    set_to = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    found = f"torch {torch.get_num_threads()}; {', '.join(set_to) or 'OMP_NUM_THREADS not set'}"
    if torch.get_num_threads() <= granted:
        return Check("threads", found, Verdict.OK)
    advice = f"more than the {granted} CPUs granted: OMP_NUM_THREADS={granted}, or torch.set_num_threads({granted})"
    return Check("threads", found, Verdict.BAD, advice)


def _engine() -> Check:
    facts = engine_facts()
    found = f"libjpeg-turbo {facts.libjpeg_turbo}, resize by {facts.resize}, decoding by {facts.decode}"
    if facts.resize != "scalar" and facts.decode == "strips":
        return Check("engine", found, Verdict.OK)
    advice = "this processor lacks the instructions for our fastest code (AVX2, BMI2); results are the same"
    return Check("engine", found, Verdict.NOTE, advice)


def _gpu() -> Check:
    if not torch.cuda.is_available():
        why = "torch was built without CUDA" if torch.version.cuda is None else "torch sees none"
        return Check(
            "GPU", why, Verdict.NOTE, "" if torch.version.cuda is None else "look at nvidia-smi and the driver"
        )
    names = {torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    found = f"{torch.cuda.device_count()} x {', '.join(sorted(names))}"
    try:
        torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as problem:
        reason = str(problem).splitlines()[0]
        advice = f"memory cannot be pinned ({reason}): raise the limit on locked memory (ulimit -l)"
        return Check("GPU", found, Verdict.BAD, advice)
    return Check("GPU", f"{found}; pinning works", Verdict.OK)


def _swap() -> Check:
    used = swap_used_bytes()
    if used < 100e6:
        return Check("swap", "not in use" if used == 0 else f"{_gb(used)} in use", Verdict.OK)
    return Check(
        "swap", f"{_gb(used)} in use", Verdict.NOTE, "memory was short: what is swapped out stalls when touched"
    )


def _oom() -> Check:
    kills = oom_kills()
    if kills is None:
        return Check("killed for memory", "the kernel does not say", Verdict.OK)
    if kills == 0:
        return Check("killed for memory", "nothing since the start", Verdict.OK)
    advice = "a worker that 'exited unexpectedly' was one of them: use fewer workers, or smaller batches made ahead"
    return Check("killed for memory", f"{kills:,} processes since the start", Verdict.BAD, advice)


def _dataset(index: Index) -> Iterator[Check]:
    yield _shards(index)
    needed = _decoding(index)
    yield Check("decoding", f"{needed:,.0f} images/s of random crops to 224, by {granted_cpus()} threads", Verdict.OK)
    yield _disk(index, needed * index.jpeg_bytes / max(len(index), 1))


def _shards(index: Index) -> Check:
    wrong = []
    for shard in index.shards:
        size = shard.path.stat().st_size if shard.path.exists() else None
        if size != shard.size_bytes:
            came = "is missing" if size is None else f"has {size:,} bytes, expected {shard.size_bytes:,}"
            wrong.append(f"{shard.name} {came}")
    found = f"{len(index):,} samples in {len(index.shards):,} shard{'' if len(index.shards) == 1 else 's'}"
    if not wrong:
        return Check("dataset", f"{found}, all of the right size", Verdict.OK)
    return Check(
        "dataset", f"{found}; {wrong[0]}", Verdict.BAD, f"{len(wrong)} damaged: fastpipe verify DATA --repair SRC"
    )


def _decoding(index: Index) -> float:
    """Images/s, of some random crops from files in the page cache."""
    count = min(_DECODED, len(index))
    plan = EpochPlan(index, Recipe(count, (224, 224), RandomResizedCrop(), 0.5, True, True, 0), 0).batch(0)
    images = np.empty((count, 224, 224, 3), dtype=np.uint8)
    engine = Engine(index, granted_cpus())
    try:
        engine.decode(plan, images)  # reads the files
        started = time.perf_counter()
        errors = engine.decode(plan, images)
        taken = time.perf_counter() - started
    finally:
        engine.close()
    if errors:
        raise DatasetError(f"{index.path}: {len(errors)} of {count} samples cannot be decoded: {errors[0][1]}")
    return count / taken


def _disk(index: Index, needed: float) -> Check:
    """Reads the end of the last shard past the page cache."""
    path = index.shards[-1].path
    handle = os.open(path, os.O_RDONLY)
    try:
        size = min(_READ_BYTES, os.fstat(handle).st_size)
        begin = os.fstat(handle).st_size - size
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, begin, size, os.POSIX_FADV_DONTNEED)
        started, read = time.perf_counter(), 0
        while read < size and (piece := len(os.pread(handle, 1 << 20, begin + read))):
            read += piece
        rate = read / (time.perf_counter() - started)
    finally:
        os.close(handle)
    found = f"{rate / 1e6:,.0f} MB/s; decoding that fast needs {needed / 1e6:,.0f} MB/s"
    if rate >= needed:
        return Check("reading", found, Verdict.OK)
    return Check("reading", found, Verdict.NOTE, "put the dataset on a faster disk, unless the page cache can hold it")


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
