"""Tests of sources as people have them -> the table of docs/reference/sources-table.md, one row a test."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

_TESTS = Path(__file__).parents[2] / "sources" / "people"
TABLE = Path(__file__).parents[3] / "docs" / "reference" / "sources-table.md"
_BEGIN = """# Sources as people have them, and what becomes of each

Each row is a test in `tests/sources/people`, which checks the values that are packed or loaded. "Option" is what you
pass to `fastpipe pack` to settle it; if it is empty, nothing has to be passed. What is assumed is shown at the end of a
pack, in a frame.

| source | what becomes of it | option |
|---|---|---|
"""
_Test = TypeVar("_Test", bound=Callable[..., None])


class Row(NamedTuple):
    """A row of the table, in Markdown."""

    source: str
    result: str
    option: str


def becomes(source: str, result: str, option: str = "") -> Callable[[_Test], _Test]:
    """Marks the test that checks it. A test may have several."""

    def mark(test: _Test) -> _Test:
        rows = [Row(source, result, option), *getattr(test, "source_rows", ())]
        test.source_rows = rows  # type: ignore[attr-defined]
        return test

    return mark


def rows() -> Iterator[Row]:
    """Of all tests, in the order of their files and lines."""
    for file in sorted(_TESTS.glob("test_*.py")):
        module = importlib.import_module(file.stem)
        for each in vars(module).values():
            yield from getattr(each, "source_rows", ())


def table() -> str:
    text = _BEGIN
    for row in rows():
        option = row.option
        # A pattern in it would be read as Markdown.
        if "[" in option and "`" not in option:
            option = f"`{option}`"
        cells = [cell.replace("|", "\\|") for cell in (row.source, row.result, option)]
        text += f"| {' | '.join(cells)} |\n"
    return text
