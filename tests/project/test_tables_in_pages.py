"""Every row of a table in the pages stands in a table that has a head.

A row that a paragraph separates from its table is shown as plain text, with its bars.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checkout import ROOT

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def first_rows_without_a_head(text: str) -> list[int]:
    """The numbers of the lines that begin a table but have no line of dashes below."""
    lines = [*text.splitlines(), ""]
    found = []
    in_code = False
    previous = ""
    for number, line in enumerate(lines[:-1], start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        begins = line.startswith("|") and not previous.startswith("|")
        if begins and not in_code and not lines[number].startswith("|-"):
            found.append(number)
        previous = line
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_has_a_head(page: Path) -> None:
    assert first_rows_without_a_head(page.read_text()) == []


def test_a_row_apart_from_its_table_is_found() -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n\nA paragraph.\n\n| 3 | 4 |\n"
    assert first_rows_without_a_head(text) == [7]
