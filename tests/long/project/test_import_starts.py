"""Starts of `import fastpipe` that need a Python each: its time, and what it says without its engine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import ROOT

# CPU time, which other programs do not stretch, as a share of that of `import torch`: 1 to 2 s.
# Python's collector looks at all objects, torch's too, each time their number has grown by a quarter: 0.09 s wherever
# in a program that happens. It is not what the import costs.
SECONDS = """
import gc
import time
gc.disable()
began = time.process_time()
import numpy, torch
started = time.process_time()
import fastpipe
# These write datasets, and need OpenCV and Pillow for it.
for name in set(fastpipe.__all__) - {"Writer", "add", "encode", "pack", "remove"}:
    getattr(fastpipe, name)
print((time.process_time() - started) / (started - began))
"""


@pytest.mark.serial
def test_import_adds_less_than_a_tenth_to_that_of_torch() -> None:
    """The best of three: the first may have to compile the sources."""

    def share() -> float:
        return float(
            subprocess.check_output([sys.executable, "-c", SECONDS], text=True, timeout=600)
        )

    assert any(share() < 0.1 for _ in range(3))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (True, "is the source folder of fastpipe, and its C\\+\\+ engine is not built there"),
        (False, "Install fastpipe again"),
    ],
)
def test_without_the_engine_it_says_what_to_do(tmp_path: Path, source: bool, words: str) -> None:
    shutil.copytree(ROOT / "fastpipe", tmp_path / "fastpipe", ignore=shutil.ignore_patterns("*.so"))
    if source:
        (tmp_path / "setup.py").touch()
    command = [sys.executable, "-S", "-c", "import fastpipe"]
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False
    )
    assert re.search(words, done.stderr)
    assert done.stderr.count("Traceback") == 1, done.stderr


def test_ctrl_c_while_the_engine_is_loaded_is_ctrl_c() -> None:
    code = """
import sys, numpy
from numpy._core import _internal
def interrupted(spec):
    raise KeyboardInterrupt
_internal._dtype_from_pep3118 = interrupted
import fastpipe
fastpipe.open
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (-signal.SIGINT, 130)
    assert done.stderr.count("Traceback") == 1, done.stderr
