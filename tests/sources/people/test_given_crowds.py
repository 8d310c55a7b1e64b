"""CrowdHuman's and VisDrone's annotations, and Create ML's JSON, as people have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

PERSON = {
    "tag": "person",
    "hbox": [5, 1, 3, 3],
    "vbox": [3, 2, 8, 9],
    "fbox": [-5, 2, 15, 40],
    "extra": {"box_id": 0, "occ": 1},
}
CROWD = {**PERSON, "tag": "mask", "extra": {"ignore": 1}}


@becomes(
    "CrowdHuman: `Images/` beside `annotation_train.odgt`, `annotation_val.odgt`",
    "boxes of whole persons, cut off at the edge; this is said; regions to ignore are left out",
    "--split train",
)
def test_crowd_human(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "Images/273,c9.jpg", "Images/284,fa.jpg")
    for split, name in (("train", "273,c9"), ("val", "284,fa")):
        line = {"ID": name, "gtboxes": [PERSON, CROWD]}
        write(source / f"annotation_{split}.odgt", json.dumps(line) + "\n")
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    for root, options in ((source, {"split": "train"}), (source / "annotation_train.odgt", {})):
        boxes, summary = packed_objects(root, tmp_path / "packed", **options)
        assert boxes == {"Images/273,c9.jpg": [("person", [0, 2, 10, 30])]}
        texts = assumed(summary)
        assert texts[0] == "left out, because they give no box: regions to ignore (1)"
        assert texts[1].startswith("boxes: 1, of whole persons (fbox), also of their hidden parts")


@becomes(
    "VisDrone: `images/` beside `annotations/a.txt`",
    "boxes with its categories, numbered from pedestrian on; regions to ignore are left out and counted",
)
def test_visdrone(tmp_path: Path) -> None:
    source = photos(tmp_path / "VisDrone2019-DET-train", "images/a.jpg", "images/b.jpg")
    write(source / "annotations/a.txt", "2,3,8,9,1,4,0,2\n5,5,6,6,0,0,0,0\n")
    write(source / "annotations/b.txt", "1,2,3,4,1,1,1,0,\n")
    boxes, summary = packed_objects(source, tmp_path / "packed")
    assert boxes == {
        "images/a.jpg": [("car", [2, 3, 10, 12])],
        "images/b.jpg": [("pedestrian", [1, 2, 4, 6])],
    }
    names = fastpipe.open(tmp_path / "packed").fields["boxes"].names
    assert names[:4] == ("pedestrian", "people", "bicycle", "car")
    assert len(names) == 11
    assert values(tmp_path, "attributes")["images/a.jpg"] == [{"truncation": 0, "occlusion": 2}]
    assert assumed(summary) == ["left out, because they give no box: regions to ignore (1)"]


@becomes(
    "Create ML's JSON beside the images", "boxes around the centres that it writes; this is said"
)
def test_create_ml(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/a.jpg", "train/b.jpg")
    box = {"label": "dog", "coordinates": {"x": 10, "y": 12, "width": 8, "height": 6}}
    entries = [{"image": "a.jpg", "annotations": [box]}, {"image": "b.jpg", "annotations": []}]
    file = write(source / "train/_annotations.createml.json", entries)
    for root in (source / "train", file):
        boxes, summary = packed_objects(root, tmp_path / "packed")
        assert boxes == {"a.jpg": [("dog", [6, 9, 14, 15])], "b.jpg": []}
        assert assumed(summary) == [
            "boxes: 1; x and y are taken as the centre of a box, as Create ML does"
        ]
