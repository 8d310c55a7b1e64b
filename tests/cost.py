"""A test that takes too much CPU time fails, so that the gate stays short for those who wait for it."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator

import pytest
from soak import long_form

MOST_CPU_S = 120.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Counts the test and the programs that it has waited for, but not its fixtures: those may compile.

    Other kinds of builds take longer, and so does `make soak`.
    """
    before = _cpu_s()
    result = yield
    took = _cpu_s() - before
    usual = os.environ.get("FASTPIPE_BUILD", "release") == "release" and "san.so" not in os.environ.get(
        "LD_PRELOAD", ""
    )
    if took > MOST_CPU_S and usual and not long_form():
        pytest.fail(
            f"the test took {took:.1f} s of CPU time, expected at most {MOST_CPU_S:g} s: make its data smaller or "
            "try fewer cases, and leave the whole to `make soak` (tests/soak.py)",
            pytrace=False,
        )
    return result


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
