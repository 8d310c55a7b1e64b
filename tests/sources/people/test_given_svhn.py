"""SVHN's digitStruct.json, as people have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, write

import fastpipe


def digit(label: float, left: float, top: float, width: float, height: float) -> dict[str, Any]:
    return {"height": height, "label": label, "left": left, "top": top, "width": width}


def svhn(root: Path) -> Path:
    for split in ("train", "test"):
        photos(root / split, "1.png", "2.png")
    digits = [digit(1.0, 2.0, 3.0, 8.0, 20.0), digit(10.0, 11.0, 3.0, 8.0, 20.0)]
    one = {"filename": "1.png", "boxes": digits}
    two = {"filename": "2.png", "boxes": [digit(5.0, -1.0, 25.0, 9.0, 8.0)]}
    write(root / "train/digitStruct.json", [one, two])
    write(root / "test/digitStruct.json", [{"filename": "2.png", "boxes": digits[:1]}])
    return root


@becomes(
    "SVHN: `train/1.png`, `train/digitStruct.json` (left, top, width, height, label)",
    "boxes, cut off at the edge, with the labels of the file; that label 10 is the digit 0 is said",
    "--split train",
)
def test_digits(tmp_path: Path) -> None:
    source = svhn(tmp_path / "svhn")
    for options in ({"split": "train"}, {}):
        root = source if options else source / "train/digitStruct.json"
        boxes, summary = packed_objects(root, tmp_path / "packed", **options)
        assert {Path(key).name: values for key, values in boxes.items()} == {
            "1.png": [("1", [2, 3, 10, 23]), ("0", [11, 3, 19, 23])],
            "2.png": [("5", [0, 25, 8, 30])],
        }
        assert assumed(summary)[1].startswith(
            "digits with the label 10: 1; in SVHN it is the digit 0"
        )
        data = fastpipe.open(tmp_path / "packed").with_fields(("key", "boxes"))
        numbers = {Path(row["key"]).name: row["boxes_labels"].tolist() for row in data}
        assert numbers == {"1.png": [1, 10], "2.png": [5]}


def test_label_of_no_digit(tmp_path: Path) -> None:
    root = photos(tmp_path / "train", "1.png")
    write(root / "digitStruct.json", [{"filename": "1.png", "boxes": [digit(11, 2, 3, 8, 20)]}])
    summary = fastpipe.pack(root, tmp_path / "packed", bad_boxes="drop")
    assert summary.tally.dropped_boxes == 1
