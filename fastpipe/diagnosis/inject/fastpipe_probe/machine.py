"""This process -> its memory, threads and time on a CPU.

Note [memory in use]: a process can grow although it keeps nothing. glibc leaves holes that the next tensor does not fit
into, for a hundred batches or more. So what malloc has given out and not got back is looked at, too, with the small
objects, which Python keeps in memory of its own, and with the batches, which lie in shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from typing import Any

from .files import Snapshot

_SMALL_OBJECT = 64  # bytes of one of Python's, about
_PART = 20  # looking at the memory may take a twentieth of the time


class Snapshots:
    """Takes snapshots of this process now and then; less often where one takes long, as in one of much memory."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def due(self, batch: int) -> list[dict[str, Any]]:
        """A Snapshot after a batch, as a dict, where it is time for one."""
        if time.monotonic() < self._next_s:
            return []
        began_s = time.thread_time()
        taken = snapshot(batch)
        self._next_s = time.monotonic() + min(_PART * (time.thread_time() - began_s), 30.0)
        return [taken]


_BINDING = "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"
_COUNTS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2; mallinfo(3)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _COUNTS)


def snapshot(batch: int = 0) -> dict[str, Any]:
    """A Snapshot of this process, as a dict; None in it: the kernel, or the C library, does not say."""
    private = used = threads = torch_threads = cv2_threads = files = None
    shared = 0
    with contextlib.suppress(Exception):
        torch_threads = sys.modules["torch"].get_num_threads()
        cv2_threads = sys.modules["cv2"].getNumThreads()
    with contextlib.suppress(OSError, ValueError, KeyError), open("/proc/self/smaps_rollup") as file:  # proc(5)
        fields = {words[0]: words[1] for line in file if len(words := line.split()) > 2}
        private, shared = int(fields["Private_Dirty:"]) * 1024, int(fields.get("Pss_Shmem:", 0)) * 1024
    with contextlib.suppress(OSError):
        threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    with contextlib.suppress(AttributeError, OSError):
        tell = ctypes.CDLL(None).mallinfo2
        tell.restype = _Mallinfo
        told = tell()
        used = int(told.uordblks + told.hblkhd) + _SMALL_OBJECT * sys.getallocatedblocks() + shared
    return vars(Snapshot(batch, private, threads, torch_threads, cv2_threads, used, files))


def cpus() -> list[int]:
    """The numbers of the CPUs that this thread may run on; none where the system has no masks."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def binding() -> str:
    """The variables that have OpenMP bind the thread that loads it; "" without any."""
    return ", ".join(f"{name}={os.environ[name]}" for name in _BINDING if os.environ.get(name))


def delayed_s() -> float | None:
    """Seconds that this thread could have run and had no CPU. Source: the kernel's documentation of schedstat."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
    return None
