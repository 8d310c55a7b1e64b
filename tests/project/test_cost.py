"""Tests of cost.py: pytest itself runs a small file in which tests take CPU time, alone and in a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import TESTS

CONFTEST = """
import cost
from cost import pytest_runtest_call

cost.MOST_CPU_S = 0.5
"""

SLOW = """
import subprocess, sys, time
import pytest

WORK = "import time\\nwhile time.process_time() < 0.6: pass"

@pytest.fixture
def made():
    exec(WORK, {})

def test_waits():
    time.sleep(0.6)

def test_has_a_costly_fixture(made):
    pass

def test_works():
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass

def test_has_a_program_that_works():
    subprocess.run([sys.executable, "-c", WORK], check=True)
"""


@pytest.mark.parametrize(("setting", "failing"), [({}, 2), ({"FASTPIPE_SOAK": "1"}, 0)])
def test_a_test_that_takes_too_long_fails(tmp_path: Path, setting: dict[str, str], failing: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_slow.py").write_text(SLOW)
    # Where CI or BUILD_NUMBER is set, pytest repeats each error in its summary.
    left_out = ("FASTPIPE_", "PYTEST_", "LD_", "CI", "BUILD_NUMBER")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    environment = kept | setting | {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if failing else 0), done.stdout
    assert done.stdout.count("s of CPU time, expected at most 0.5 s: make its data smaller") == failing
    named = re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE)
    assert named == ["test_works", "test_has_a_program_that_works"][:failing]
