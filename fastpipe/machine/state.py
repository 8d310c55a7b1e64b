"""The kernel's files -> which resources the machine lacks now, in a few words."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fastpipe.machine.cpus import Cgroup, cpu_quota, each_cgroup, granted_cpus, numbers

PROC = Path("/proc")
_IO_WAIT_S = 0.2
_NO_LIMIT = 1 << 60  # cgroup v1 writes a number near 2**63 where there is none


def machine_state() -> str:
    """CPUs granted, their quota and load, memory, and how long tasks waited for disk, memory or CPU of late.

    What cannot be read is left out. Takes 0.2 s where the kernel keeps no account of such waiting. Sources: proc(5);
    the kernel's documentation of pressure stall information (PSI) and of cgroup v1 and v2 (cpu.stat).
    """
    return "; ".join(_parts())


def _parts() -> Iterator[str]:
    quota, load = cpu_quota(), f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    yield f"{granted_cpus()} CPUs granted{'' if quota is None else f' (a quota of {quota:g})'}{load}"
    memory = memory_bytes()
    if memory is not None:
        yield f"{memory[0] / 1e9:.1f} of {memory[1] / 1e9:.1f} GB of memory available"
    limit = container_memory_bytes()
    if limit is not None:
        yield f"{limit[0] / 1e9:.1f} of this container's {limit[1] / 1e9:.1f} GB of memory in use"
    for what, name in (("the disk", "io"), ("memory", "memory"), ("a CPU", "cpu")):
        share = _pressure(name)
        if share is not None:
            yield f"tasks waited for {what} {share:.0f}% of the last minute"
        elif name == "io" and (waited := _io_wait()) is not None:
            yield f"CPUs idle, waiting for the disk, {waited:.0%} of the time just now"
    throttled = _throttled()
    if throttled is not None and throttled[0] > 0:
        yield f"the CPU quota has throttled this container {throttled[0]:,} times, for {throttled[1]:,.0f} s in all"


def _pressure(name: str) -> float | None:
    """Percent of the last minute in which some task waited for it."""
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        some = (PROC / "pressure" / name).read_text().splitlines()[0]
        return float(dict(field.split("=") for field in some.split()[1:])["avg60"])
    return None


def _io_wait() -> float | None:
    """Share of the CPUs' time that was idle with a read or write outstanding, over a moment."""
    with contextlib.suppress(OSError, ValueError, IndexError, ZeroDivisionError):
        before = _cpu_times()
        time.sleep(_IO_WAIT_S)
        spent = [now - then for now, then in zip(_cpu_times(), before, strict=True)]
        return spent[4] / sum(spent)
    return None


def _cpu_times() -> list[int]:
    """Of all CPUs together: user, nice, system, idle, iowait, and what else there is but guests, who are in user."""
    return [int(word) for word in (PROC / "stat").read_text().splitlines()[0].split()[1:9]]


def _throttled() -> tuple[int, float] | None:
    """How often the CPU quota has stopped this process's cgroups, and for how many seconds; the most of them."""

    def read(group: Cgroup) -> tuple[int, float]:
        stat = numbers(group.folder / "cpu.stat")
        seconds = stat["throttled_usec"] / 1e6 if group.version == 2 else stat["throttled_time"] / 1e9
        return stat["nr_throttled"], seconds

    return max(each_cgroup("cpu", read), default=None)


def memory_bytes() -> tuple[int, int] | None:
    """Memory that programs can still have, and all there is, in bytes; None where the kernel does not say."""
    return _meminfo("MemAvailable", "MemTotal")


def _meminfo(*names: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, KeyError, ValueError):
        kilobytes = numbers(PROC / "meminfo")
        first, second = (kilobytes[name] * 1024 for name in names)
        return first, second
    return None


def container_memory_bytes() -> tuple[int, int] | None:
    """Memory that this container uses and may use, in bytes, of the limit with least room; None where it has none.

    Files that were read and not touched since are not in use: they make room when it is needed. Sources: the kernel's
    documentation of cgroup v2 (memory.max, memory.current, memory.stat) and v1 (memory.limit_in_bytes and so on).
    """
    return min(each_cgroup("memory", _memory), key=lambda each: each[1] - each[0], default=None)


def _memory(group: Cgroup) -> tuple[int, int] | None:
    new = group.version == 2
    limit = group.number("memory.max" if new else "memory.limit_in_bytes")
    used = group.number("memory.current" if new else "memory.usage_in_bytes")
    with contextlib.suppress(OSError, ValueError, KeyError):
        used -= numbers(group.folder / "memory.stat")["inactive_file" if new else "total_inactive_file"]
    return None if limit >= _NO_LIMIT else (max(0, used), limit)


def swap_used_bytes() -> int:
    """Swap in use; 0 where there is none."""
    total, free = _meminfo("SwapTotal", "SwapFree") or (0, 0)
    return total - free


def oom_kills() -> int | None:
    """Processes that the kernel has killed for want of memory since it started; None where it does not say."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        return numbers(PROC / "vmstat")["oom_kill"]
    return None


def container_oom_kills() -> int | None:
    """Those of this container, killed at its limit or at the machine's; None where the kernel does not say."""
    return max(each_cgroup("memory", _killed), default=None)


def _killed(group: Cgroup) -> int:
    return numbers(group.folder / ("memory.events" if group.version == 2 else "memory.oom_control"))["oom_kill"]
