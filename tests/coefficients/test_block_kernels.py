"""Tests of the kernels that read blocks: all of a machine's, and those of an emulated ARM, give the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

from fastpipe import _engine

ARM_COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
CASES = [
    pytest.param("g++", [], _engine.block_kernels(), id="this machine"),
    pytest.param(
        ARM_COMPILER,
        [EMULATOR],
        ["scalar", "neon"],
        id="emulated ARM",
        marks=pytest.mark.skipif(
            not (EMULATOR and shutil.which(ARM_COMPILER)), reason=f"needs {ARM_COMPILER} and qemu-aarch64"
        ),
    ),
]


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize(("compiler", "emulator", "kernels"), CASES)
def test_all_kernels_agree(compiler: str, emulator: list[str], kernels: list[str], tmp_path: Path) -> None:
    sources = sorted((ROOT / "csrc/coefficients").glob("block*.cc"))
    sources = [source for source in sources if source.stem != "block_row_writer"]  # that one knows JPEG
    command = [compiler, "-std=c++17", "-O2", "-static", f"-I{ROOT / 'csrc'}", str(ROOT / "tests/block_agreement.cc")]
    subprocess.run([*command, *map(str, sources), "-o", str(tmp_path / "program")], check=True, timeout=300)
    run = subprocess.run(
        [*emulator, str(tmp_path / "program"), "5000"], capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stdout
    assert run.stdout.splitlines()[0].split() == kernels


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="no kernels named sse9"):
        _engine.decode(b"", kernels="sse9")
