"""The limits that keep the gate short: CPU time of a test and of a file, and no program that imports torch anew.

The long tier, other builds of the engine and `make soak` have no limits. Limits are seconds of CPU time on a quiet
machine; patience.py says how much longer this one takes.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from support.checkout import TESTS
from support.programs import warm
from support.running.lines import note_test_file
from support.running.patience import cpu_slowdown
from support.running.soak import long_form

MAX_TEST_CPU_S = 3.0
MAX_FILE_CPU_S = 15.0
NEW_PYTHON = "new_python"  # the mark of a test that may start one
COST = "cpu_s"  # the name of the figure in a test's report
_DEAREST_SHOWN = 10
_LONG = TESTS / "long"

_file_cpu_s: dict[Path, float] = defaultdict(float)
_started: list[str] = []


def is_limited(path: Path) -> bool:
    """Whether the tests of a file are part of the gate, in a build for which the limits were set."""
    if path.is_relative_to(_LONG) or long_form():
        return False
    release = os.environ.get("FASTPIPE_BUILD", "release") == "release"
    sanitized = "san.so" in os.environ.get("LD_PRELOAD", "")
    traced = "COVERAGE_RUN" in os.environ
    return release and not sanitized and not traced


def cpu_s() -> float:
    """Of this process, of the programs that it has waited for, and of those that warm.py has run for it."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime + warm.cpu_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test of the gate that is too dear, and the test that makes its file too dear.

    Fixtures do not count for the test, because others use them too, but they do for the file.
    """
    _started.clear()
    before_s = cpu_s()
    result = yield
    used_s = cpu_s() - before_s
    item.user_properties.append((COST, used_s))
    if not is_limited(item.path):
        return result
    if _started and item.get_closest_marker(NEW_PYTHON) is None:
        pytest.fail(
            f"the test started a Python of its own ({_started[0]}), expected none in the gate: run the program with "
            f"support/programs/warm.py, move the test to tests/long, or mark it @pytest.mark.{NEW_PYTHON}(why) if it "
            "is the only one of its kind",
            pytrace=False,
        )
    if used_s > MAX_TEST_CPU_S and used_s > MAX_TEST_CPU_S * cpu_slowdown():
        pytest.fail(
            f"the test took {used_s:.1f} s of CPU time, expected at most {MAX_TEST_CPU_S:g} s in the gate: make its "
            "data smaller, try fewer cases, or move it to tests/long",
            pytrace=False,
        )
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Adds up what a file's tests and their fixtures take."""
    note_test_file(item)
    before_s = cpu_s()
    result = yield
    _file_cpu_s[item.path] += cpu_s() - before_s
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Starts no further test of a file that has had its time."""
    used_s = _file_cpu_s[item.path]
    if (
        is_limited(item.path)
        and used_s > MAX_FILE_CPU_S
        and used_s > MAX_FILE_CPU_S * cpu_slowdown()
    ):
        pytest.fail(
            f"the tests of {item.path.name} took {used_s:.1f} s of CPU time, expected at most {MAX_FILE_CPU_S:g} s in "
            "the gate: try fewer cases, or move some of them to tests/long",
            pytrace=False,
        )
    return (yield)


def watch_programs() -> None:
    """Notes each Python that this process starts from now on. warm.py's server is started once for many tests."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen":
            return
        _, words, _, _ = arguments
        words = [words] if isinstance(words, (str, bytes)) else [str(word) for word in words]
        program = Path(str(words[0])).name
        is_python = program.startswith("python") or program in ("fastpipe", "torchrun")
        if is_python and not any("warm_server.py" in str(word) for word in words):
            _started.append(" ".join(map(str, words))[:100])

    sys.addaudithook(note)


class DearestTests:
    """A plugin of the process that prints: the tests that took most CPU time stand at the end of a run."""

    def __init__(self) -> None:
        self._cpu_s: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, value in report.user_properties:
                if name == COST and isinstance(value, float):
                    self._cpu_s[report.nodeid] = value

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self._cpu_s) <= _DEAREST_SHOWN:
            return
        total_s = sum(self._cpu_s.values())
        terminalreporter.section(
            f"the {_DEAREST_SHOWN} dearest of {len(self._cpu_s)} tests, {total_s:.0f} s of CPU time"
        )
        dearest = sorted(self._cpu_s, key=lambda nodeid: self._cpu_s[nodeid], reverse=True)
        for nodeid in dearest[:_DEAREST_SHOWN]:
            terminalreporter.write_line(f"{self._cpu_s[nodeid]:6.1f} s  {nodeid}")


def watch_cost(config: pytest.Config) -> None:
    watch_programs()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(DearestTests())
