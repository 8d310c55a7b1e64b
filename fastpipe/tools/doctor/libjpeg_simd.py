"""libjpeg-turbo -> whether its SIMD code is in use, measured.

The library does not say which code it runs. But JSIMD_FORCENONE=1 at its start makes it do without
SIMD. So an image is decoded in two processes, one with this variable, and their times are compared.
Source: libjpeg-turbo's simd/x86_64/jsimd.c and its like.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from fastpipe.engine.engine import extension_file, read_engine_facts

_TIMEOUT_S = 60  # of a process
_ROUNDS = 4
# The process loads the engine without the package, and so without torch, in a fifth of a second. It
# takes the least CPU time of many decodes: other programs on the machine do not change that.
_PROGRAM = """
import importlib.util, json, sys, time

spec = importlib.util.spec_from_file_location("_engine", sys.argv[1])
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)
jpeg = sys.stdin.buffer.read()
times_s = []
for _ in range(40):
    began_s = time.process_time()
    engine.decode(jpeg, method="libjpeg")
    times_s.append(time.process_time() - began_s)
file = None
try:
    for line in open("/proc/self/maps"):
        if "libjpeg" in line:
            file = line.split(maxsplit=5)[-1].strip()
            break
except OSError:
    pass
print(json.dumps([min(times_s), file]))
"""


class JpegSimd(NamedTuple):
    """The libjpeg-turbo in use."""

    # Of the library that is loaded, else of the one that the engine was built with.
    version: str
    file: str | None  # None: not known
    # The time of a decode without SIMD by the usual time; 1 if no SIMD is in use.
    ratio: float


@functools.cache
def measure_jpeg_simd() -> JpegSimd | None:
    """Measures in two seconds, once a process; None if a process cannot be started.

    The two kinds take turns, several times: a busy neighbour of the core makes one process 1.7
    times as slow as the next.
    """
    jpeg = _encode_smooth_jpeg()
    usual_s = math.inf
    without_simd_s = math.inf
    file = None
    try:
        for _ in range(_ROUNDS):
            seconds, file = _time_decode(jpeg, {})
            usual_s = min(usual_s, seconds)
            seconds, _ = _time_decode(jpeg, {"JSIMD_FORCENONE": "1"})
            without_simd_s = min(without_simd_s, seconds)
    except (OSError, subprocess.SubprocessError):
        return None
    version = _read_version(file) or read_engine_facts().libjpeg_turbo
    return JpegSimd(version, file, without_simd_s / usual_s)


def _encode_smooth_jpeg() -> bytes:
    """Encodes an image with hardly any Huffman codes to read: the rest is work for SIMD."""
    y, x = np.mgrid[0:256, 0:256]
    # (height, width, BGR).
    mean = (x + y) // 2
    values = np.stack([x, y, mean], axis=-1)
    pixels = values.astype(np.uint8)
    _, jpeg = cv2.imencode(".jpg", pixels)
    return bytes(jpeg)


def _time_decode(jpeg: bytes, variables: dict[str, str]) -> tuple[float, str | None]:
    """Times a decode in a process with some variables.

    Returns:
        Seconds, and the file of the library; None if it is not known.

    Raises:
        OSError, SubprocessError: the process does not work.
    """
    run = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, extension_file()],
        input=jpeg,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=True,
        env={**os.environ, **variables},
    )
    seconds, file = json.loads(run.stdout)
    return seconds, file


def _read_version(file: str | None) -> str | None:
    """Reads the version in the library's own file."""
    if file is None or not os.access(file, os.R_OK):
        return None
    match = re.search(rb"libjpeg-turbo version (\d[\w.]*)", Path(file).read_bytes())
    if match is None:
        return None
    return match[1].decode()
