"""Sphinx's directives in a page -> plain Markdown, for the copies of the pages that programs read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

_CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
_CARD = re.compile(
    r"^:::\{grid-item-card\} (?P<title>.+)\n"
    r"(?P<options>(?::[\w-]+:.*\n)*)\n"
    r"(?P<text>[\s\S]*?)\n"
    r":::\n\n?",
    re.MULTILINE,
)
# The beginning of a grid or of a cell with its options, or the end of one.
_GRID_LINES = re.compile(r"^:{3,}\{grid(?:-item)?\}.*\n(?::[\w-]+:.*\n)*\n*|^:{3,}\n", re.MULTILINE)


def without_directives(markdown: str, page: str, titles: Mapping[str, str]) -> str:
    """The page without Sphinx's directives.

    Cards become a list of links, cells of a grid follow one another, and a table of contents is a
    list of its pages.

    Args:
        markdown: of the page.
        page: its name, such as "how-to/index".
        titles: of all pages, by name.
    """

    def list_contents(contents: re.Match[str]) -> str:
        return _list_contents(contents[1], page, titles)

    markdown = _TOCTREE.sub(list_contents, markdown)
    pieces = _CODE.split(markdown)
    for place in range(0, len(pieces), 2):  # code is left alone
        cards_as_list = _CARD.sub(_describe_card, pieces[place])
        pieces[place] = _GRID_LINES.sub("", cards_as_list)
    return "".join(pieces)


def _describe_card(card: re.Match[str]) -> str:
    text = " ".join(card["text"].split())
    link = re.search(r"^:link: (.+)$", card["options"], re.MULTILINE)
    if link is None:
        return f"- {card['title']}: {text}\n"
    return f"- [{card['title']}]({link[1]}.md): {text}\n"


def _list_contents(contents: str, page: str, titles: Mapping[str, str]) -> str:
    """The pages of a toctree as a list; nothing, if the page does not show it."""
    lines = []
    for line in contents.splitlines():
        if line == ":hidden:":
            return ""
        if line.startswith(":caption: "):
            lines.append(f"**{line.removeprefix(':caption: ')}**\n")
        elif line and not line.startswith(":"):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(page), line))
            lines.append(f"- [{titles[name]}]({line}.md)")
    return "\n".join(lines) + "\n"
