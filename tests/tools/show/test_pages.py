"""`fastpipe docs`: the pages that a user can read, found by their names and titles."""

from __future__ import annotations

import pytest
from support.checkout import ROOT
from support.programs.cli_run import failed, succeeded

from fastpipe.errors import ConfigError
from fastpipe.tools.show.pages import find_page, list_pages


def test_each_page_has_a_name_of_its_own() -> None:
    pages = list_pages()
    names = [page.name for page in pages]
    assert len(set(names)) == len(names) > 40
    assert {"tutorial", "sources", "faq", "augmentation"} <= set(names)
    assert not any(page.part in ("development", "reference/api") for page in pages)
    for page in pages:
        assert page.text().startswith(f"# {page.title}\n")
        assert "\n:::" not in page.text(), page.name


def test_a_page_is_found_by_its_name_or_title() -> None:
    assert find_page("subset").name == "subset"
    assert find_page("Patches of large images").name == "large-images"
    assert find_page("spot inst").name == "spot"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sorces", r"no page has 'sorces' in its title; did you mean 'sources'\? `fastpipe docs`"),
        ("zzz", r"no page has 'zzz' in its title\. `fastpipe docs` lists all pages"),
        ("from", "several pages have 'from' in their titles: .*from-dali, from-ffcv"),
    ],
)
def test_words_that_name_no_page(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_page(words)


def test_the_command() -> None:
    assert "large-images      Patches of large images" in succeeded("docs")
    assert succeeded("docs", "faq") == (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    assert "no page has 'zzz' in its title" in failed(2, "docs", "zzz")
