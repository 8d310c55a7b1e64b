"""How often a test tries a fault, in the gate and in `make soak`, and the table of what was tried."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

_TRIED = "tried"

Tried = Callable[[str, int, str], None]


def long_form() -> bool:
    """Whether this is `make soak`."""
    return os.environ.get("FASTPIPE_SOAK") == "1"


def times(short: int, long: int) -> int:
    """`short`, and in `make soak` `long`."""
    return long if long_form() else short


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> Tried:
    """To be called at a test's end, when all that it checks has held: fault, times tried, outcome.

    `make soak` prints the table of docs/development/reliability.md; equal faults and outcomes are summed.
    """

    def note(fault: str, count: int, outcome: str) -> None:
        assert count > 0, "nothing was tried"
        request.node.user_properties.append(
            (_TRIED, (fault, count, outcome))
        )  # goes with the report to where it ends

    return note


def keep_faults(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make soak` runs the tests that say what they have tried, and no others."""
    if long_form():
        faults = [item for item in items if "tried" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in faults])
        items[:] = faults


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table, in Markdown."""
    table: dict[tuple[str, str], int] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == _TRIED and report.when == "call":
                fault, count, outcome = value
                table[fault, outcome] = table.get((fault, outcome), 0) + count
    if table and long_form():
        terminalreporter.section("faults tried")
        terminalreporter.write_line("| fault | times tried | outcome |\n|---|---|---|")
        for (fault, outcome), count in table.items():
            terminalreporter.write_line(f"| {fault} | {count:,} | {outcome} |")
