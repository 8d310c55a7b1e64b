"""The pages of the documentation, which `fastpipe docs` shows: those of a wheel, or of the checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_PACKAGE = Path(__file__).resolve().parents[2]
# Pages that only the site has as text, because it makes them of docstrings and commands; and the
# one for contributors.
_LEFT_OUT = ("index", "command-line", "architecture")
# In the order of the site; "" has the main pages.
_PARTS = ("", "how-to", "reference", "explanation")
# Lines that arrange blocks of a page side by side on the site.
_DIRECTIVE = re.compile(r"^:{3,}.*\n?", re.MULTILINE)


# Also a line of code may begin with "# ", but not with two.
_HEADING = re.compile(r"^(?=#{2,} |# .*\n\n)", re.MULTILINE)


class Page(NamedTuple):
    """A page of the documentation."""

    # The name of its file, such as "large-images".
    name: str
    title: str
    # The folder that has it, such as "how-to"; "" for the main pages.
    part: str
    file: Path

    def text(self) -> str:
        """The page as Markdown."""
        return _DIRECTIVE.sub("", self.file.read_text(encoding="utf-8"))


class Section(NamedTuple):
    """A heading of a page, and the text below it."""

    page: Page
    heading: str
    # With the heading.
    text: str


def list_pages() -> list[Page]:
    """All pages for users, in the order of the parts."""
    folder = _PACKAGE / "docs"
    if not folder.is_dir():
        folder = _PACKAGE.parent / "docs"
    pages: list[Page] = []
    for file in sorted(folder.rglob("*.md")):
        part = "/".join(file.relative_to(folder).parts[:-1])
        if file.stem in _LEFT_OUT or part not in _PARTS:
            continue
        with open(file, encoding="utf-8") as lines:
            title = lines.readline().removeprefix("# ").strip()
        pages.append(Page(file.stem, title, part, file))
    return sorted(pages, key=lambda page: _PARTS.index(page.part))


def find_pages(words: str) -> list[Page]:
    """The page with that name or title; else all that have the words in one of them.

    `words`: may also be a path, as links of pages are: ../reference/loader.md#devices.
    """
    pages = list_pages()
    wanted = words.casefold()
    name = PurePosixPath(wanted.partition("#")[0]).name.removesuffix(".md")
    for page in pages:
        if page.name == name or page.title.casefold() == wanted:
            return [page]
    return [
        page for page in pages if wanted in page.name or wanted in page.title.casefold()
    ]


def find_sections(words: str) -> list[Section]:
    """The sections of pages that have all of the words, best first."""
    wanted = words.casefold().split()
    ranked: list[tuple[int, int, Section]] = []
    for page in list_pages():
        for section in _sections_of(page):
            text = section.text.casefold()
            heading = section.heading.casefold()
            counts = [text.count(word) for word in wanted]
            if all(counts):
                in_heading = sum(word in heading for word in wanted)
                ranked.append((in_heading, min(counts), section))
    ranked.sort(key=lambda entry: entry[:2], reverse=True)
    return [section for _, _, section in ranked]


def _sections_of(page: Page) -> Iterator[Section]:
    for part in _HEADING.split(page.text())[1:]:
        heading, _, _ = part.partition("\n")
        yield Section(page, heading.strip("# `"), part)
