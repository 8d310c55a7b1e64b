"""The system's limits, counts and log -> checks:

CPUs, memory, swap, kills, /dev/shm, open files.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fastpipe.errors import format_count
from fastpipe.machine import binding
from fastpipe.machine.cpus import count_granted_cpus, read_cpu_quota
from fastpipe.machine.state import (
    read_container_memory,
    read_container_oom_kills,
    read_memory,
    read_oom_kills,
    read_swap_used,
)
from fastpipe.sources.files import LocalFile
from fastpipe.tools.doctor.check import Check, Verdict, make_check

SHARED_MEMORY = Path("/dev/shm")
KERNEL_LOG = Path("/dev/kmsg")
# A few workers with a few batches of photos each take about that much.
_MIN_SHARED_BYTES = 1 << 30
_MIN_FILES = 1024
_MIN_FREE_BYTES = 2 << 30
# Kernels swap out some pages that nobody uses, even with much free memory.
_MAX_SWAP_BYTES = 100 * 10**6
_LARGEST_RECORD_BYTES = 8192
# "6,1234,98765432,-;Memory cgroup out of memory: Killed process 4321 (python3) total-vm:...": the
# third number is microseconds since the start. Source: the kernel's documentation of /dev/kmsg
# (ABI/testing/dev-kmsg).
_KILLED = re.compile(
    rb"^\d+,\d+,(?P<micros>\d+),[^;]*;"
    rb"(?P<group>Memory cgroup o|O)ut of memory: "
    rb"Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)\n]*)\)",
    re.MULTILINE,
)


def check_system() -> Iterator[Check]:
    """Checks CPUs, memory, swap, kills for memory, /dev/shm and the limit on open files."""
    yield _check_cpus()
    yield from _check_binding()
    yield _check_memory()
    yield _check_swap()
    yield _check_kills()
    yield _check_shared_memory()
    yield _check_open_files()


def _check_cpus() -> Check:
    granted = count_granted_cpus()
    existing = os.cpu_count() or 1
    quota = read_cpu_quota()
    result = f"{granted} granted of {existing}"
    if quota is not None:
        result += f", by a quota of {quota:g}"
    return make_check(
        "CPUs",
        result,
        granted == existing,
        f"os.cpu_count() says {existing}: give DataLoader num_workers={granted}; "
        "fastpipe.loader finds this number itself",
    )


def _check_binding() -> Iterator[Check]:
    """Finds a variable by which OpenMP binds the main thread, and so all that it starts."""
    variable = binding.variable()
    if variable:
        cpu_count = len(binding.list_allowed_cpus())
        yield Check(
            "binding of threads",
            f"{variable}; this thread may use {cpu_count:,} CPUs",
            Verdict.BAD,
            "after `import torch` the main thread has one CPU or one core, and so have the workers "
            "of a DataLoader and all programs that it starts, such as torchrun's ranks: unset it, "
            "or set it to false. fastpipe.loader starts its threads on all CPUs that the process "
            "had before",
        )


def _check_memory() -> Check:
    """Checks the free memory of the machine, and the room below the container's limit."""
    memory = read_memory()
    if memory is None:
        return Check("memory", "unknown")
    free, total = memory
    result = f"{_format_gb(free)} of {_format_gb(total)} available"
    container_memory = read_container_memory()
    if container_memory is not None:
        used, limit = container_memory
        result += f"; this container uses {_format_gb(used)} of {_format_gb(limit)}"
        free = min(free, limit - used)
    advice = "stop other programs, get more memory, or pass a smaller prefetch_factor"
    return make_check("memory", result, free >= _MIN_FREE_BYTES, advice, Verdict.BAD)


def _check_swap() -> Check:
    used = read_swap_used()
    return make_check(
        "swap",
        "not in use" if used == 0 else f"{_format_gb(used)} in use",
        used < _MAX_SWAP_BYTES,
        "the machine had too little memory: programs wait when they use swapped-out memory",
    )


def _check_kills() -> Check:
    """Looks for processes that the kernel has killed for memory, in its counts and its log."""
    name = "killed for memory"
    kills = read_oom_kills()
    container_kills = read_container_oom_kills()
    last = describe_last_killed()
    if not kills and not container_kills and not last:
        if kills is None and container_kills is None:
            return Check(name, "unknown")
        return Check(name, "no process since the machine started")
    if kills:
        processes = format_count(kills, "process")
        result = f"{processes} since the machine started"
    else:
        result = "some processes since the machine started"
    if container_kills is not None:
        result += f", {container_kills:,} of them in this container"
    if last:
        result += f"; the last: {last}"
    # The count of the container tells whether this program was hit.
    if container_kills == 0:
        advice = "other programs have used up the machine's memory"
        return Check(name, result, Verdict.NOTE, advice)
    advice = (
        "if a worker 'exited unexpectedly', it was one of them: use fewer workers, "
        "or make fewer and smaller batches in advance"
    )
    return Check(name, result, Verdict.BAD, advice)


def describe_last_killed() -> str:
    """Describes the last process that was killed for memory, by the kernel's log; else ""."""
    matches = list(_KILLED.finditer(_read_kernel_log()))
    if not matches:
        return ""
    last = matches[-1]
    killed_s = int(last["micros"]) / 1e6  # as time.monotonic()
    minutes = max(0.0, time.monotonic() - killed_s) / 60
    name = last["name"].decode(errors="replace")
    pid = last["pid"].decode()
    is_of_machine = last["group"] == b"O"
    limit = (
        "the limit of the machine's memory" if is_of_machine else "a container's limit"
    )
    return f"{name} ({pid}), {minutes:,.0f} minutes ago, at {limit}"


def _read_kernel_log() -> bytes:
    """Reads the kernel's log, if we may.

    Each read gives one record. After the last one a read gives none, or an error.
    """
    records = b""
    with suppress(OSError), LocalFile(KERNEL_LOG) as log:
        while True:
            # The kernel may overwrite a record before it is read. The next read gives the next
            # record.
            with suppress(BrokenPipeError):
                record = log.read(_LARGEST_RECORD_BYTES)
                if not record:
                    break
                records += record
    return records


def _check_shared_memory() -> Check:
    """Checks /dev/shm, through which DataLoader's workers give their batches."""
    name = str(SHARED_MEMORY)
    if not SHARED_MEMORY.is_dir():
        advice = "only DataLoader's workers need it; fastpipe.loader does not"
        return Check(name, "not there", Verdict.NOTE, advice)
    usage = shutil.disk_usage(SHARED_MEMORY)
    return make_check(
        name,
        f"{_format_gb(usage.free)} of {_format_gb(usage.total)} free",
        usage.free >= _MIN_SHARED_BYTES,
        "too small for DataLoader's workers: docker run --shm-size=8g (or --ipc=host); "
        "fastpipe.loader does not use it",
    )


def _check_open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    has_no_limit = soft == resource.RLIM_INFINITY
    largest = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return make_check(
        "open files (ulimit -n)",
        "no limit" if has_no_limit else f"{soft:,}",
        has_no_limit or soft >= _MIN_FILES,
        f"raise it: ulimit -n {largest}",
    )


def _format_gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
