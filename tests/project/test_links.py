"""Links in the documents: each file, and each heading, that they point to is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.checkout import ROOT

DOCUMENTS = [
    path
    for path in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    if (ROOT / path).exists()
]


def headings(document: Path) -> set[str]:
    """The anchors that GitHub gives a document's headings, and those that stand in it."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    plain = [
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)).lower()
        for title in titles
    ]
    return {title.replace(" ", "-") for title in plain} | set(
        re.findall(r'<a (?:id|name)="([^"]+)"', text)
    )


def test_links_lead_somewhere() -> None:
    dead = []
    for name in DOCUMENTS:
        document = ROOT / name
        text = re.sub(
            r"^```.*?^```|`[^`\n]*`", "", document.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue  # to others
            path, _, anchor = target.partition("#")
            pointed = (document.parent / path).resolve() if path else document
            leads = pointed.exists() and (
                not anchor or pointed.suffix != ".md" or anchor in headings(pointed)
            )
            dead += [] if leads else [f"{name} links to {target}"]
    assert dead == []


def test_there_are_documents() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    assert {"README.md", "SECURITY.md", "docs/architecture.md"} <= set(DOCUMENTS)
