"""Seconds that something may take on a quiet machine -> seconds that it may take on this one, now.

Limits are from a machine on which `_work` takes `_WORK_S` of CPU time: on a slower one they are as much longer.
"""

from __future__ import annotations

import os
import time

import numpy as np

_WORK_S = 0.03


def in_time(seconds: float, quiet_s: float) -> bool:
    """Whether that is at most `quiet_s`, or what `quiet_s` becomes while other programs have the CPUs."""
    return seconds <= quiet_s or seconds <= quiet_s * slowdown()


def slowdown() -> float:
    """At least 1: how much longer work takes than alone on a fast machine, of the last minute and of this moment."""
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    began, worked = time.monotonic(), time.thread_time()
    while time.thread_time() - worked < 0.1:
        _work()
    shared = (time.monotonic() - began) / (time.thread_time() - worked)
    return max(1.0, load, shared) * cpu_slowdown()


def cpu_slowdown() -> float:
    """At least 1: how much more CPU time work takes than on a fast machine, at this moment."""
    worked = time.thread_time()
    _work()
    return max(1.0, (time.thread_time() - worked) / _WORK_S)


def _work() -> int:
    """What Python and numpy do all the time."""
    numbers = np.random.default_rng(0).integers(0, 1 << 40, 1_000_000)
    for part in np.split(numbers, 10):
        np.sort(part)
    return sum(number * number for number in range(300_000))
