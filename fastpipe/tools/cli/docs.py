"""`fastpipe docs`: a page of the documentation -> the terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from fastpipe.errors import ConfigError
from fastpipe.tools.cli.console import exit_codes, out
from fastpipe.tools.show.pages import (
    Page,
    Section,
    find_pages,
    find_sections,
    list_pages,
)

# Longer lines are hard to read.
_MAX_WIDTH = 100
_MAX_SECTIONS = 12
_MAIN = "main pages"
# Options of less, if the user has set none, as git sets them: end at once if the page fits the
# screen, show colours, and leave the text there.
_LESS = "FRX"


def _complete_page(incomplete: str) -> list[tuple[str, str]]:
    """Names of pages for the shell, with their titles."""
    pages = list_pages()
    return [(page.name, page.title) for page in pages if incomplete in page.name]


def docs(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAGE",
            help="The name of a page, or words: of its title, else of its text. Without it, all "
            "pages are listed.",
            autocompletion=_complete_page,
        ),
    ] = None,
) -> None:
    """Show a page of the documentation, or find words in the pages.

    In a terminal it opens in a pager, in which / searches and q ends. In a pipe or a file it is
    Markdown.
    """
    with exit_codes():
        wanted = " ".join(words or []).strip()
        if not wanted:
            out.print(_page_table(list_pages()))
            out.print(
                "fastpipe docs PAGE shows a page, fastpipe docs WORDS finds words"
            )
            return
        pages = find_pages(wanted)
        if len(pages) == 1:
            _show(pages[0])
            return
        sections = find_sections(wanted)
        if not pages and not sections:
            raise ConfigError(
                f"no page has {wanted!r}. `fastpipe docs` lists all pages"
            )
        out.print(_result_table(pages, sections[:_MAX_SECTIONS]))
        out.print("fastpipe docs PAGE shows a page")


def _show(page: Page) -> None:
    text = page.text()
    if not out.is_terminal:
        typer.echo(text, nl=False)
        return
    from fastpipe.tools.cli.markdown import print_markdown  # takes 20 ms

    os.environ.setdefault("LESS", _LESS)
    with out.pager(styles=True):
        print_markdown(out, text, min(out.width, _MAX_WIDTH))


def _page_table(pages: Sequence[Page]) -> RenderableType:
    """All pages, by folder."""
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


def _result_table(pages: Sequence[Page], sections: Sequence[Section]) -> RenderableType:
    """Pages whose titles have the words, and sections that have them."""
    table = Table.grid("page", "title or section", padding=(0, 2))
    for page in pages:
        table.add_row(page.name, page.title, style="bold")
    for section in sections:
        table.add_row(section.page.name, section.heading)
    return table
