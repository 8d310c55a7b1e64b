"""llms.txt and the pages as Markdown, which programs read in place of the site's HTML."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

SECTIONS = [
    "Tutorial",
    "How-to",
    "Reference",
    "Explanation",
    "Questions and promises",
    "Development",
]
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$", re.MULTILINE)


def test_sections_and_pages_have_the_order_of_the_navigation(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    pages = [page for _, page, _ in _ENTRY.findall(text)]
    assert pages[:3] == ["index.md", "install.md", "tutorial.md"]
    assert pages.index("how-to/own-labels.md") < pages.index("reference/api/loading.md")
    assert pages.index("explanation/order.md") < pages.index("architecture.md")


def test_every_entry_has_a_title_of_its_own_and_a_sentence(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    entries = _ENTRY.findall(text)
    assert len(entries) == text.count("\n- ")
    titles = Counter(title for title, _, _ in entries)
    assert [title for title, count in titles.items() if count > 1] == []
    assert all(sentence.endswith(".") for _, _, sentence in entries)


def test_pages_are_plain_markdown(site: Path) -> None:
    left = []
    for page in site.rglob("*.md"):
        if page.relative_to(site).parts[0] == "files":
            continue
        text = re.sub(r"^```(?!\{).*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        found = re.findall(r"^:{3,}.*|^```\{.*|^:[\w-]+: .*", text, flags=re.MULTILINE)
        left += [f"{page.relative_to(site)}: {line}" for line in found]
    assert left == []


def test_cards_are_a_list_of_links(site: Path) -> None:
    assert "\n- [Tutorial](tutorial.md): Ten minutes" in (site / "index.md").read_text()


def test_every_page_describes_itself_to_search_engines(site: Path) -> None:
    page = (site / "explanation" / "how-it-works.html").read_text()
    assert '<meta name="description" content="The way of a batch' in page
