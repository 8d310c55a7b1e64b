"""The kernel's files -> this process's control groups, and how many CPUs it may use.

Sources: cgroups(7); the kernel's documentation of cgroup v1 and v2. A machine can use both versions
at once, each with other controllers.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from fastpipe.machine.binding import list_allowed_cpus

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")

T = TypeVar("T")


def count_granted_cpus() -> int:
    """Counts the CPUs granted by the affinity mask or by the cgroups' quotas, whichever is less.

    It is at least 1.

    A container's quota of 1.5 CPUs counts as 2: one thread fewer would leave half a CPU idle. The
    mask is the one that the thread had before OpenMP bound it: Note [bound threads] in binding.py.
    """
    allowed = len(list_allowed_cpus()) or os.cpu_count() or 1
    quota = read_cpu_quota()
    if quota is None:
        return max(1, allowed)
    return max(1, min(allowed, math.ceil(quota)))


def read_cpu_quota() -> float | None:
    """Reads how many CPUs' worth of time the cgroups grant; None without a limit.

    All processes in a cgroup share it.

    Sources: the kernel's documentation of cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us).
    """
    return min(read_cgroups("cpu", _read_quota), default=None)


def _read_quota(group: Cgroup) -> float | None:
    # Version 2 has both in one line: "150000 100000" or "max 100000", microseconds.
    if group.version == 2:
        text = (group.folder / "cpu.max").read_text()
        quota, period = text.split()[:2]
        if quota == "max":
            return None
        return int(quota) / int(period)
    # Version 1 writes -1 if there is no limit.
    quota_us = group.read_number("cpu.cfs_quota_us")
    if quota_us <= 0:
        return None
    return quota_us / group.read_number("cpu.cfs_period_us")


def read_numbers(file: Path) -> dict[str, int]:
    """Reads a file whose lines have a name, a number, and maybe a unit.

    Raises:
        OSError: it cannot be read.
        ValueError: it has other lines.
    """
    numbers = {}
    for line in file.read_text().splitlines():
        name, value, *_ = line.split()
        numbers[name.rstrip(":")] = int(value)
    return numbers


class Cgroup(NamedTuple):
    """A control group around this process."""

    folder: Path  # of its files
    version: int  # 1 or 2: they name the files differently

    def read_number(self, name: str) -> int:
        """Reads a file that holds one number. Raises as `read_numbers`."""
        return int((self.folder / name).read_text())


def read_cgroups(controller: str, read: Callable[[Cgroup], T | None]) -> list[T]:
    """Reads a value of each group by which a controller ("cpu", "memory") limits this process.

    Groups whose files are missing, or for which `read` returns None, are left out.
    """
    values = []
    # Each of the groups around this process limits it.
    for group in _list_cgroups(controller):
        # Containers hide files, and kernels differ in the lines of a file.
        with contextlib.suppress(OSError, ValueError, KeyError, ZeroDivisionError):
            value = read(group)
            if value is not None:
                values.append(value)
    return values


def _list_cgroups(controller: str) -> Iterator[Cgroup]:
    """Yields the innermost group first, then those around it, some of which may have no files.

    In a container the path may be that of the host. Then only the mount point has files: it is the
    container's own group.
    """
    with contextlib.suppress(OSError, ValueError):
        # Version 1: "4:cpu,cpuacct:/docker/1f2e". Version 2, for all controllers: "0::/user.slice".
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                version = 2
                mount = ROOT
            elif controller in controllers.split(","):
                version = 1
                mount = ROOT / controller
            else:
                continue
            folder = mount / path.lstrip("/")
            while folder != mount:
                yield Cgroup(folder, version)
                folder = folder.parent
            yield Cgroup(mount, version)
