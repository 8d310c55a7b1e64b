"""BDD100K's and Scalabel's JSON, as people have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

SIDES = {"x1": 2.5, "y1": 3, "x2": 10, "y2": 12}
CAR = {"category": "car", "box2d": SIDES, "attributes": {"occluded": True, "truncated": False}}
LANE = {"category": "lane", "poly2d": [{"vertices": [[1, 2], [3, 4]], "closed": False}]}
WEATHER = {"weather": "clear", "scene": "highway"}


def frame(name: str, *labels: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "labels": list(labels), "attributes": WEATHER, **more}


@becomes(
    "BDD100K: `images/100k/train` beside `labels/*_train.json`, `labels/*_val.json`",
    "boxes; lanes and areas, and attributes of images, are left out and named",
    "--split train",
)
@pytest.mark.parametrize(
    "files", ["labels/bdd100k_labels_images_{}.json", "labels/det_20/det_{}.json"]
)
def test_bdd(tmp_path: Path, files: str) -> None:
    source = tmp_path / "bdd"
    photos(source / "images/100k/train", "a.jpg", "b.jpg")
    photos(source / "images/100k/val", "c.jpg", "a.jpg")
    train = [frame("a.jpg", CAR, LANE), {"name": "b.jpg"}]
    write(source / files.format("train"), train)
    write(source / files.format("val"), [frame("c.jpg", {**CAR, "category": "bus"})])
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    for root, options in (
        (source, {"split": "train"}),
        (source / files.format("train"), {}),
    ):
        boxes, summary = packed_objects(root, tmp_path / "packed", **options)
        assert boxes == {
            "images/100k/train/a.jpg": [("car", [2.5, 3, 10, 12])],
            "images/100k/train/b.jpg": [],
        }
        assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("bus", "car")
        assert values(tmp_path, "attributes")["images/100k/train/a.jpg"] == [{"occluded": True}]
        assert assumed(summary) == [
            "left out, because they give no box: polygons and lines (poly2d) (1)",
            "values of images that are not packed: scene, weather",
        ]


@becomes("Scalabel: `frames` in an object", "boxes")
@becomes("BDD100K: a label without a corner of its box", "the image is rejected")
def test_scalabel(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg")
    broken = {"category": "car", "box2d": {"x1": 1}}
    frames = [frame("a.jpg", CAR, size={"width": 40, "height": 30}), frame("b.jpg", broken)]
    write(source / "labels.json", {"frames": frames, "config": {"categories": [{"name": "car"}]}})
    summary = fastpipe.pack(source, tmp_path / "packed")
    ((path, reason),) = summary.tally.rejected
    assert path == "images/b.jpg"
    assert "expected a number, got None" in reason
    assert summary.info["samples"] == 1


def test_lists_beside_frames_are_no_images(tmp_path: Path) -> None:
    """Scalabel's own export has groups and a configuration beside the frames."""
    source = photos(tmp_path / "src", "a.jpg")
    groups = [{"name": "group", "frames": ["a.jpg"]}]
    content = {"frames": [frame("a.jpg", CAR)], "groups": groups, "config": {"categories": []}}
    write(source / "labels.json", content)
    boxes, _ = packed_objects(source / "labels.json", tmp_path / "packed")
    assert boxes == {"a.jpg": [("car", [2.5, 3, 10, 12])]}


def test_a_file_for_each_image_of_the_first_release(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg")
    content = {"name": "a", "frames": [{"timestamp": 10000, "objects": [CAR]}]}
    write(source / "a.json", content)
    with pytest.raises(PackError, match="as in BDD100K's first release, is not read"):
        fastpipe.pack(source / "a.json", tmp_path / "packed")
