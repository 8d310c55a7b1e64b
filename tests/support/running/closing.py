"""The end of a run: what failed stands in the last line; and a run with `--within` starts no test after that time."""

from __future__ import annotations

import os
import time

import pytest

_NAMED = 3


class Closing:
    """A plugin of the process that prints: pytest itself, and not a worker of pytest-xdist."""

    def __init__(self, within_s: float | None) -> None:
        self._ends_s = None if within_s is None else time.monotonic() + within_s
        self._failed: dict[str, None] = {}
        self._left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        if self._ends_s is None or time.monotonic() < self._ends_s:
            return None
        self._left_out += 1
        return True  # done with this test: nobody else runs it

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self._left_out:
            print(f"no time was left for {self._left_out} tests")  # noqa: T201
        if self._failed:
            names = list(self._failed)
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            print(f"failed: {' '.join(names[:_NAMED])}{more}")  # noqa: T201


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--within", type=float, metavar="SECONDS", help="start no test later than this"
    )


def watch_the_end(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Closing(config.getoption("--within")))
