"""Tests of the kernels of colour conversion: all of a machine's give the same pixels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

from fastpipe import _engine

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.skipif("baseline" not in _engine.decode_methods(), reason="needs AVX2"),
]


def test_all_kernels_agree(tmp_path: Path) -> None:
    """With libjpeg-turbo compares test_baseline_decoder, by the fastest of them."""
    sources = [ROOT / "tests/color_agreement.cc", *sorted((ROOT / "csrc/jpeg/decode").glob("color*.cc"))]
    command = ["g++", "-std=c++17", "-O2", f"-I{ROOT / 'csrc'}", *map(str, sources)]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True, timeout=300)
    run = subprocess.run([tmp_path / "program", "5000"], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stdout
    expected = 2 if _engine.resize_kernels()[-1] == "avx512" else 1
    assert run.stdout.startswith(f"{expected} kernels")
