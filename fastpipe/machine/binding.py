"""OMP_PROC_BIND and the like -> the CPUs that the process had before OpenMP bound a thread.

Note [bound threads] With OMP_PROC_BIND=close or spread (also GOMP_CPU_AFFINITY, KMP_AFFINITY),
OpenMP's library binds the thread that loads it to its first place, which is one CPU or one core.
`import torch` loads it. Each thread and each process that the main thread starts later inherits
this mask: a loader's threads, and the workers of a DataLoader, would all run on one CPU. The
library itself knows the mask that it found: its places are made of it. So, if the mask of a thread
is within a single place, CPUs are counted by the places, and threads are started with all of them.

A process that a bound one has started, such as a rank of torchrun, found no more than one CPU.
Nothing tells which CPUs it was meant to have, so there is only a warning.
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
    """Finds the variable that makes OpenMP bind threads, as NAME=value; "" if none does."""
    # OMP_PROC_BIND is the standard's, the others are those of GNU and Intel.
    for name in VARIABLES:
        if os.environ.get(name, "").lower() not in _NO_BINDING:
            return f"{name}={os.environ[name]}"
    return ""


def list_thread_cpus() -> frozenset[int]:
    """Lists the CPUs that this thread may run on; empty on systems without masks."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    return frozenset(os.sched_getaffinity(0))


def list_allowed_cpus() -> frozenset[int]:
    """Lists the CPUs that this thread could run on if OpenMP had not bound it.

    Note [bound threads]
    """
    mask = list_thread_cpus()
    if not mask or not variable():
        return mask
    # A mask of all CPUs, or one that is not within a place, was not set by this library.
    for places in _read_places():
        all_cpus = frozenset[int]().union(*places)
        is_within_one_place = any(mask <= place for place in places)
        if mask < all_cpus and is_within_one_place:
            return all_cpus
    return mask


def is_started_bound() -> bool:
    """Whether a program that OpenMP has bound seems to have started this one.

    Then this one has one CPU of several.
    """
    if not variable():
        return False
    machine_cpus = os.cpu_count() or 1
    return len(list_allowed_cpus()) == 1 and machine_cpus > 1


@contextlib.contextmanager
def unbound() -> Iterator[None]:
    """Lets threads and processes that are started in this block run on all allowed CPUs."""
    mask = list_thread_cpus()
    allowed = list_allowed_cpus()
    if mask == allowed:
        yield
        return
    _set_thread_cpus(allowed)
    try:
        yield
    finally:
        _set_thread_cpus(mask)


def unbind_thread() -> None:
    """Lets this thread, which a pool has just started, run on all allowed CPUs."""
    allowed = list_allowed_cpus()
    if allowed != list_thread_cpus():
        _set_thread_cpus(allowed)


def _set_thread_cpus(cpus: frozenset[int]) -> None:
    with contextlib.suppress(OSError):
        # The administrator may have taken a CPU away since.
        os.sched_setaffinity(0, cpus)


def _read_places() -> list[list[frozenset[int]]]:
    """Reads the places of each OpenMP library in this process.

    Source: OpenMP 5.0, 3.2.23 to 3.2.25.
    """
    places_of_libraries = []
    for path in _list_loaded():
        with contextlib.suppress(OSError, AttributeError):
            # A library without these functions.
            library = ctypes.CDLL(path)  # it is loaded already
            places = []
            for place in range(library.omp_get_num_places()):
                cpu_ids = (ctypes.c_int * library.omp_get_place_num_procs(place))()
                library.omp_get_place_proc_ids(place, cpu_ids)
                places.append(frozenset(cpu_ids))
            places_of_libraries.append(places)
    return places_of_libraries


def _list_loaded() -> set[str]:
    """Lists the files of the OpenMP libraries in this process."""
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return set()
    # 7f1c2a000000-7f1c2a040000 r-xp 00000000 08:01 393449  /usr/lib/libgomp.so.1.0.0
    paths = set()
    for line in lines:
        if "omp" in line and ".so" in line:
            path = line.split(maxsplit=5)[5]
            if Path(path).name.startswith(_LIBRARIES):
                paths.add(path)
    return paths
