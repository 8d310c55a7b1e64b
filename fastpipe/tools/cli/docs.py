"""`fastpipe docs`: a page of the documentation -> the terminal."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from fastpipe.tools.cli.console import exit_codes, out
from fastpipe.tools.show.pages import Page, find_page, list_pages

# Longer lines are hard to read.
_MAX_WIDTH = 100
_MAIN = "main pages"
# Options of less, if the user has set none, as git sets them: end at once if the page fits the screen, show
# colours, and leave the text there.
_LESS = "FRX"


def _complete_page(incomplete: str) -> list[tuple[str, str]]:
    """Names of pages for the shell, with their titles."""
    pages = list_pages()
    return [(page.name, page.title) for page in pages if incomplete in page.name]


def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="PAGE",
            help="The name of a page, or words of its title. Without it, all pages are listed.",
            autocompletion=_complete_page,
        ),
    ] = None,
) -> None:
    """Show a page of the documentation.

    In a terminal it opens in a pager. In a pipe or a file it is Markdown.
    """
    from rich.markdown import Markdown  # the other commands need not wait for it

    with exit_codes():
        if page is None:
            out.print(_page_table(list_pages()))
            out.print("fastpipe docs PAGE shows a page")
            return
        text = find_page(page).text()
        if not out.is_terminal:
            typer.echo(text, nl=False)
            return
        # A theme without a background suits dark and light terminals.
        page_text = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
        os.environ.setdefault("LESS", _LESS)
        with out.pager(styles=True):
            out.print(page_text, width=min(out.width, _MAX_WIDTH))


def _page_table(pages: list[Page]) -> RenderableType:
    table = Table.grid("page", "title", padding=(0, 2))
    part = None
    for page in pages:
        if page.part != part:
            part = page.part
            if table.row_count:
                table.add_row()
            table.add_row(part or _MAIN, style="bold")
        table.add_row(f"  {page.name}", page.title)
    return table
