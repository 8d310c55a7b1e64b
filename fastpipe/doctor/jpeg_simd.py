"""The libjpeg-turbo that the engine has loaded -> its version, and how much faster its SIMD code makes it here.

The library does not say which code it runs. But it can be told to do without SIMD, by JSIMD_FORCENONE=1 at its start:
so a picture is decoded in two processes, as things are and with that, and the times tell. (Source: libjpeg-turbo's
simd/x86_64/jsimd.c and its like.)
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

from fastpipe.engine.engine import engine_facts, extension_file

_TIMEOUT_S = 60
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
