"""Checks of a machine and a dataset -> a table with one line per check."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table

from fastpipe.doctor import Check
from fastpipe.errors import readable


def doctor_table(checks: Sequence[Check]) -> RenderableType:
    """One line a check: what was found, the verdict, and what to do."""
    table = Table("check", "found", "verdict", "what to do", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    table.columns[1].overflow = table.columns[3].overflow = "fold"
    for check in checks:
        table.add_row(check.name, readable(check.found), check.verdict.value, readable(check.advice))
    return table
