"""Markdown -> what a terminal shows."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.text import Text


class _WholeLines(CodeBlock):
    """A block of code whose long lines are not broken, so that copies of them run."""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        for line in str(self.text).rstrip().split("\n"):
            code = Text(f"    {line}", style="cyan", no_wrap=True, overflow="ignore")
            yield code


class _PageMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _WholeLines,
        "code_block": _WholeLines,
    }


def print_markdown(console: Console, text: str, width: int) -> None:
    """Prints Markdown with whole lines of code, and with the targets of links in brackets."""
    console.print(_PageMarkdown(text, hyperlinks=False), width=width, crop=False)
