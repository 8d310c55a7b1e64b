"""torch, OpenCV, libjpeg-turbo, the engine and the GPU -> checks."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
from collections.abc import Iterator
from pathlib import Path

import cv2
import torch

import fastpipe
from fastpipe.distribution import DISTRIBUTION, other_package_message
from fastpipe.engine.engine import read_engine_facts
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.tools.doctor.check import Check, Verdict, make_check
from fastpipe.tools.doctor.libjpeg_simd import measure_jpeg_simd

_MIN_SIMD_RATIO = 1.4  # 2 to 3 with SIMD in use

MAPS = Path("/proc/self/maps")
# The variable that sets the threads of each library, before a program starts.
VARIABLES = {
    "torch": "OMP_NUM_THREADS",
    "OpenMP": "OMP_NUM_THREADS",
    "MKL": "MKL_NUM_THREADS",
    "OpenBLAS": "OPENBLAS_NUM_THREADS",
    "OpenCV": "OPENCV_FOR_THREADS_NUM",
}
# torch.__config__.parallel_info() has lines such as "omp_get_max_threads() : 8".
_IN_PARALLEL_INFO = {"OpenMP": "omp_get_max_threads", "MKL": "mkl_get_max_threads"}
# The names depend on the build: plain, or as numpy's and SciPy's wheels have it, and with 64-bit
# indices.
_OPENBLAS_FUNCTIONS = (
    "openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "scipy_openblas_get_num_threads64_",
)


def check_libraries() -> Iterator[Check]:
    """Checks the package, threads, the engine, libjpeg-turbo and the GPU."""
    yield _check_package()
    yield _describe_workers()
    granted = count_granted_cpus()
    counts = count_threads()
    yield _check_threads(granted, counts)
    yield _check_threads_in_workers(granted, counts)
    facts = read_engine_facts()
    yield make_check(
        "engine",
        f"resize by {facts.resize}, decoding by {facts.decode}, "
        f"coefficients by {facts.coefficients}",
        facts.resize != "scalar" and facts.decode == "baseline",
        "this CPU has no AVX2 or BMI2, which the fastest code needs; results are the same",
    )
    yield _check_libjpeg()
    yield _check_gpu()


def _check_package() -> Check:
    """Checks that no other project's package is installed in the same folder."""
    conflict = other_package_message()
    result = f"{DISTRIBUTION} {fastpipe.__version__}"
    return make_check("package", result, not conflict, conflict, Verdict.BAD)


def _describe_workers() -> Check:
    """Says how torch's DataLoader would start its workers and get their batches."""
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    # Without allow_none, the question would settle the method for this process.
    method = multiprocessing.get_start_method(allow_none=True)
    if method is None:
        method = multiprocessing.get_all_start_methods()[0]
    return Check("worker processes", f"tensors by {strategy}, {method} by default")


def _check_threads(granted: int, counts: dict[str, int]) -> Check:
    """Compares the threads of each library in a process with the CPUs granted."""
    texts = [f"{library} {count}" for library, count in counts.items()]
    settings = []
    for variable in sorted(set(VARIABLES.values())):
        if variable in os.environ:
            value = os.environ[variable]
            settings.append(f"{variable}={value}")
    threads = ", ".join(texts)
    variables = ", ".join(settings) or "OMP_NUM_THREADS not set"
    result = f"{threads}; {variables}"
    advised: dict[str, None] = {}  # a set that keeps the order
    for library, count in counts.items():
        if count > granted:
            variable = VARIABLES[library]
            advised[f"{variable}={granted}"] = None
    advice = f"more than the {granted} CPUs granted: set {', '.join(advised)}"
    return make_check("threads", result, not advised, advice, Verdict.BAD)


def _check_threads_in_workers(granted: int, counts: dict[str, int]) -> Check:
    """Checks the threads of one worker process for each CPU.

    torch limits itself in a worker to one thread. The other libraries do not.
    """
    name = "threads in workers"
    several = {}
    for library in ("OpenCV", "OpenBLAS"):
        if counts.get(library, 1) > 1:
            several[library] = counts[library]
    if not several or granted == 1:
        return Check(name, "one per library")
    most = max(several.values())
    libraries = " and ".join(several)
    threads = granted * most
    result = f"{granted} workers of DataLoader with {most} of {libraries} each: {threads} threads"
    settings = ", ".join(f"{VARIABLES[library]}=1" for library in several)
    advice = (
        f"for your own worker processes: {settings}; fastpipe.loader has no worker processes, "
        "and fastpipe.Dataset limits OpenCV itself"
    )
    return Check(name, result, Verdict.NOTE, advice)


def _check_libjpeg() -> Check:
    """Checks the version, the file, and whether SIMD code is in use."""
    name = "libjpeg-turbo"
    simd = measure_jpeg_simd()
    if simd is None:
        return Check(
            name,
            f"{read_engine_facts().libjpeg_turbo}; its speed could not be measured",
        )
    result = simd.version
    if simd.file:
        result += f" ({os.path.basename(simd.file)})"
    if simd.ratio >= _MIN_SIMD_RATIO:
        return Check(
            name,
            f"{result}; SIMD in use, {simd.ratio:.1f} times as fast as without SIMD",
        )
    if os.environ.get("JSIMD_FORCENONE") == "1":
        advice = "unset JSIMD_FORCENONE"
    else:
        advice = (
            "it was built without SIMD: install your system's libjpeg-turbo, "
            "or fastpipe's wheel, which contains libjpeg-turbo"
        )
    return Check(name, f"{result}; no SIMD in use", Verdict.NOTE, advice)


def _check_gpu() -> Check:
    """Checks which GPUs torch sees, and whether host memory can be pinned for them."""
    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            return Check("GPU", "torch was built without CUDA", Verdict.NOTE)
        return Check(
            "GPU", "torch sees no GPU", Verdict.NOTE, "check nvidia-smi and the driver"
        )
    count = torch.cuda.device_count()
    names = {torch.cuda.get_device_name(number) for number in range(count)}
    result = f"{count} x {', '.join(sorted(names))}"
    # A container may not allow memory to be locked, and then pinning fails.
    try:
        torch.empty(1 << 20, dtype=torch.uint8, device="cpu", pin_memory=True)
    except RuntimeError as problem:
        reason = str(problem).splitlines()[0]
        advice = f"memory cannot be pinned ({reason}): raise the limit on locked memory (ulimit -l)"
        return Check("GPU", result, Verdict.BAD, advice)
    return Check("GPU", f"{result}; pinning works")


def count_threads() -> dict[str, int]:
    """Counts the threads of each library in this process, by the library's name."""
    counts = {"torch": torch.get_num_threads()}
    # torch reports the threads of the OpenMP and MKL that it uses.
    info = torch.__config__.parallel_info()
    for library, function in _IN_PARALLEL_INFO.items():
        match = re.search(rf"{function}\(\) : (\d+)", info)
        if match:
            counts[library] = int(match[1])
    # numpy, SciPy and others may each have brought an OpenBLAS.
    openblas_counts = [
        _read_openblas_threads(path) for path in _list_loaded("openblas")
    ]
    if openblas_counts:
        counts["OpenBLAS"] = max(openblas_counts)
    counts["OpenCV"] = cv2.getNumThreads()
    return counts


def _list_loaded(part: str) -> set[str]:
    """Lists the libraries of this process with that part in the name of their file."""
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return set()
    paths = set()
    for line in lines:
        if part in line and ".so" in line:
            path = line.split(maxsplit=5)[5]
            if part in Path(path).name:
                paths.add(path)
    return paths


def _read_openblas_threads(path: str) -> int:
    library = ctypes.CDLL(path)  # it is loaded already
    for name in _OPENBLAS_FUNCTIONS:
        if hasattr(library, name):
            return int(getattr(library, name)())
    return 1
