"""The libraries of this process -> the number of threads that each of them would use."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import cv2
import torch

MAPS = Path("/proc/self/maps")
# What each is told by before a program starts.
VARIABLES = {
    "torch": "OMP_NUM_THREADS",
    "OpenMP": "OMP_NUM_THREADS",
    "MKL": "MKL_NUM_THREADS",
    "OpenBLAS": "OPENBLAS_NUM_THREADS",
    "OpenCV": "OPENCV_FOR_THREADS_NUM",
}
_TOLD_BY_TORCH = {"OpenMP": "omp_get_max_threads", "MKL": "mkl_get_max_threads"}
# By the ways in which it is built: by itself, or as numpy's and SciPy's wheels bring it, with 64-bit indices.
_OPENBLAS_NAMES = [f"{prefix}openblas_get_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_")]


def thread_counts() -> dict[str, int]:
    """Threads by the library's name; those that are not there are left out."""
    counts = {"torch": torch.get_num_threads()}
    words = torch.__config__.parallel_info()
    for name, function in _TOLD_BY_TORCH.items():
        if told := re.search(rf"{function}\(\) : (\d+)", words):
            counts[name] = int(told[1])
    if openblas := [_openblas(path) for path in _loaded("openblas")]:
        counts["OpenBLAS"] = max(openblas)
    counts["OpenCV"] = cv2.getNumThreads()
    return counts


def _loaded(part: str) -> set[str]:
    """Libraries of this process whose file has that in its name."""
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if part in line and ".so" in line}
    return {path for path in paths if part in Path(path).name}


def _openblas(path: str) -> int:
    library = ctypes.CDLL(path)  # it is loaded already
    for name in _OPENBLAS_NAMES:
        if hasattr(library, name):
            return int(getattr(library, name)())
    return 1
