"""The pages of the site -> llms.txt, which lists them as https://llmstxt.org says, and llms-full.txt."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# A sentence about each page, by its name.
DESCRIPTIONS: dict[str, str] = tomllib.loads(
    (Path(__file__).parent / "page_descriptions.toml").read_text(encoding="utf-8")
)
_HEAD = """\
# fastpipe

> An input pipeline for training image models with PyTorch: pack images once, then C++ threads load
> batches of random crops. `import fastpipe`; installing: install.md.
"""
# Pages that stand alone in the navigation: those before the first section, and those after it.
_FIRST_SECTION = "Tutorial"
_OTHER_SECTION = "Questions and promises"


class Section(NamedTuple):
    title: str
    pages: list[str]  # in the order of the navigation


def find_sections(contents: Mapping[str, Sequence[str]], titles: Mapping[str, str]) -> list[Section]:
    """The sections of the site, as its navigation has them.

    Args:
        contents: the pages in each page's tables of contents, by the name of the page.
        titles: of all pages, by name.
    """
    first = Section(_FIRST_SECTION, ["index"])
    others = Section(_OTHER_SECTION, [])
    sections = [first]
    for name in contents["index"]:
        pages = list(_list_below(name, contents))
        if len(pages) > 1:
            sections.append(Section(titles[name], pages))
        elif len(sections) == 1:
            first.pages.append(name)
        else:
            others.pages.append(name)
    # The last section is for those who change fastpipe.
    return [*sections[:-1], others, sections[-1]]


def _list_below(name: str, contents: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield name
    for child in contents.get(name, ()):
        yield from _list_below(child, contents)


def list_pages(sections: Sequence[Section], titles: Mapping[str, str]) -> str:
    """The text of llms.txt."""
    lines = [_HEAD]
    for section in sections:
        lines.append(f"## {section.title}\n")
        for page in section.pages:
            lines.append(f"- [{titles[page]}]({page}.md): {DESCRIPTIONS[page]}")
        lines.append("")
    return "\n".join(lines)
