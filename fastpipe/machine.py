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
    with contextlib.suppress(OSError, KeyError, ValueError):
        info = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines())
        free, total = (int(info[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
        yield f"{free / 1e9:.1f} of {total / 1e9:.1f} GB of memory available"
    with contextlib.suppress(OSError, ValueError):
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            used = int((CGROUP / "memory.current").read_text())
            yield f"{used / 1e9:.1f} of this container's {int(limit) / 1e9:.1f} GB of memory in use"
    for what, name in (("the disk", "io"), ("memory", "memory"), ("a CPU", "cpu")):
        with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
            some = (PROC / "pressure" / name).read_text().splitlines()[0]
            share = float(dict(field.split("=") for field in some.split()[1:])["avg60"])
            yield f"tasks waited for {what} {share:.0f}% of the last minute"
    with contextlib.suppress(OSError, ValueError, KeyError):
        stat = dict(line.split() for line in (CGROUP / "cpu.stat").read_text().splitlines())
        if int(stat["nr_throttled"]) > 0:
            yield f"the CPU quota has throttled this container {int(stat['nr_throttled']):,} times"
