"""Programs of tests/*.cc and parts of the engine that need no library -> what they print, here or on an ARM."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.checkout import ROOT
from support.native.native_build import units

CSRC = ROOT / "csrc"
_ARM_COMPILER = "aarch64-linux-gnu-g++"
_EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

needs_arm = pytest.mark.skipif(
    not (_EMULATOR and shutil.which(_ARM_COMPILER)),
    reason=f"needs {_ARM_COMPILER} and qemu-aarch64 (Debian: g++-aarch64-linux-gnu qemu-user-static)",
)
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
MACHINES = [
    pytest.param(False, id="this machine", marks=needs_compiler),
    pytest.param(True, id="emulated ARM", marks=needs_arm),
]


def output_of(
    program: str, parts: Iterable[Path], arguments: Iterable[str | Path], folder: Path, *, arm: bool
) -> subprocess.CompletedProcess[str]:
    """Compiles `program`.cc with `parts` of csrc into `folder` and runs it."""
    made = folder / f"{program}-{'arm' if arm else 'here'}"
    compiler = _ARM_COMPILER if arm else "g++"
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", f"-I{CSRC}"]
    objects = []
    for number, unit in enumerate(
        units([Path(__file__).with_name(f"{program}.cc"), *sorted(parts)])
    ):
        objects.append(f"{made}.{number}.o")
        text = "".join(f'#include "{source}"\n' for source in unit)
        command = [compiler, *flags, "-x", "c++", "-c", "-", "-o", objects[-1]]
        subprocess.run(command, input=text, text=True, check=True, timeout=300)
    subprocess.run([compiler, "-static", *objects, "-o", str(made)], check=True, timeout=300)
    emulator = [_EMULATOR] if arm and _EMULATOR else []
    command = [*emulator, str(made), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
