"""The kernel's files -> which resources the machine lacks at the moment, in a few words."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fastpipe.machine.cpus import (
    Cgroup,
    count_granted_cpus,
    read_cgroups,
    read_cpu_quota,
    read_numbers,
)

PROC = Path("/proc")
_IO_WAIT_S = 0.2
_IO_WAIT_INDEX = 4  # in `_read_cpu_times`
_NO_LIMIT = 1 << 60  # cgroup v1 writes a number near 2**63 if there is no limit


def describe_machine_state() -> str:
    """Describes CPUs, load and memory, and how long tasks lately waited for disk, memory or CPU.

    What cannot be read is left out. It takes 0.2 s if the kernel keeps no account of such waiting.
    Sources: proc(5); the kernel's documentation of pressure stall information (PSI) and of cgroup
    v1 and v2 (cpu.stat).
    """
    return "; ".join([*_describe_cpus(), *_describe_memory(), *_describe_waiting()])


def _describe_cpus() -> Iterator[str]:
    text = f"{count_granted_cpus()} CPUs granted"
    quota = read_cpu_quota()
    if quota is not None:
        text += f" (a quota of {quota:g})"
    if hasattr(os, "getloadavg"):
        text += f", load {os.getloadavg()[0]:.1f}"
    yield text


def _describe_memory() -> Iterator[str]:
    memory = read_memory()
    if memory is not None:
        available, total = memory
        yield f"{available / 1e9:.1f} of {total / 1e9:.1f} GB of memory available"
    container_memory = read_container_memory()
    if container_memory is not None:
        used, limit = container_memory
        yield f"{used / 1e9:.1f} of this container's {limit / 1e9:.1f} GB of memory in use"


def _describe_waiting() -> Iterator[str]:
    # Many kernels keep no account of pressure. Waiting for the disk shows in the times of the CPUs.
    io_percent = _read_pressure("io")
    if io_percent is not None:
        yield f"tasks waited for the disk {io_percent:.0f}% of the last minute"
    else:
        io_wait = _measure_io_wait()
        if io_wait is not None:
            yield f"CPUs idle, waiting for the disk, {io_wait:.0%} of the time just now"
    for resource, name in (("memory", "memory"), ("a CPU", "cpu")):
        percent = _read_pressure(name)
        if percent is not None:
            yield f"tasks waited for {resource} {percent:.0f}% of the last minute"
    throttled = _read_throttled()
    if throttled is not None:
        count, seconds = throttled
        if count > 0:
            yield (
                f"the CPU quota has throttled this container {count:,} times, "
                f"for {seconds:,.0f} s in all"
            )


def _read_pressure(name: str) -> float | None:
    """Reads the percentage of the last minute in which some task waited for a resource."""
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        # some avg10=0.00 avg60=1.50 avg300=0.90 total=123456
        text = (PROC / "pressure" / name).read_text()
        some = text.splitlines()[0]
        _, *words = some.split()
        fields = dict(word.split("=") for word in words)
        return float(fields["avg60"])
    return None


def _measure_io_wait() -> float | None:
    """Measures the share of the CPUs' time that is idle with a read or write outstanding."""
    with contextlib.suppress(OSError, ValueError, IndexError, ZeroDivisionError):
        before = _read_cpu_times()
        time.sleep(_IO_WAIT_S)
        after = _read_cpu_times()
        spent = []
        for earlier, later in zip(before, after, strict=True):
            spent.append(later - earlier)
        return spent[_IO_WAIT_INDEX] / sum(spent)
    return None


def _read_cpu_times() -> list[int]:
    """Reads the times of all CPUs together: user, nice, system, idle, iowait, irq, softirq, steal.

    The times of guests, which come after, are a part of user.
    """
    # cpu  4705 356 584 3699 23 23 0 0 0 0
    words = (PROC / "stat").read_text().splitlines()[0].split()
    return [int(word) for word in words[1:9]]


def _read_throttled() -> tuple[int, float] | None:
    """Reads how often the CPU quota stopped this process's cgroups, and for how many seconds."""

    def read(group: Cgroup) -> tuple[int, float]:
        numbers = read_numbers(group.folder / "cpu.stat")
        if group.version == 2:
            seconds = numbers["throttled_usec"] / 1e6
        else:
            seconds = numbers["throttled_time"] / 1e9
        return numbers["nr_throttled"], seconds

    return max(read_cgroups("cpu", read), default=None)


def read_memory() -> tuple[int, int] | None:
    """Reads the bytes of memory that are available, and all bytes; None if not known."""
    return _read_meminfo("MemAvailable", "MemTotal")


def _read_meminfo(first_name: str, second_name: str) -> tuple[int, int] | None:
    # MemAvailable:   53687091 kB
    with contextlib.suppress(OSError, KeyError, ValueError):
        kilobytes = read_numbers(PROC / "meminfo")
        return kilobytes[first_name] * 1024, kilobytes[second_name] * 1024
    return None


def read_container_memory() -> tuple[int, int] | None:
    """Reads the bytes of memory that this container uses, and its limit; None if it has none.

    Of several limits it is the one with the least room. Files that were read and not touched since
    do not count as used: they make room when it is needed. Sources: the kernel's documentation of
    cgroup v2 (memory.max, memory.current, memory.stat) and v1 (memory.limit_in_bytes and so on).
    """

    def room(memory: tuple[int, int]) -> int:
        used, limit = memory
        return limit - used

    return min(read_cgroups("memory", _read_container_memory), key=room, default=None)


def _read_container_memory(group: Cgroup) -> tuple[int, int] | None:
    if group.version == 2:
        limit = group.read_number("memory.max")
        used = group.read_number("memory.current")
        inactive_name = "inactive_file"
    else:
        limit = group.read_number("memory.limit_in_bytes")
        used = group.read_number("memory.usage_in_bytes")
        inactive_name = "total_inactive_file"
    # Version 2 writes "max", which is no number: read_cgroups leaves the group out.
    if limit >= _NO_LIMIT:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError):
        used -= read_numbers(group.folder / "memory.stat")[inactive_name]
    return max(0, used), limit


def read_swap_used() -> int:
    """Reads how many bytes of swap are in use; 0 without swap."""
    swap = _read_meminfo("SwapTotal", "SwapFree")
    if swap is None:
        return 0
    total, free = swap
    return total - free


def read_oom_kills() -> int | None:
    """Counts the processes that the kernel has killed for want of memory; None: not known."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        return read_numbers(PROC / "vmstat")["oom_kill"]
    return None


def read_container_oom_kills() -> int | None:
    """Counts those of this container, killed at its limit or at the machine's; None: not known."""
    return max(read_cgroups("memory", _read_oom_kills), default=None)


def _read_oom_kills(group: Cgroup) -> int:
    name = "memory.events" if group.version == 2 else "memory.oom_control"
    return read_numbers(group.folder / name)["oom_kill"]
