"""The kernel's limits -> the number of CPUs that this process may use."""

from __future__ import annotations

import math
import os

from fastpipe.machine.cgroups import Cgroup, each_cgroup


def granted_cpus() -> int:
    """CPUs granted by the affinity mask and by the cgroups' quotas, whichever is less; at least 1.

    A container's quota of 1.5 CPUs counts as 2: one thread fewer would leave half a CPU idle.
    """
    quota = cpu_quota()
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
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
