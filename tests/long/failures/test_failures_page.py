"""docs/reference/failures.md has a whole section for each failure, and a test beside this one shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.checkout import ROOT

PAGE = (ROOT / "docs" / "reference" / "failures.md").read_text()
SECTIONS = dict(re.findall(r"^## (\d+\. .*)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))
PARTS = ("Symptom", "Cause", "See it", "With fastpipe", "If you stay with DataLoader")


def test_seventeen_sections_in_order() -> None:
    assert [int(title.partition(".")[0]) for title in SECTIONS] == list(range(1, 18))


@pytest.mark.parametrize("title", SECTIONS)
def test_every_section_has_its_parts(title: str) -> None:
    assert tuple(re.findall(r"^\*\*(.*?)\.\*\*", SECTIONS[title], re.MULTILINE)) == PARTS


def test_the_table_leads_to_the_sections() -> None:
    anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in SECTIONS]
    assert re.findall(r"^\| \[\d+\]\(#(.*?)\)", PAGE, re.MULTILINE) == anchors


def test_every_failure_is_shown() -> None:
    openings = [
        path.read_text().split('"""')[1] for path in Path(__file__).parent.glob("test_*.py")
    ]
    shown = [
        int(number)
        for opening in openings
        if opening.startswith("Failure")
        for number in _numbers(opening)
    ]
    assert sorted(shown) == list(range(1, 18))


def _numbers(opening: str) -> list[str]:
    return re.findall(r"\d+", opening.partition(":")[0])
