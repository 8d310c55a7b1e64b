"""Tables of all commands for a terminal, and numbers with their nouns."""

from __future__ import annotations

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table


def new_table(*columns: str, title: str | None = None) -> Table:
    """An empty table: the first column is a name, the others are figures."""
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table


def show(console: Console, *parts: RenderableType) -> None:
    """Prints tables with an empty line after each."""
    for part in parts:
        console.print(part)
        console.print()


def count(number: int, word: str) -> str:
    """A number and its word: 1 file, 2 files, 3 classes."""
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}"
