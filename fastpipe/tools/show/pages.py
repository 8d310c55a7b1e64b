"""The pages of the documentation, which `fastpipe docs` shows: those of a wheel, or of the checkout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import ConfigError, did_you_mean

_PACKAGE = Path(__file__).resolve().parents[2]
# Pages that only the site has as text, because it makes them of docstrings and commands; and the
# one for contributors.
_LEFT_OUT = ("index", "command-line", "architecture")
# In the order of the site; "" has the main pages.
_PARTS = ("", "how-to", "reference", "explanation")
# Lines that arrange blocks of a page side by side on the site.
_DIRECTIVE = re.compile(r"^:{3,}.*\n?", re.MULTILINE)


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


def find_page(words: str) -> Page:
    """The page with that name or title. ConfigError: there is none, or several have the words."""
    pages = list_pages()
    wanted = words.casefold()
    matching = [page for page in pages if wanted in (page.name, page.title.casefold())]
    if not matching:
        matching = [
            page
            for page in pages
            if wanted in page.name or wanted in page.title.casefold()
        ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(page.name for page in matching)
        raise ConfigError(f"several pages have {words!r} in their titles: {names}")
    guess = did_you_mean(wanted, [page.name for page in pages])
    raise ConfigError(
        f"no page has {words!r} in its title{guess or '.'} `fastpipe docs` lists all pages"
    )
