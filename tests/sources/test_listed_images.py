"""Whether a table lists the pictures of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpipe.sources.tables.listed_images import lists_images

PICTURES = ["a1.jpg", "b2.jpg", "c3.png"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "path,label\nimages/a1.jpg,cat\nb2.jpg,dog\n", True),
        ("a.csv", "id;label\na1;cat\nb2;dog\n", True),
        ("a.csv", "path,label\nC:\\data\\a1.jpg,cat\n", True),
        ("a.csv", "path,label\na1.jpg,cat\nx.jpg,dog\n", True),
        ("a.csv", "path,label\na1.jpg,cat\nx.jpg,dog\ny.jpg,dog\n", False),
        ("a.csv", "name,id\ncat,0\ndog,1\n", False),
        ("a.csv", "path,label\n", False),
        ("a.csv", "", False),
        ("a.txt", "a1.jpg cat\nb2.jpg dog\n", True),
        ("a.jsonl", '{"file": "a1.jpg"}\n{"file": "x/b2.jpg"}\n', True),
        ("a.jsonl", '{"file": 5}\n', False),
    ],
)
def test_tables_that_name_pictures(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    (tmp_path / name).write_text(text)
    assert lists_images(tmp_path / name, PICTURES) is expected


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    assert not lists_images(tmp_path / "a.csv", PICTURES)
