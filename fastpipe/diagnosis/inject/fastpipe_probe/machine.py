"""This process -> its memory, threads and time on a CPU."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

_PART = 20  # looking at the memory may take a twentieth of the time


class Snapshots:
    """Takes snapshots of this process now and then; less often where one takes long, as in one of much memory."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def due(self, at_s: float) -> bool:
        """Whether it is time again."""
        return at_s >= self._next_s

    def take(self) -> dict[str, Any]:
        """Bytes that are this process's alone, threads, and what its libraries' pools are set to."""
        began_s = time.thread_time()
        cv2, torch = sys.modules.get("cv2"), sys.modules.get("torch")
        found: dict[str, Any] = {"private": private_bytes(), "threads": threads(), "files": open_files()}
        with contextlib.suppress(Exception):
            found["torch"] = None if torch is None else torch.get_num_threads()
            found["cv2"] = None if cv2 is None else cv2.getNumThreads()
        self._next_s = time.monotonic() + min(_PART * (time.thread_time() - began_s), 30.0)
        return found


def private_bytes() -> int | None:
    """Memory that this process shares with no other and has written; None where the kernel does not say. proc(5)."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
    return None


def threads() -> int | None:
    """Threads of this process; None where the system does not say."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return None


def open_files() -> int | None:
    """Open files of this process; None where the system does not say."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return None


def delayed_s() -> float | None:
    """Seconds that this thread could have run and had no CPU. Source: the kernel's documentation of schedstat."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
    return None
