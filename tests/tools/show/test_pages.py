"""`fastpipe docs`: the pages that a user can read, found by their names and titles."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from support.checkout import ROOT
from support.programs.cli_run import failed, succeeded

from fastpipe.tools.cli.markdown import print_markdown
from fastpipe.tools.show.pages import find_pages, find_sections, list_pages


def test_each_page_has_a_name_of_its_own() -> None:
    pages = list_pages()
    names = [page.name for page in pages]
    assert len(set(names)) == len(names) > 40
    assert {"tutorial", "sources", "faq", "augmentation"} <= set(names)
    assert not any(page.part in ("development", "reference/api") for page in pages)
    for page in pages:
        assert page.text().startswith(f"# {page.title}\n")
        assert "\n:::" not in page.text(), page.name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("subset", "subset"),
        ("Patches of large images", "large-images"),
        ("spot inst", "spot"),
        ("how-to/spot", "spot"),
        ("../reference/loader.md#devices", "loader"),
    ],
)
def test_a_page_is_found_by_its_name_or_title(words: str, name: str) -> None:
    assert [page.name for page in find_pages(words)] == [name]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("licence", "faq"),
        ("windows", "install"),
        ("lightning", "recipes"),
        ("endpoint S3", "remote"),
        ("BCE", "faq"),
        ("bfloat16", "recipes"),
    ],
)
def test_words_are_found_in_the_text(words: str, page: str) -> None:
    sections = find_sections(words)
    assert page in [section.page.name for section in sections[:12]]
    for section in sections:
        assert all(word in section.text.casefold() for word in words.casefold().split())


def test_a_comment_in_a_program_is_no_heading() -> None:
    headings = [section.heading for section in find_sections("fastpipe")]
    assert not any("once: fastpipe pack" in heading for heading in headings)


def test_the_command() -> None:
    assert "large-images      Patches of large images" in succeeded("docs")
    assert succeeded("docs", "faq") == (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    assert succeeded("docs", "raw", "bytes").startswith("# The raw bytes of one image\n")
    several = succeeded("docs", "from")
    assert "from-dali" in several
    assert several.endswith("fastpipe docs PAGE shows a page\n")
    assert "Which licence" in succeeded("docs", "licence")
    assert succeeded("docs", "  ") == succeeded("docs")
    assert "no page has 'zzzz'" in failed(2, "docs", "zzzz")


def test_long_lines_of_code_stay_whole_in_a_terminal() -> None:
    shown = io.StringIO()
    console = Console(width=40, file=shown, force_terminal=True)
    line = "loader = fastpipe.loader('data/train', batch_size=256)  # one line"
    print_markdown(console, f"# Title\n\n```python\n{line}\n```\n", 40)
    assert line in shown.getvalue()
