"""torch, OpenCV, libjpeg-turbo, the engine and the GPU -> checks."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch

from fastpipe.doctor.check import Check, Verdict, judged
from fastpipe.engine.engine import engine_facts, extension_file
from fastpipe.machine.cpus import granted_cpus

_LEAST_SIMD_RATIO = 1.4  # 2 to 3 where SIMD is in use

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


def library_checks() -> Iterator[Check]:
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    # How torch's DataLoader would start its workers and get their batches.
    yield Check("worker processes", f"tensors by {strategy}, {method} by default")
    granted, counts = granted_cpus(), thread_counts()
    yield _threads(granted, counts)
    yield _threads_in_workers(granted, counts)
    facts = engine_facts()
    yield judged(
        "engine",
        f"resize by {facts.resize}, decoding by {facts.decode}, coefficients by {facts.coefficients}",
        facts.resize != "scalar" and facts.decode == "baseline",
        "this CPU has no AVX2 or BMI2, which the fastest code needs; results are the same",
    )
    yield _libjpeg()
    yield _gpu()


def _threads(granted: int, counts: dict[str, int]) -> Check:
    """Threads of each library in a process, against the CPUs granted."""
    set_to = [f"{name}={os.environ[name]}" for name in sorted(set(VARIABLES.values())) if name in os.environ]
    found = ", ".join(f"{name} {count}" for name, count in counts.items())
    found += f"; {', '.join(set_to) or 'OMP_NUM_THREADS not set'}"
    too_many = {VARIABLES[name]: granted for name, count in counts.items() if count > granted}
    settings = ", ".join(f"{variable}={count}" for variable, count in too_many.items())
    advice = f"more than the {granted} CPUs granted: set {settings}"
    return judged("threads", found, not too_many, advice, Verdict.BAD)


def _threads_in_workers(granted: int, counts: dict[str, int]) -> Check:
    """The same for a worker process a CPU. torch limits itself there to one thread; the others do not."""
    name = "threads in workers"
    several = {library: counts[library] for library in ("OpenCV", "OpenBLAS") if counts.get(library, 1) > 1}
    if not several or granted == 1:
        return Check(name, "one per library")
    most = max(several.values())
    found = f"{granted} workers of DataLoader with {most} of {' and '.join(several)} each: {granted * most} threads"
    settings = ", ".join(f"{VARIABLES[library]}=1" for library in several)
    advice = (
        f"for your own worker processes: {settings}; fastpipe.loader has no worker processes, and "
        "fastpipe.Dataset limits OpenCV itself"
    )
    return Check(name, found, Verdict.NOTE, advice)


def _libjpeg() -> Check:
    """Version, file, and whether its SIMD code is in use."""
    name, simd = "libjpeg-turbo", jpeg_simd()
    if simd is None:
        return Check(name, f"{engine_facts().libjpeg_turbo}; its speed could not be measured")
    found = simd.version + (f" ({os.path.basename(simd.file)})" if simd.file else "")
    if simd.ratio >= _LEAST_SIMD_RATIO:
        return Check(name, f"{found}; SIMD in use, {simd.ratio:.1f} times as fast as without SIMD")
    advice = "unset JSIMD_FORCENONE"
    if os.environ.get("JSIMD_FORCENONE") != "1":
        advice = (
            "it was built without SIMD: install your system's libjpeg-turbo, or fastpipe's wheel, which "
            "contains libjpeg-turbo"
        )
    return Check(name, f"{found}; no SIMD in use", Verdict.NOTE, advice)


def _gpu() -> Check:
    """What torch sees, and whether host memory can be pinned for it."""
    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            return Check("GPU", "torch was built without CUDA", Verdict.NOTE)
        return Check("GPU", "torch sees no GPU", Verdict.NOTE, "check nvidia-smi and the driver")
    names = {torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    found = f"{torch.cuda.device_count()} x {', '.join(sorted(names))}"
    try:
        torch.empty(1 << 20, dtype=torch.uint8, device="cpu", pin_memory=True)
    except RuntimeError as problem:
        reason = str(problem).splitlines()[0]
        advice = f"memory cannot be pinned ({reason}): raise the limit on locked memory (ulimit -l)"
        return Check("GPU", found, Verdict.BAD, advice)
    return Check("GPU", f"{found}; pinning works")


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
    return next((int(getattr(library, name)()) for name in _OPENBLAS_NAMES if hasattr(library, name)), 1)


# The library does not say which code it runs. But it can be told to do without SIMD, by JSIMD_FORCENONE=1 at its start:
# so a picture is decoded in two processes, as things are and with that, and the times tell. (Source: libjpeg-turbo's
# simd/x86_64/jsimd.c and its like.)
_TIMEOUT_S = 60  # of a process
_ROUNDS = 4
# Without the package, so without torch: that takes a fifth of a second. CPU time, the least of many: other programs on
# the machine do not change it.
_TIMED = """
import importlib.util, json, sys, time
spec = importlib.util.spec_from_file_location("_engine", sys.argv[1])
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)
jpeg, times = sys.stdin.buffer.read(), []
for _ in range(40):
    started = time.process_time()
    engine.decode(jpeg, method="libjpeg")
    times.append(time.process_time() - started)
try:
    files = [line.split(maxsplit=5)[-1].strip() for line in open("/proc/self/maps") if "libjpeg" in line]
except OSError:
    files = []
print(json.dumps([min(times), files[0] if files else None]))
"""


class JpegSimd(NamedTuple):
    """The version and the file of the library that is loaded, where they can be told; else the version that the engine
    was built with. `ratio`: the time of a decode without SIMD to that as things are; 1 where no SIMD is in use.
    """

    version: str
    file: str | None
    ratio: float


@functools.cache
def jpeg_simd() -> JpegSimd | None:
    """Measures, once a process, in two seconds; None where a process of our own cannot be started.

    In turn, several times: a busy neighbour of the core makes one process 1.7 times as slow as the next.
    """
    jpeg, usual, plain, file = _smooth_jpeg(), math.inf, math.inf, None
    try:
        for _ in range(_ROUNDS):
            (as_is, file), (without, _) = _timed(jpeg, {}), _timed(jpeg, {"JSIMD_FORCENONE": "1"})
            usual, plain = min(usual, as_is), min(plain, without)
    except (OSError, subprocess.SubprocessError):
        return None
    return JpegSimd(_version(file) or engine_facts().libjpeg_turbo, file, plain / usual)


def _smooth_jpeg() -> bytes:
    """A picture with hardly any Huffman codes to read: what remains is what SIMD is for."""
    y, x = np.mgrid[0:256, 0:256]
    pixels = np.stack([x, y, (x + y) // 2], axis=-1).astype(np.uint8)  # (height, width, BGR)
    return bytes(cv2.imencode(".jpg", pixels)[1])


def _timed(jpeg: bytes, extra: dict[str, str]) -> tuple[float, str | None]:
    """Seconds of a decode, and the library's file. OSError, SubprocessError: they cannot be told."""
    command, env = [sys.executable, "-P", "-c", _TIMED, extension_file()], {**os.environ, **extra}
    run = subprocess.run(command, input=jpeg, capture_output=True, timeout=_TIMEOUT_S, check=True, env=env)
    seconds, file = json.loads(run.stdout)
    return seconds, file


def _version(file: str | None) -> str | None:
    """As the library's own file has it."""
    if file is None or not os.access(file, os.R_OK):
        return None
    found = re.search(rb"libjpeg-turbo version (\d[\w.]*)", Path(file).read_bytes())
    return None if found is None else found[1].decode()
