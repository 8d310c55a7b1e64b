"""Tests of sources as people have them -> the tables of docs/reference/sources-table.md, one row a test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from support.sources.groups import GROUPS, OTHER, group_of

_TESTS = Path(__file__).parents[2] / "sources" / "people"
TABLE = Path(__file__).parents[3] / "docs" / "reference" / "sources-table.md"
_BEGIN = """# Common layouts of data, and how pack reads them

To find your data, search this page (Ctrl+F) for the name of a dataset or a tool, such as `CelebA` or `CVAT`,
for a file, such as `data.yaml`, or for a word, such as "polygon". [Sources](sources.md) explains each kind of source.

"Option" is what you pass to `fastpipe pack`; if it is empty, nothing has to be passed. If `pack` has to assume
something, it says so at the end of the pack, in a frame. A test checks each row, with the values that are packed.

"""
_HEAD = """| layout | result | option |
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
    for _, row in _rows_of_files():
        yield row


def _rows_of_files() -> Iterator[tuple[str, Row]]:
    """The name of the file, and a row in it."""
    if str(_TESTS) not in sys.path:  # pytest puts it there if it runs a test of that folder
        sys.path.insert(0, str(_TESTS))
    for file in sorted(_TESTS.glob("test_*.py")):
        module = importlib.import_module(file.stem)
        for each in vars(module).values():
            for row in getattr(each, "source_rows", ()):
                yield file.stem, row


def rows_by_group() -> dict[str, list[Row]]:
    """The groups that have rows, in the order of the page."""
    groups: dict[str, list[Row]] = {title: [] for title in (*GROUPS, OTHER)}
    for file, row in _rows_of_files():
        groups[group_of(file)].append(row)
    return {title: rows for title, rows in groups.items() if rows}


def table() -> str:
    """The text of the page."""
    groups = rows_by_group()
    text = _BEGIN
    for title, rows in groups.items():
        anchor = title.lower().replace(" ", "-")
        text += f"- [{title}](#{anchor}): {len(rows)} layouts\n"
    for title, rows in groups.items():
        text += f"\n## {title}\n\n{_HEAD}"
        text += "".join(_write_row(row) for row in rows)
    return text


def _write_row(row: Row) -> str:
    option = row.option
    # A pattern in it would be read as Markdown.
    if "[" in option and "`" not in option:
        option = f"`{option}`"
    cells = [cell.replace("|", "\\|") for cell in (row.source, row.result, option)]
    return f"| {' | '.join(cells)} |\n"
