"""WIDER FACE's lists of boxes, as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

TRAIN = """0--Parade/0_Parade_1.jpg
2
5 8 20 15 1 0 0 0 2 0
9 9 4 4 0 0 0 1 0 0
0--Parade/0_Parade_2.jpg
0
0 0 0 0 0 0 0 0 0 0
1--Hand/1_Hand_1.jpg
1
1 2 3 0 0 0 0 0 0 0
"""
VAL = "0--Parade/0_Parade_3.jpg\n1\n1 2 3 4 0 0 0 0 0 0\n"


@pytest.fixture
def wider(tmp_path: Path) -> Path:
    source = tmp_path / "wider"
    photos(source / "WIDER_train/images", "0--Parade/0_Parade_1.jpg", "0--Parade/0_Parade_2.jpg")
    photos(source / "WIDER_train/images", "1--Hand/1_Hand_1.jpg")
    photos(source / "WIDER_val/images", "0--Parade/0_Parade_3.jpg")
    photos(source / "WIDER_test/images", "0--Parade/0_Parade_4.jpg")
    write(source / "wider_face_split/wider_face_train_bbx_gt.txt", TRAIN)
    write(source / "wider_face_split/wider_face_val_bbx_gt.txt", VAL)
    write(source / "wider_face_split/wider_face_test_filelist.txt", "0--Parade/0_Parade_4.jpg\n")
    write(source / "wider_face_split/readme.txt", "a readme\n")
    return source


@becomes(
    "WIDER FACE: `WIDER_train/images`, `wider_face_split/wider_face_train_bbx_gt.txt`",
    "boxes of faces; images without a face are kept; invalid faces are counted",
    "--split train",
)
@becomes("WIDER FACE: its list of boxes", "the same")
def test_wider_face(wider: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(wider, tmp_path / "none")
    file = wider / "wider_face_split/wider_face_train_bbx_gt.txt"
    images = "WIDER_train/images"
    for root, options, folder in (
        (wider, {"split": "train"}, f"{images}/"),
        (file, {}, f"{images}/"),
        (file, {"image_root": wider / images}, ""),
    ):
        boxes, summary = packed_objects(root, tmp_path / "packed", **options)
        assert boxes == {
            f"{folder}0--Parade/0_Parade_1.jpg": [
                ("face", [5, 8, 25, 23]),
                ("face", [9, 9, 13, 13]),
            ],
            f"{folder}0--Parade/0_Parade_2.jpg": [],
            f"{folder}1--Hand/1_Hand_1.jpg": [],
        }
        texts = assumed(summary)
        assert texts[0] == "left out, because they give no box: faces without width or height (1)"
        assert texts[1].startswith("faces that are marked as invalid: 1; they are boxes like the")
        _, invalid = values(tmp_path, "attributes")[f"{folder}0--Parade/0_Parade_1.jpg"]
        assert invalid["invalid"] == 1


@becomes("WIDER FACE: a list whose lines are cut off, or whose images are gone", "refused")
def test_what_cannot_be_read(wider: Path, tmp_path: Path) -> None:
    file = wider / "wider_face_split/wider_face_val_bbx_gt.txt"
    write(file, VAL + "0--Parade/x.jpg\n3\n1 2 3 4\n")
    with pytest.raises(PackError, match=r"expected 3 faces of '0--Parade/x.jpg'"):
        fastpipe.pack(file, tmp_path / "none")
    # The picture of this name in another split is not taken.
    write(file, VAL.replace("_3", "_1"))
    with pytest.raises(PackError, match=r"none of its images, such as 0--Parade/0_Parade_1\.jpg"):
        fastpipe.pack(file, tmp_path / "none")
