"""The kernel's files -> what the machine is short of at the moment, in a few words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fastpipe.cpus import granted_cpus

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


def machine_state() -> str:
    """CPUs granted and load, memory, and the share of the last minute in which tasks waited for disk, memory or CPU.

    What cannot be read is left out. Sources: proc(5); the kernel's documentation of pressure stall information (PSI)
    and of cgroup v2 (memory.max, memory.current, cpu.stat).
    """
    return "; ".join(_parts())


def _parts() -> Iterator[str]:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    yield f"{granted_cpus()} CPUs granted{load}"
    memory = memory_bytes()
    if memory is not None:
        yield f"{memory[0] / 1e9:.1f} of {memory[1] / 1e9:.1f} GB of memory available"
    limit = container_memory_bytes()
    if limit is not None:
        yield f"{limit[0] / 1e9:.1f} of this container's {limit[1] / 1e9:.1f} GB of memory in use"
    for what, name in (("the disk", "io"), ("memory", "memory"), ("a CPU", "cpu")):
        with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
            some = (PROC / "pressure" / name).read_text().splitlines()[0]
            share = float(dict(field.split("=") for field in some.split()[1:])["avg60"])
            yield f"tasks waited for {what} {share:.0f}% of the last minute"
    with contextlib.suppress(OSError, ValueError, KeyError):
        stat = dict(line.split() for line in (CGROUP / "cpu.stat").read_text().splitlines())
        if int(stat["nr_throttled"]) > 0:
            yield f"the CPU quota has throttled this container {int(stat['nr_throttled']):,} times"


def memory_bytes() -> tuple[int, int] | None:
    """Memory that programs can still have, and all there is, in bytes; None where the kernel does not say."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        info = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines())
        free, total = (int(info[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
        return free, total
    return None


def container_memory_bytes() -> tuple[int, int] | None:
    """Memory that this container uses and may use, in bytes; None where it has no limit."""
    with contextlib.suppress(OSError, ValueError):
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            return int((CGROUP / "memory.current").read_text()), int(limit)
    return None


def swap_used_bytes() -> int:
    """Swap in use; 0 where there is none."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        info = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines())
        total, free = (int(info[name].split()[0]) * 1024 for name in ("SwapTotal", "SwapFree"))
        return total - free
    return 0


def oom_kills() -> int | None:
    """Processes that the kernel has killed for want of memory since it started; None where it does not say."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        counts = dict(line.split() for line in (PROC / "vmstat").read_text().splitlines())
        return int(counts["oom_kill"])
    return None
