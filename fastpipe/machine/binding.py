"""OMP_PROC_BIND and the like -> the CPUs that the process had before OpenMP bound its main thread to one of them.

Note [bound threads]
With OMP_PROC_BIND=close or spread (also GOMP_CPU_AFFINITY, KMP_AFFINITY), OpenMP's library binds the thread that loads
it to its first place, which is one CPU or one core. `import torch` loads it. Each thread and each process that the main
thread starts later inherits this mask: a loader's threads, and the workers of a DataLoader, would all run on one CPU.
The library itself knows the mask that it found: its places are made of it. So CPUs are counted by the places, if the
mask of a thread is within a single place, and threads are started with all of them.

A process that a bound one has started, such as a rank of torchrun, found no more than one CPU. There nothing tells
which CPUs it was meant to have, so this is said only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

VARIABLES = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
MAPS = Path("/proc/self/maps")
_LIBRARIES = ("libgomp", "libiomp5", "libomp")
_NO_BINDING = ("", "false", "none", "disabled")


def variable() -> str:
    """The variable that has OpenMP bind threads, as NAME=value; "": none."""
    for name in VARIABLES:
        if os.environ.get(name, "").lower() not in _NO_BINDING:
            return f"{name}={os.environ[name]}"
    return ""


def thread_cpus() -> frozenset[int]:
    """The CPUs that this thread may run on; none where the system has no masks."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def allowed_cpus() -> frozenset[int]:
    """The CPUs that this thread could run on if OpenMP had not bound it. Note [bound threads]"""
    mask = thread_cpus()
    if not mask or not variable():
        return mask
    for places in _places():
        every = frozenset[int]().union(*places)
        if mask < every and any(mask <= place for place in places):
            return every
    return mask


def is_started_bound() -> bool:
    """Whether a program that OpenMP has bound has started this one, as far as can be told: it has one CPU."""
    return bool(variable()) and len(allowed_cpus()) == 1 < (os.cpu_count() or 1)


@contextlib.contextmanager
def unbound() -> Iterator[None]:
    """Threads and processes that are started meanwhile may run on all allowed CPUs."""
    mask, allowed = thread_cpus(), allowed_cpus()
    if mask == allowed:
        yield
        return
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, allowed)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, mask)


def unbind_thread() -> None:
    """Lets this thread, which a pool has just started, run on all allowed CPUs."""
    allowed = allowed_cpus()
    if allowed != thread_cpus():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed)


def _places() -> list[list[frozenset[int]]]:
    """Of each of OpenMP's libraries in this process its places. Source: OpenMP 5.0, 3.2.23 to 3.2.25."""
    found = []
    for path in _loaded():
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(path)  # it is loaded already
            places = []
            for place in range(library.omp_get_num_places()):
                ids = (ctypes.c_int * library.omp_get_place_num_procs(place))()
                library.omp_get_place_proc_ids(place, ids)
                places.append(frozenset(ids))
            found.append(places)
    return found


def _loaded() -> set[str]:
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if "omp" in line and ".so" in line}
    return {path for path in paths if Path(path).name.startswith(_LIBRARIES)}
