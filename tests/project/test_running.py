"""Tests of support/running: pytest itself runs small files, as the gate and `make soak` run the project's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.running import cost
from support.running.workers import MOST_WORKERS, worker_count

pytest_plugins = ["pytester"]

CONFTEST = """
from support.running.cost import pytest_runtest_call, pytest_runtest_protocol, pytest_runtest_setup
from support.running.soak import pytest_terminal_summary, tried
"""

TESTS = """
import subprocess, sys, time
import pytest

def work(cpu_s=0.25):
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass

@pytest.fixture
def made():
    work()

def test_waits():
    time.sleep(0.25)

def test_has_a_costly_fixture(made):
    pass

def test_works():
    work()

def test_starts_a_python():
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)

@pytest.mark.new_python("the only one")
def test_may_start_a_python():
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
"""


def outcomes(
    pytester: pytest.Pytester, *, file_cpu_s: float = 10.0, is_long: bool = False
) -> list[tuple[str, pytest.TestReport]]:
    """By test that failed: the report. The limits are so small that the outer test keeps them, too."""
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers = new_python(why)\n")
    pytester.makepyfile(TESTS)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FASTPIPE_SOAK", "FASTPIPE_BUILD", "LD_PRELOAD", "COVERAGE_RUN"):
            patch.delenv(name, raising=False)
        patch.setattr(cost, "MAX_TEST_CPU_S", 0.2)
        patch.setattr(cost, "MAX_FILE_CPU_S", file_cpu_s)
        patch.setattr(cost, "cpu_slowdown", lambda: 1.0)
        patch.setattr(cost, "_LONG", pytester.path if is_long else Path("/nowhere"))
        _, _, failed = pytester.inline_run("-p", "no:cacheprovider").listoutcomes()
    cost._started.clear()
    return [(report.nodeid.split("::")[1], report) for report in failed]


def test_a_dear_test_of_the_gate_fails(pytester: pytest.Pytester) -> None:
    failed = dict(outcomes(pytester))
    assert list(failed) == ["test_works", "test_starts_a_python"]
    assert "s of CPU time, expected at most 0.2 s in the gate" in str(failed["test_works"].longrepr)
    assert "or mark it @pytest.mark.new_python(why)" in str(failed["test_starts_a_python"].longrepr)


def test_a_file_of_the_gate_that_had_its_time_fails(pytester: pytest.Pytester) -> None:
    failed = outcomes(pytester, file_cpu_s=0.2)
    assert [report.when for _, report in failed] == ["setup", "setup", "setup"]
    assert "expected at most 0.2 s in the gate" in str(failed[0][1].longrepr)


def test_the_long_tier_has_no_limits(pytester: pytest.Pytester) -> None:
    assert outcomes(pytester, file_cpu_s=0.1, is_long=True) == []


def test_soak_prints_what_was_tried(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of all that passed."""
    monkeypatch.setenv("FASTPIPE_SOAK", "1")
    pytester.makeconftest(CONFTEST)
    fire = "def test_{}(tried):\n    tried('fire', {}, 'out')\n    assert {}\n"
    pytester.makepyfile(
        fire.format("b", 3, True) + fire.format("c", 70, False) + fire.format("d", 2, True)
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(
        ["| fault | times tried | outcome |", "|---|---|---|", "| fire | 5 | out |"]
    )


def test_the_number_of_workers_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert worker_count() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert worker_count() == MOST_WORKERS
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", str(MOST_WORKERS + 3))
    assert worker_count() == MOST_WORKERS + 3
