"""The system's limits and counts -> checks: CPUs, memory, swap, kills, /dev/shm, open files."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

from fastpipe.doctor.check import Check, Verdict
from fastpipe.doctor.kernel_log import last_killed
from fastpipe.machine.cpus import cpu_quota, granted_cpus
from fastpipe.machine.state import container_memory_bytes, container_oom_kills, memory_bytes, oom_kills, swap_used_bytes

SHARED_MEMORY = Path("/dev/shm")
_LEAST_SHARED_BYTES = 1 << 30
_LEAST_FILES = 1024
_LEAST_FREE_BYTES = 2 << 30


def cpus() -> Check:
    """Those granted, against those that os.cpu_count() tells."""
    granted, all_of_them = granted_cpus(), os.cpu_count() or 1
    quota = cpu_quota()
    found = f"{granted} granted of {all_of_them}" + ("" if quota is None else f", by a quota of {quota:g}")
    if granted == all_of_them:
        return Check("CPUs", found, Verdict.OK)
    advice = (
        f"os.cpu_count() says {all_of_them}: give DataLoader num_workers={granted}; fastpipe.loader finds this number "
        "itself"
    )
    return Check("CPUs", found, Verdict.NOTE, advice)


def memory() -> Check:
    """What is left of the machine's, and below the container's limit."""
    available, limit = memory_bytes(), container_memory_bytes()
    if available is None:
        return Check("memory", "unknown", Verdict.OK)
    free, total = available
    found = f"{_gb(free)} of {_gb(total)} available"
    if limit is not None:
        found += f"; this container uses {_gb(limit[0])} of {_gb(limit[1])}"
        free = min(free, limit[1] - limit[0])
    if free >= _LEAST_FREE_BYTES:
        return Check("memory", found, Verdict.OK)
    return Check(
        "memory", found, Verdict.BAD, "stop other programs, get more memory, or pass a smaller prefetch_factor"
    )


def swap() -> Check:
    """Whether memory has been short."""
    used = swap_used_bytes()
    if used < 100e6:
        return Check("swap", "not in use" if used == 0 else f"{_gb(used)} in use", Verdict.OK)
    return Check(
        "swap",
        f"{_gb(used)} in use",
        Verdict.NOTE,
        "the machine had too little memory: programs wait when they use swapped-out memory",
    )


def killed_for_memory() -> Check:
    """Processes that the kernel has killed, counted by it and, where it lets us read that, by its log."""
    name = "killed for memory"
    kills, own, last = oom_kills(), container_oom_kills(), last_killed()
    if kills is None and own is None and last is None:
        return Check(name, "unknown", Verdict.OK)
    if not kills and not own and last is None:
        return Check(name, "no process since the machine started", Verdict.OK)
    found = (
        "some processes since the machine started"
        if not kills
        else f"{kills:,} process{'' if kills == 1 else 'es'} since the machine started"
    )
    if own is not None:
        found += f", {own:,} of them in this container"
    if last is not None:
        found += f"; the last: {last}"
    if own == 0:
        return Check(name, found, Verdict.NOTE, "other programs have used up the machine's memory")
    advice = (
        "if a worker 'exited unexpectedly', it was one of them: use fewer workers, or make fewer and smaller "
        "batches in advance"
    )
    return Check(name, found, Verdict.BAD, advice)


def shared_memory() -> Check:
    """/dev/shm, which DataLoader's workers give their batches through."""
    name = str(SHARED_MEMORY)
    if not SHARED_MEMORY.is_dir():
        return Check(name, "not there", Verdict.NOTE, "only DataLoader's workers need it; fastpipe.loader does not")
    usage = shutil.disk_usage(SHARED_MEMORY)
    found = f"{_gb(usage.free)} of {_gb(usage.total)} free"
    if usage.free >= _LEAST_SHARED_BYTES:
        return Check(name, found, Verdict.OK)
    advice = (
        "too small for DataLoader's workers: docker run --shm-size=8g (or --ipc=host); fastpipe.loader does not use it"
    )
    return Check(name, found, Verdict.NOTE, advice)


def open_files() -> Check:
    """ulimit -n."""
    name = "open files (ulimit -n)"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= _LEAST_FILES:
        return Check(name, found, Verdict.OK)
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return Check(name, found, Verdict.NOTE, f"raise it: ulimit -n {most}")


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
