"""docs/development/reliability.md: promises name tests that exist, and its table has all faults that tests try."""

from __future__ import annotations

import ast
import re

from support.checkout import TESTS

PAGE = (TESTS.parent / "docs" / "development" / "reliability.md").read_text()
PROMISES = re.findall(
    r"^- (.*(?:\n  .*)*)", PAGE.partition("## What is not promised")[0], re.MULTILINE
)


def test_there_are_promises() -> None:
    assert len(PROMISES) > 30


def test_promises_name_their_tests() -> None:
    """Each ends with the tests that hold it, of either tier."""
    files: dict[str, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        files.setdefault(path.stem, []).append(path.read_text())
    missing = []
    for promise in PROMISES:
        named = re.findall(r"`(test_\w+)::(test_\w+)`", promise)
        assert named, f"{promise}: expected the tests that hold it at its end"
        missing += [
            f"{file}::{test}" for file, test in named if not is_test(files.get(file, []), test)
        ]
    assert missing == [], "the page names tests that are not there"


def is_test(texts: list[str], name: str) -> bool:
    """Whether a file of which there is one has a test of that name."""
    return len(texts) == 1 and f"def {name}(" in texts[0]


def tried() -> set[str]:
    """The faults that tests name to the fixture `tried`."""
    texts = [path.read_text() for path in TESTS.rglob("test_*.py")]
    calls = (
        node
        for text in texts
        if "tried(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "tried"
    )
    return {
        call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)
    }


def test_the_table_has_what_is_tried() -> None:
    rows = {
        cells[0] for cells in re.findall(r"^\| (.*?) \| ([\d,]+) \| (.*?) \|$", PAGE, re.MULTILINE)
    }
    assert tried() - rows == set(), (
        "run `make soak` and put its table into docs/development/reliability.md"
    )
