"""docs/reference/sources-table.md has a row for each test of sources as people have them."""

from __future__ import annotations

from support.sources.becomes import TABLE, rows, rows_by_group, table
from support.sources.groups import GROUPS


def test_the_table_is_that_of_the_tests() -> None:
    wanted = table()
    assert TABLE.read_text() == wanted, "run: .venv/bin/python scripts/write_sources_table.py"


def test_a_source_has_one_row() -> None:
    sources = [each.source for each in rows()]
    assert len(set(sources)) == len(sources)


def test_every_group_has_rows() -> None:
    """A group without any names files that are not there."""
    assert set(GROUPS) <= set(rows_by_group())


def test_the_page_begins_with_its_contents() -> None:
    begin = TABLE.read_text().partition("\n## ")[0]
    assert "Ctrl+F" in begin
    assert [title for title in rows_by_group() if f"- [{title}](#" not in begin] == []
