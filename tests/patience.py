"""Seconds that something may take on a quiet machine -> seconds that it may take on this one, now."""

from __future__ import annotations

import os
import time


def in_time(seconds: float, quiet_s: float) -> bool:
    """Whether that is at most `quiet_s`, or what `quiet_s` becomes while other programs have the CPUs."""
    return seconds <= quiet_s or seconds <= quiet_s * slowdown()


def slowdown() -> float:
    """At least 1: how much longer work takes than it would alone, of the last minute and of this moment."""
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    began, worked = time.monotonic(), time.thread_time()
    while time.thread_time() - worked < 0.1:
        pass
    return max(1.0, load, (time.monotonic() - began) / 0.1)
