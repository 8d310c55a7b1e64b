"""KITTI's label files, as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

REST = "1.57 1.73 4.15 1.65 1.73 46.70 -1.59"
CAR = f"Car 0.50 1 1.55 4.00 5.50 12.25 20.00 {REST}\n"
WALKER = f"Pedestrian 0.00 0 -0.2 1.00 2.00 3.00 4.00 {REST}\n"
NONE = "DontCare -1 -1 -10 5.00 6.00 7.00 8.00 -1 -1 -1 -1000 -1000 -1000 -10\n"


@becomes(
    "KITTI: `training/image_2` beside `training/label_2/*.txt`",
    "boxes of the left camera; DontCare and boxes in space are left out and counted",
    "--split training",
)
def test_kitti(tmp_path: Path) -> None:
    names = "training/image_2/{}.png", "training/image_3/{}.png", "testing/image_2/{}.png"
    source = photos(tmp_path / "src", *(name.format(number) for name in names for number in "012"))
    write(source / "training/label_2/0.txt", CAR + NONE)
    write(source / "training/label_2/1.txt", WALKER)
    write(source / "training/label_2/2.txt", "")
    write(source / "training/calib/0.txt", "P0: 1 2 3\n")
    with pytest.raises(PackError, match="has the splits testing, training; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    for root, split in ((source, "training"), (source / "training", None)):
        boxes, summary = packed_objects(root, tmp_path / "packed", split=split)
        assert boxes == {
            "image_2/0.png": [("Car", [4, 5.5, 12.25, 20])],
            "image_2/1.png": [("Pedestrian", [1, 2, 3, 4])],
            "image_2/2.png": [],
        }
        attributes = values(tmp_path, "attributes")["image_2/0.png"]
        assert attributes == [{"truncated": 0.5, "occluded": 1, "alpha": 1.55}]
        texts = assumed(summary)
        assert texts[0] == (
            "left out, because they give no box: boxes in space (dimensions, location, rotation_y) (2), "
            "regions of DontCare (1)"
        )
        assert "not read, beside the images: calib/, image_3/" in texts[1]


@becomes("KITTI: labels of `label_2` without `image_2`", "refused")
@becomes("KITTI: a damaged line", "the image is rejected with its number")
def test_what_cannot_be_read(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "image_2/0.png", "image_2/1.png", "image_3/2.png")
    write(source / "label_2/0.txt", CAR)
    write(source / "label_2/1.txt", CAR + "Car 0.5 1\n")
    write(source / "label_2/2.txt", CAR)
    summary = fastpipe.pack(source, tmp_path / "packed")
    reasons = dict(summary.tally.rejected)
    assert "line 2: expected a type and 14 numbers" in reasons["image_2/1.png"]
    assert "no image 2 in " in reasons["2.txt"]
    (source / "image_2/0.png").unlink()
    (source / "image_2/1.png").unlink()
    with pytest.raises(PackError, match="no image 2 in "):
        fastpipe.pack(source, tmp_path / "none")
