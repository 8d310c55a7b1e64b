"""JSON objects that say the classes of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import PackError


@becomes('`labels.json`: `{"a.jpg": "cat"}`', "the classes", "--image-root images")
@becomes(
    'Food-101\'s `train.json`: `{"apple_pie": ["apple_pie/1005649"]}`',
    "the classes",
    "--image-root images",
)
@becomes(
    'StyleGAN\'s `dataset.json`: `{"labels": [["a.jpg", 0]]}`', "the labels", "--image-root images"
)
@pytest.mark.parametrize(
    ("content", "classes"),
    [
        ({"x/a.jpg": "cat", "x/b.jpg": "dog"}, ["cat", "dog"]),
        ({"x/a.jpg": 0, "x/b.jpg": 2}, ["0", "2"]),
        ({"cat": ["x/a"], "dog": ["x/b"]}, ["cat", "dog"]),
        ({"labels": [["x/a.jpg", 6], ["x/b.jpg", 1]]}, ["6", "1"]),
        ({"labels": [["x/a.jpg", "cat"], ["x/b.jpg", None]], "other": 1}, ["cat", None]),
    ],
)
def test_classes_of_paths(tmp_path: Path, content: Any, classes: list[str | None]) -> None:
    root = photos(tmp_path / "images", "x/a.jpg", "x/b.jpg")
    file = write(tmp_path / "labels.json", content)
    summary = fastpipe.pack(file, tmp_path / "packed", image_root=root)
    assert labels(tmp_path) == dict(zip(["x/a.jpg", "x/b.jpg"], classes, strict=True))
    assert not summary.tally.rejected


def test_the_images_beside_a_mapping_name_the_command(tmp_path: Path) -> None:
    root = photos(tmp_path / "images", "photo_a.jpg", "photo_b.jpg")
    file = write(tmp_path / "labels.json", {"photo_a.jpg": "cat", "photo_b.jpg": "dog"})
    (text,) = assumed(fastpipe.pack(root, tmp_path / "packed"))
    assert f"fastpipe pack {file} DST --image-root {root}" in text


@becomes(
    '`splits.json`: `{"train": ["a.jpg"], "val": ["b.jpg"]}`',
    "the images of one split, without labels",
    "--split train",
)
def test_splits_of_paths(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    file = write(tmp_path / "splits.json", {"train": ["a.jpg"], "val": ["b.jpg"]})
    with pytest.raises(PackError, match=r"^split: "):
        fastpipe.pack(file, tmp_path / "packed")
    fastpipe.pack(file, tmp_path / "packed", split="train")
    assert labels(tmp_path) == {"a.jpg": None}


@pytest.mark.parametrize("content", [{"0": "cat"}, {"names": ["cat", "dog"]}, {"a.jpg": {"x": 1}}])
def test_other_objects(tmp_path: Path, content: Any) -> None:
    photos(tmp_path, "a.jpg")
    with pytest.raises(PackError, match="expected COCO's"):
        fastpipe.pack(write(tmp_path / "names.json", content), tmp_path / "packed")
