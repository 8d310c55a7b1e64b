"""The doctor asks libraries in processes of their own: their threads, and whether libjpeg-turbo uses SIMD."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastpipe.tools.doctor import Check, Verdict, examine, libjpeg_simd, libraries


def check_of(name: str, data: Path | None = None) -> Check:
    (found,) = [check for check in examine(data) if check.name == name]
    return found


# What the variables say, the libraries do: each is asked itself.
COUNTS = "import json; from fastpipe.tools.doctor.libraries import count_threads; print(json.dumps(count_threads()))"


def test_each_library_is_asked_itself() -> None:
    variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    variables["OPENCV_FOR_THREADS_NUM"] = "6"
    command = [sys.executable, "-c", COUNTS]
    said = subprocess.check_output(command, env={**os.environ, **variables}, text=True, timeout=300)
    counts = json.loads(said)
    assert counts.pop("OpenCV") == 6
    assert counts["torch"] == 1
    assert set(counts.values()) == {1}  # on a machine of one CPU they would be anyway


def test_simd_that_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        libraries, "measure_jpeg_simd", libjpeg_simd.measure_jpeg_simd.__wrapped__
    )  # measured anew
    monkeypatch.setenv("JSIMD_FORCENONE", "1")
    check = check_of("libjpeg-turbo")
    assert check.found.endswith("no SIMD in use")
    assert (check.verdict, check.advice) == (Verdict.NOTE, "unset JSIMD_FORCENONE")
    monkeypatch.setattr(sys, "executable", "/nowhere")
    assert "could not be measured" in check_of("libjpeg-turbo").found


def test_simd_is_in_use() -> None:
    check = check_of("libjpeg-turbo")
    assert check.found.startswith(("2.", "3."))
    assert "SIMD in use, " in check.found
    assert check.verdict is Verdict.OK
