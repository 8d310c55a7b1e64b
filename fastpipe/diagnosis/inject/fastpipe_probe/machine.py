"""This process -> its memory, threads and time on a CPU.

Note [memory in use]: a process can grow although it keeps nothing. glibc leaves holes that the next
tensor does not fit into, for a hundred batches or more. So a snapshot also counts the memory in
use. That is what malloc has given out and not got back, the small objects, for which Python has an
allocator of its own, and the batches in shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from typing import Any

from .records import Snapshot

_SMALL_OBJECT_BYTES = 64  # the mean of Python's objects, about
_TIMES_COST = 20  # a snapshot may take a twentieth of the time
_MAX_PAUSE_S = 30.0
_BINDING_VARIABLES = "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"


class Snapshots:
    """Takes snapshots of this process now and then, less often if they take long."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def take_if_due(self, batch: int) -> list[dict[str, Any]]:
        """Takes a Snapshot after a batch, as a dict; empty if it is too early for one."""
        if time.monotonic() < self._next_s:
            return []
        began_s = time.thread_time()
        snapshot = take_snapshot(batch)
        cost_s = time.thread_time() - began_s
        pause_s = min(_TIMES_COST * cost_s, _MAX_PAUSE_S)
        self._next_s = time.monotonic() + pause_s
        return [snapshot]


def take_snapshot(batch: int = 0) -> dict[str, Any]:
    """Takes a Snapshot of this process, as a dict."""
    torch_threads = None
    cv2_threads = None
    with contextlib.suppress(Exception):  # the program may not have imported them
        torch_threads = sys.modules["torch"].get_num_threads()
        cv2_threads = sys.modules["cv2"].getNumThreads()
    thread_count = None
    file_count = None
    with contextlib.suppress(OSError):
        thread_count = len(os.listdir("/proc/self/task"))
        file_count = len(os.listdir("/proc/self/fd"))
    private_bytes, shared_bytes = _read_memory()
    malloc_bytes = _read_malloc()
    used_bytes = None
    if malloc_bytes is not None:
        small_bytes = _SMALL_OBJECT_BYTES * sys.getallocatedblocks()
        used_bytes = malloc_bytes + small_bytes + shared_bytes
    snapshot = Snapshot(
        batch=batch,
        private_bytes=private_bytes,
        threads=thread_count,
        torch_threads=torch_threads,
        cv2_threads=cv2_threads,
        used_bytes=used_bytes,
        files=file_count,
    )
    return vars(snapshot)


def _read_memory() -> tuple[int | None, int]:
    """Reads the bytes of private memory, None if unknown, and of shared memory. Source: proc(5)."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        kilobytes = {}
        with open("/proc/self/smaps_rollup") as file:
            for line in file:
                words = line.split()
                if len(words) > 2:
                    kilobytes[words[0]] = words[1]
        private_bytes = int(kilobytes["Private_Dirty:"]) * 1024
        return private_bytes, int(kilobytes.get("Pss_Shmem:", 0)) * 1024
    return None, 0


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2; mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _read_malloc() -> int | None:
    """Reads the bytes that malloc has given out; None without glibc 2.33 or later."""
    with contextlib.suppress(AttributeError, OSError):
        mallinfo2 = ctypes.CDLL(None).mallinfo2
        mallinfo2.restype = _Mallinfo
        counts = mallinfo2()
        return int(counts.uordblks + counts.hblkhd)
    return None


def list_cpus() -> list[int]:
    """Lists the numbers of the CPUs that this thread may run on; empty on systems without masks."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def describe_binding() -> str:
    """Names the variables that make OpenMP bind the thread that loads it; "" without any."""
    settings = [
        f"{name}={os.environ[name]}"
        for name in _BINDING_VARIABLES
        if os.environ.get(name)
    ]
    return ", ".join(settings)


def read_delayed_s() -> float | None:
    """Reads for how many seconds this thread could have run and had no CPU.

    Source: the kernel's schedstat.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/thread-self/schedstat") as file:
            _, waited_ns, *_ = file.read().split()
        return int(waited_ns) / 1e9
    return None
