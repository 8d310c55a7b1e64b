"""The system's limits, counts and log -> checks: CPUs, memory, swap, kills, /dev/shm, open files."""

from __future__ import annotations

import os
import re
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fastpipe.doctor.check import Check, Verdict, judged
from fastpipe.machine import binding
from fastpipe.machine.cpus import cpu_quota, granted_cpus
from fastpipe.machine.state import container_memory_bytes, container_oom_kills, memory_bytes, oom_kills, swap_used_bytes
from fastpipe.sources.files import LocalFile

SHARED_MEMORY = Path("/dev/shm")
KERNEL_LOG = Path("/dev/kmsg")
_LEAST_SHARED_BYTES = 1 << 30
_LEAST_FILES = 1024
_LEAST_FREE_BYTES = 2 << 30
_MOST_SWAP_BYTES = 100 * 10**6
_LARGEST_RECORD = 8192
# "6,1234,98765432,-;Memory cgroup out of memory: Killed process 4321 (python3) total-vm:...": the third number is
# microseconds since the start. Source: the kernel's documentation of /dev/kmsg (ABI/testing/dev-kmsg).
_KILLED = re.compile(
    rb"^\d+,\d+,(?P<micros>\d+),[^;]*;(?P<group>Memory cgroup o|O)ut of memory: Kill(?:ed)? process "
    rb"(?P<pid>\d+) \((?P<name>[^)\n]*)\)",
    re.MULTILINE,
)


def system_checks() -> Iterator[Check]:
    granted, all_of_them, quota = granted_cpus(), os.cpu_count() or 1, cpu_quota()
    yield judged(
        "CPUs",
        f"{granted} granted of {all_of_them}" + ("" if quota is None else f", by a quota of {quota:g}"),
        granted == all_of_them,
        f"os.cpu_count() says {all_of_them}: give DataLoader num_workers={granted}; fastpipe.loader finds this number "
        "itself",
    )
    yield from _binding()
    yield _memory()
    used = swap_used_bytes()
    yield judged(
        "swap",
        "not in use" if used == 0 else f"{_gb(used)} in use",
        used < _MOST_SWAP_BYTES,
        "the machine had too little memory: programs wait when they use swapped-out memory",
    )
    yield _killed_for_memory()
    yield _shared_memory()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = soft == resource.RLIM_INFINITY
    yield judged(
        "open files (ulimit -n)",
        "no limit" if endless else f"{soft:,}",
        endless or soft >= _LEAST_FILES,
        f"raise it: ulimit -n {'unlimited' if hard == resource.RLIM_INFINITY else hard}",
    )


def _binding() -> Iterator[Check]:
    """OpenMP's variables that bind the main thread of a program that imports torch, and so all that it starts."""
    if variable := binding.variable():
        advice = (
            "after `import torch` the main thread has one CPU or one core, and so have the workers of a DataLoader and "
            "all programs that it starts, such as torchrun's ranks: unset it, or set it to false. fastpipe.loader "
            "starts its threads on all CPUs that the process had before"
        )
        had = len(binding.allowed_cpus())
        yield Check("binding of threads", f"{variable}; this thread may use {had:,} CPUs", Verdict.BAD, advice)


def _memory() -> Check:
    """What is left of the machine's, and below the container's limit."""
    available, limit = memory_bytes(), container_memory_bytes()
    if available is None:
        return Check("memory", "unknown")
    free, total = available
    found = f"{_gb(free)} of {_gb(total)} available"
    if limit is not None:
        found += f"; this container uses {_gb(limit[0])} of {_gb(limit[1])}"
        free = min(free, limit[1] - limit[0])
    advice = "stop other programs, get more memory, or pass a smaller prefetch_factor"
    return judged("memory", found, free >= _LEAST_FREE_BYTES, advice, Verdict.BAD)


def _killed_for_memory() -> Check:
    """Processes that the kernel has killed, counted by it and, where it lets us read that, by its log."""
    name = "killed for memory"
    kills, own, last = oom_kills(), container_oom_kills(), last_killed()
    if not kills and not own and not last:
        return Check(name, "unknown" if kills is None and own is None else "no process since the machine started")
    found = f"{kills:,} process{'' if kills == 1 else 'es'}" if kills else "some processes"
    found += " since the machine started"
    if own is not None:
        found += f", {own:,} of them in this container"
    if last:
        found += f"; the last: {last}"
    if own == 0:
        return Check(name, found, Verdict.NOTE, "other programs have used up the machine's memory")
    advice = (
        "if a worker 'exited unexpectedly', it was one of them: use fewer workers, or make fewer and smaller "
        "batches in advance"
    )
    return Check(name, found, Verdict.BAD, advice)


def last_killed() -> str:
    """The last process that the kernel killed because memory was full, as far back as its log goes; "": none."""
    if not (found := [*_KILLED.finditer(_log())]):
        return ""
    last = found[-1]
    minutes = max(0.0, time.monotonic() - int(last["micros"]) / 1e6) / 60
    limit = "the limit of the machine's memory" if last["group"] == b"O" else "a container's limit"
    return f"{last['name'].decode(errors='replace')} ({last['pid'].decode()}), {minutes:,.0f} minutes ago, at {limit}"


def _log() -> bytes:
    """All that the kernel's log holds, if we may read it: a record a read, and none or an error behind the last."""
    records = b""
    with suppress(OSError), LocalFile(KERNEL_LOG) as log:
        while True:
            with suppress(BrokenPipeError):  # the record was overwritten meanwhile; the next one is there
                if not (record := log.read(_LARGEST_RECORD)):
                    break
                records += record
    return records


def _shared_memory() -> Check:
    """/dev/shm, which DataLoader's workers give their batches through."""
    name = str(SHARED_MEMORY)
    if not SHARED_MEMORY.is_dir():
        return Check(name, "not there", Verdict.NOTE, "only DataLoader's workers need it; fastpipe.loader does not")
    usage = shutil.disk_usage(SHARED_MEMORY)
    return judged(
        name,
        f"{_gb(usage.free)} of {_gb(usage.total)} free",
        usage.free >= _LEAST_SHARED_BYTES,
        "too small for DataLoader's workers: docker run --shm-size=8g (or --ipc=host); fastpipe.loader does not use it",
    )


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
