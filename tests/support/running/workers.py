"""How many tests run side by side: pytest-xdist's workers for this machine."""

from __future__ import annotations

import os

MOST_WORKERS = 4


def worker_count() -> int:
    """One more than this process may use CPUs, because tests wait for a part of their time: for programs and disks.

    PYTEST_XDIST_AUTO_NUM_WORKERS, which pytest-xdist looks at too, overrides it.
    """
    if wanted := os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return int(wanted)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus + 1, MOST_WORKERS)


def forget_terminal_size() -> None:
    """pytest imports readline, which sets the terminal's size for all processes that are started afterwards."""
    for name in ("COLUMNS", "LINES"):
        if name not in os.environ:
            os.unsetenv(name)
