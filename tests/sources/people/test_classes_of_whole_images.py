"""COCO's files whose annotations have a category and no place: the classes are those of whole images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import photos, write

import fastpipe

CATEGORIES = [{"id": 0, "name": "worm"}, {"id": 2, "name": "duck"}]


def packed_with(tmp_path: Path, annotations: list[dict[str, Any]]) -> fastpipe.Dataset:
    source = photos(tmp_path / "src", "train/worms/a.jpg", "train/ducks/b.jpg", "train/ducks/c.jpg")
    images = [
        {"id": number, "file_name": f"train/{name}.jpg", "width": 40, "height": 30}
        for number, name in enumerate(["worms/a", "ducks/b", "ducks/c"], 1)
    ]
    content = {"images": images, "annotations": annotations, "categories": CATEGORIES}
    write(source / "train.json", json.dumps(content))
    fastpipe.pack(source / "train.json", tmp_path / "packed")
    return fastpipe.open(tmp_path / "packed")


@becomes("COCO with a category_id for each image and no bbox (iNaturalist)", "the labels")
def test_a_category_for_each_image(tmp_path: Path) -> None:
    annotations = [
        {"id": 7, "image_id": 1, "category_id": 0},
        {"id": 8, "image_id": 2, "category_id": 2},
    ]
    data = packed_with(tmp_path, annotations)
    labels = dict(zip(data["key"], data["label"], strict=True))
    assert labels == {"train/worms/a.jpg": 0, "train/ducks/b.jpg": 2, "train/ducks/c.jpg": -1}
    assert [data.classes[0], data.classes[2]] == ["worm", "duck"]
    assert not data.fields


@becomes("the same with several categories for an image", "a field of classes")
def test_several_categories_for_an_image(tmp_path: Path) -> None:
    annotations = [
        {"id": 7, "image_id": 1, "category_id": 2},
        {"id": 8, "image_id": 1, "category_id": 0},
        {"id": 9, "image_id": 2, "category_id": 2},
    ]
    data = packed_with(tmp_path, annotations)
    categories = dict(zip(data["key"], data["categories"], strict=True))
    assert {key: sorted(numbers) for key, numbers in categories.items()} == {
        "train/worms/a.jpg": [0, 1],
        "train/ducks/b.jpg": [1],
        "train/ducks/c.jpg": [],
    }
    assert data.fields["categories"].names == ("worm", "duck")


def test_a_category_that_does_not_exist_rejects_its_image(tmp_path: Path) -> None:
    annotations = [{"id": 7, "image_id": 1, "category_id": 5}]
    data = packed_with(tmp_path, annotations)
    assert sorted(data["key"]) == ["train/ducks/b.jpg", "train/ducks/c.jpg"]


@becomes("YOLO with `hand.yaml` in place of `data.yaml`", "names and keypoints as it says")
@pytest.mark.parametrize("shape", [[2, 3], [4, 2]])
def test_yaml_of_another_name(tmp_path: Path, shape: list[int]) -> None:
    source = pose(tmp_path, shape)
    write(source / "hand.yaml", f"names: [hand]\nkpt_shape: {shape}\n")
    assumed = fastpipe.pack(source, tmp_path / "packed").assumed
    assert assumed == ()
    data = fastpipe.open(tmp_path / "packed")
    assert data.fields["boxes"].names == ("hand",)
    assert data["keypoints"][0].shape == (1, shape[0], 3)
    assert data["boxes"][0].tolist() == [[10, 7.5, 30, 22.5]]


@becomes("YOLO's keypoints without a yaml", "refused, with the lines to write")
@pytest.mark.parametrize("shape", [[2, 3], [5, 2], [17, 3]])
def test_keypoints_without_yaml(tmp_path: Path, shape: list[int]) -> None:
    with pytest.raises(fastpipe.PackError, match=r"they are keypoints, and no data\.yaml"):
        fastpipe.pack(pose(tmp_path, shape), tmp_path / "packed")


def pose(tmp_path: Path, shape: list[int]) -> Path:
    """Two photos with a box in the middle, and points in the box."""
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg")
    num_points, num_dims = shape
    points = [["0.4", "0.6", "2"][:num_dims]] * num_points
    line = " ".join(["0 0.5 0.5 0.5 0.5", *(word for point in points for word in point)])
    for name in "ab":
        write(source / f"labels/{name}.txt", line)
    return source
