"""The kernel's limits -> how many CPUs this process may really use."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def granted_cpus() -> int:
    """CPUs granted by the affinity mask and by the cgroups' quotas, whichever is less; at least 1.

    A container's quota of 1.5 CPUs counts as 2: one thread fewer would leave half a CPU idle.
    """
    limits = [float(_affinity()), *_quotas()]
    return max(1, math.ceil(min(limits)))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas() -> Iterator[float]:
    """CPUs' worth of time that each limited cgroup around this process may use.

    Sources: the kernel's documentation of cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us); cgroups(7).
    """
    with contextlib.suppress(OSError, ValueError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _along(CGROUP_ROOT, path, _v2_quota)
            elif "cpu" in controllers.split(","):
                yield from _along(CGROUP_ROOT / "cpu", path, _v1_quota)


def _along(mount: Path, path: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    """The quotas of a cgroup and of those that hold it. In a container the path may be that of the host: then only the
    mount point, which is the container's own cgroup, is there.
    """
    cgroup = mount / path.lstrip("/")
    for folder in [cgroup, *cgroup.parents]:
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota = read(folder)
            if quota is not None:
                yield quota
        if folder == mount:
            return


def _v2_quota(folder: Path) -> float | None:
    quota, period = (folder / "cpu.max").read_text().split()[:2]
    return None if quota == "max" else int(quota) / int(period)


def _v1_quota(folder: Path) -> float | None:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return quota / int((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else None
