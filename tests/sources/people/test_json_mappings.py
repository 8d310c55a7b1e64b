"""JSON objects that say the classes of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, values, write

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


@pytest.mark.parametrize("content", [{"0": "cat"}, {"names": ["cat", "dog"]}, {"a.jpg": {}}])
def test_other_objects(tmp_path: Path, content: Any) -> None:
    photos(tmp_path, "a.jpg")
    with pytest.raises(PackError, match="expected COCO's"):
        fastpipe.pack(write(tmp_path / "names.json", content), tmp_path / "packed")


@becomes(
    'DiffusionDB: `part-000001/part-000001.json`, `{"a.png": {"p": "a cat", "st": 50}}`',
    "the folders are classes, and the first file is named; passed alone a field for each value",
    "SRC/part-000001/part-000001.json, then fastpipe add the others",
)
def test_values_of_paths(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "part-000001/a.png", "part-000001/b.png", "part-000002/c.png")
    first = write(
        source / "part-000001/part-000001.json",
        {"a.png": {"p": "a cat", "st": 50, "c": 7.5}, "b.png": {"p": "dogs", "st": 20, "c": 7.0}},
    )
    other = write(
        source / "part-000002/part-000002.json", {"c.png": {"p": "a cow", "st": 9, "c": 1.5}}
    )
    notices = assumed(fastpipe.pack(source, tmp_path / "none"))
    words = f"pass the first one, {first}, and then add the others: fastpipe add FILE DST"
    assert any(notice.endswith(words) for notice in notices)
    fastpipe.pack(first, tmp_path / "packed")
    expected = {"a.png": ["a cat", 50], "b.png": ["dogs", 20]}
    assert values(tmp_path, "p", "st") == expected
    fastpipe.add(other, tmp_path / "packed")
    assert values(tmp_path, "p", "st") == expected | {"c.png": ["a cow", 9]}


def test_an_entry_that_is_no_object(tmp_path: Path) -> None:
    photos(tmp_path, "a.png", "b.png")
    file = write(tmp_path / "p.json", {"a.png": {"p": "a cat"}, "b.png": 5})
    summary = fastpipe.pack(file, tmp_path / "packed")
    assert values(tmp_path, "p") == {"a.png": "a cat"}
    ((_, reason),) = summary.tally.rejected
    assert reason == "expected an object of values, got 5"
