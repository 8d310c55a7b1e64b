"""docs/reference/sources-table.md has a row for each test of sources as people have them."""

from __future__ import annotations

from support.sources.becomes import TABLE, rows, table


def test_the_table_is_that_of_the_tests() -> None:
    wanted = table()
    assert TABLE.read_text() == wanted, "run: .venv/bin/python scripts/write_sources_table.py"


def test_a_source_has_one_row() -> None:
    sources = [each.source for each in rows()]
    assert len(set(sources)) == len(sources)
