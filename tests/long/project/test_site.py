"""`make docs`: the site builds without a warning, and has all pages, also as Markdown."""

from __future__ import annotations

import re
from pathlib import Path

from support.checkout import ROOT

DOCS = ROOT / "docs"


def test_every_page_is_in_it(site: Path) -> None:
    pages = [page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")]
    assert len(pages) > 50
    missing = [page for page in pages if not (site / f"{page}.html").exists()]
    assert missing == []


def test_pages_for_programs(site: Path) -> None:
    listed = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text())
    assert len(listed) == len(list(DOCS.rglob("*.md")))
    assert all((site / name).exists() for name in listed)
    assert "## fastpipe verify" in (site / "reference" / "command-line.md").read_text()


def test_links_to_files_lead_to_copies(site: Path) -> None:
    page = site / "architecture.html"
    copies = re.findall(r'href="(files/[^"#]+)"', page.read_text())
    assert len(copies) > 5
    assert all((site / copy).exists() for copy in copies)


def test_names_and_commands_have_entries(site: Path) -> None:
    loading = (site / "reference" / "api" / "loading.html").read_text()
    assert 'id="fastpipe.loader"' in loading
    assert 'id="fastpipe.Loader.state_dict"' in loading
    commands = (site / "reference" / "command-line.html").read_text()
    assert "<h2>fastpipe cache clear" in commands
    assert "--classes-from" in commands


def test_only_the_site_is_published(site: Path) -> None:
    """Sphinx keeps a cache of its own."""
    assert not (site / ".doctrees").exists()
    assert not list(site.rglob("*.doctree"))


def test_links_of_pages_for_programs_work(site: Path) -> None:
    """Also those of the README.md and other files that pages link to."""
    assert (site / "files" / "CONTRIBUTING.md").exists()
    dead = []
    num_links = 0
    for page in site.rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
            if not re.match(r"[a-z]+:", target):
                num_links += 1
                if not (page.parent / target).exists():
                    dead.append(f"{page.relative_to(site)}: {target}")
    assert num_links > 100
    assert dead == []


def test_pages_of_the_api_have_their_text_for_programs(site: Path) -> None:
    for page in (site / "reference" / "api").glob("*.md"):
        assert "eval-rst" not in page.read_text()
    loading = (site / "reference" / "api" / "loading.md").read_text()
    assert "fastpipe.loader(data" in loading
    assert "batch_size:" in loading
    assert "## fastpipe.Loader.state_dict" in loading
    assert "int([x]) -> integer" not in loading  # of a value of a class, not of the class
