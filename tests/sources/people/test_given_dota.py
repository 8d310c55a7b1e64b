"""DOTA's label files, as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

HEADER = "imagesource:GoogleEarth\ngsd:0.14\n"
PLANE = "10.0 2.0 20.0 8.0 16.0 14.0 6.0 8.0 plane 0\n"
# It ends outside the image of 40 x 30.
SHIP = "30 20 45 20 45 35 30 35 large-ship 1\n"


@becomes(
    "DOTA: `images/` beside `labelTxt/`, with and without the lines `imagesource:` and `gsd:`",
    "the boxes around the rotated boxes, cut off at the edge; this is said",
)
@pytest.mark.parametrize("folder", ["labelTxt", "labelTxt-v1.0", "labels"])
def test_dota(tmp_path: Path, folder: str) -> None:
    source = photos(tmp_path / "src", "images/P0.png", "images/P1.png", "images/P2.png")
    write(source / folder / "P0.txt", HEADER + PLANE + SHIP)
    write(source / folder / "P1.txt", PLANE)
    write(source / folder / "P2.txt", HEADER)
    boxes, summary = packed_objects(source, tmp_path / "packed")
    assert boxes == {
        "images/P0.png": [("plane", [6, 2, 20, 14]), ("large-ship", [30, 20, 40, 30])],
        "images/P1.png": [("plane", [6, 2, 20, 14])],
        "images/P2.png": [],
    }
    assert assumed(summary) == [
        "boxes: those around rotated boxes (3), cut off at the edge of the image"
    ]
    difficult = values(tmp_path, "attributes")["images/P0.png"]
    assert difficult == [{"difficult": 0}, {"difficult": 1}]


@becomes("DOTA: `train/` and `val/`, each with `images/` and `labelTxt/`", "boxes", "--split val")
def test_splits(tmp_path: Path) -> None:
    for split in ("train", "val"):
        source = photos(tmp_path / "dota" / split, "images/P0.png")
        write(source / "labelTxt/P0.txt", HEADER + (PLANE if split == "train" else SHIP))
    boxes, _ = packed_objects(tmp_path / "dota", tmp_path / "packed", split="val")
    assert boxes == {"images/P0.png": [("large-ship", [30, 20, 40, 30])]}


def test_all_lines_of_a_header(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg")
    box = "2.0 3.0 20.0 3.0 20.0 30.0 2.0 30.0 plane 0\n"
    write(
        source / "labelTxt/a.txt", f"acquisition dates:2016-05-04\nimagesource:GoogleEarth\n{box}"
    )
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert boxes == {"images/a.jpg": [("plane", [2, 3, 20, 30])]}
