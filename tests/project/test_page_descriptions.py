"""Each page of the documentation has a sentence for llms.txt and for search engines."""

from __future__ import annotations

import tomllib

from support.checkout import ROOT

DOCS = ROOT / "docs"
FILE = DOCS / "site" / "page_descriptions.toml"


def test_each_page_has_a_sentence() -> None:
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    sentences = tomllib.loads(FILE.read_text())
    assert set(sentences) == pages, f"add a line to {FILE}"
    assert [name for name, sentence in sentences.items() if not sentence.endswith(".")] == []
