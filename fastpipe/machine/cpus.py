"""The kernel's files -> the control groups around this process, and how many CPUs these and its affinity let it use.

Sources: cgroups(7); the kernel's documentation of cgroup v1 and v2. Both can be there at once, each with other
controllers.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from fastpipe.machine.binding import allowed_cpus

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")

T = TypeVar("T")


def granted_cpus() -> int:
    """CPUs granted by the affinity mask and by the cgroups' quotas, whichever is less; at least 1.

    A container's quota of 1.5 CPUs counts as 2: one thread fewer would leave half a CPU idle. The mask is that which
    the thread had before OpenMP bound it: Note [bound threads] in binding.py.
    """
    quota = cpu_quota()
    allowed = len(allowed_cpus()) or os.cpu_count() or 1
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def cpu_quota() -> float | None:
    """CPUs' worth of time that this process's cgroups grant it together with all else in them; None without a limit.

    Sources: the kernel's documentation of cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us).
    """
    return min(each_cgroup("cpu", _quota), default=None)


def _quota(group: Cgroup) -> float | None:
    if group.version == 2:
        quota, period = (group.folder / "cpu.max").read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    micros = group.number("cpu.cfs_quota_us")
    return micros / group.number("cpu.cfs_period_us") if micros > 0 else None


def numbers(file: Path) -> dict[str, int]:
    """A file of lines of a name, a number, and maybe its unit. OSError, ValueError: it cannot be read, or is none."""
    return {name.rstrip(":"): int(value) for name, value, *_ in map(str.split, file.read_text().splitlines())}


class Cgroup(NamedTuple):
    """A control group that this process is in, by itself or by way of one inside it: its files, and 1 or 2, for the
    versions name their files differently. Errors as of `numbers`.
    """

    folder: Path
    version: int

    def number(self, name: str) -> int:
        """A file that holds one number."""
        return int((self.folder / name).read_text())


def each_cgroup(controller: str, read: Callable[[Cgroup], T | None]) -> list[T]:
    """What the groups say that a controller ("cpu", "memory") limits this process by; not those that say nothing."""
    found = []
    for group in _cgroups_of(controller):
        with contextlib.suppress(OSError, ValueError, KeyError, ZeroDivisionError):
            if (said := read(group)) is not None:
                found.append(said)
    return found


def _cgroups_of(controller: str) -> Iterator[Cgroup]:
    """The innermost group first, then those around it.

    In a container the path may be that of the host: then only the mount point, which is the container's own group, is
    there. Those that are not are given too; nothing can be read from them.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            version, mount = (1, ROOT / controller) if controllers else (2, ROOT)
            if version == 2 or controller in controllers.split(","):
                folder = mount / path.lstrip("/")
                outwards = itertools.takewhile(mount.__ne__, [folder, *folder.parents])
                yield from (Cgroup(each, version) for each in (*outwards, mount))
