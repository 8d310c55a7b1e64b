"""The kernel's limits -> how many CPUs this process may really use."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP_V2_QUOTA = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
CGROUP_V1_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def granted_cpus() -> int:
    """CPUs granted by the affinity mask and by the cgroup's quota, whichever is less; at least 1.

    A container's quota of 1.5 CPUs counts as 2: one thread fewer would leave half a CPU idle.
    """
    quota = _cgroup_quota()
    cpus = _affinity()
    return max(1, cpus if quota is None else min(cpus, math.ceil(quota)))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cgroup_quota() -> float | None:
    """CPUs' worth of time per period, or None where there is no limit.

    Source: the kernel's documentation of cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us).
    """
    try:
        quota, period = CGROUP_V2_QUOTA.read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        v1_quota = int(CGROUP_V1_QUOTA.read_text())
        return v1_quota / int(CGROUP_V1_PERIOD.read_text()) if v1_quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
