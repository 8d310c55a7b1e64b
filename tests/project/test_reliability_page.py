"""docs/reliability.md: every promise names tests that are there, and its table has all that the tests say they try."""

from __future__ import annotations

import ast
import re

import pytest
from support.checkout import TESTS

PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()
PROMISES = re.findall(r"^- (.*(?:\n  .*)*)", PAGE.partition("## What is not promised")[0], re.MULTILINE)


def test_there_are_promises() -> None:
    assert len(PROMISES) > 30


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[:40])
def test_a_promise_names_its_tests(promise: str) -> None:
    named = re.findall(r"`(test_\w+)::(test_\w+)`", promise)
    assert named, "a promise ends with the tests that hold it"
    for file, test in named:
        found = list(TESTS.rglob(f"{file}.py"))
        assert len(found) == 1, file
        assert f"def {test}(" in found[0].read_text(), f"{file} has no {test}"


def tried() -> set[str]:
    """The faults that tests name to the fixture `tried`."""
    calls = (
        node
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tried"
    )
    return {call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)}


def test_the_table_has_what_is_tried() -> None:
    rows = {cells[0] for cells in re.findall(r"^\| (.*?) \| ([\d,]+) \| (.*?) \|$", PAGE, re.MULTILINE)}
    assert tried() - rows == set(), "run `make soak` and put its table into docs/reliability.md"
