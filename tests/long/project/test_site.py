"""`make docs`: the site builds without a warning, and has all pages, also as Markdown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, DOCS / "site" / "build.py", folder]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


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
