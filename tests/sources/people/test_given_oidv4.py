"""Label files with a class and a box on each line, as the OIDv4 ToolKit writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, write

import fastpipe
from fastpipe.errors import PackError


@becomes(
    "OIDv4 ToolKit: `train/Apple/a.jpg` with `train/Apple/Label/a.txt`, a folder for each class",
    "boxes with their classes, which have the same numbers in all splits",
    "--split train",
)
def test_folders_of_classes(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src",
        "train/Apple/a.jpg",
        "train/Apple/b.jpg",
        "train/Orange juice/c.jpg",
        "validation/Orange juice/d.jpg",
    )
    write(source / "train/Apple/Label/a.txt", "Apple 2.5 3.25 9.0 8.0\nApple 0.0 0.0 40.0 30.0\n")
    write(source / "train/Apple/Label/b.txt", "Apple 1 2 3 4\n")
    write(source / "train/Orange juice/Label/c.txt", "Orange juice 5.5 6.0 7.0 8.0\n")
    write(source / "validation/Orange juice/Label/d.txt", "Orange juice 1.0 1.0 2.0 2.0\n")
    with pytest.raises(PackError, match="has the splits train, validation; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    boxes, summary = packed_objects(source, tmp_path / "packed", split="train")
    assert boxes == {
        "Apple/a.jpg": [("Apple", [2.5, 3.25, 9, 8]), ("Apple", [0, 0, 40, 30])],
        "Apple/b.jpg": [("Apple", [1, 2, 3, 4])],
        "Orange juice/c.jpg": [("Orange juice", [5.5, 6, 7, 8])],
    }
    assert assumed(summary) == []
    boxes, _ = packed_objects(source, tmp_path / "val", split="validation")
    assert boxes == {"Orange juice/d.jpg": [("Orange juice", [1, 1, 2, 2])]}
    names = fastpipe.open(tmp_path / "val").fields["boxes"].names
    assert names == fastpipe.open(tmp_path / "packed").fields["boxes"].names


def test_a_damaged_line(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "Apple/a.jpg", "Apple/b.jpg")
    write(source / "Apple/Label/a.txt", "Apple 1 2 3 4\n")
    write(source / "Apple/Label/b.txt", "Apple 1 2 3\n")
    summary = fastpipe.pack(source, tmp_path / "packed")
    ((path, reason),) = summary.tally.rejected
    assert path.endswith(("b.txt", "b.jpg"))
    assert "line 1: expected a class and left, top, right, bottom, got 'Apple 1 2 3'" in reason


@pytest.mark.parametrize(
    "line",
    [
        "a.jpg 1 2 3 4",  # the name of an image
        "Apple 9 2 3 4",  # a width, for it is below the left side
        "an apple and a pear",
        "Apple 0.5 1 2 3 4",  # a score before the box
    ],
)
def test_other_texts(tmp_path: Path, line: str) -> None:
    source = photos(tmp_path / "src", "Apple/a.jpg", "Pear/b.jpg")
    write(source / "Apple/Label/a.txt", f"{line}\n")
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert list(summary.info["fields"]) == []
