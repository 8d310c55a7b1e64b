"""Label Studio's JSON, as people have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.annotated import objects, packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, write

import fastpipe

SIZE = {"original_width": 40, "original_height": 20, "image_rotation": 0}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return photos(tmp_path / "src", "images/a.jpg", "images/b b.jpg", size=(40, 20))


def result(kind: str, value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "from_name": "label", "to_name": "image", **SIZE, "value": value, **more}


def rectangle(name: str, x: float = 10, **more: Any) -> dict[str, Any]:
    value = {"x": x, "y": 20, "width": 30, "height": 50, "rectanglelabels": [name]}
    return result("rectanglelabels", {**value, **more})


def annotation(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": 1, "result": list(results), "was_cancelled": False, **more}


def task(image: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {"id": 1, "data": {"image": image}, "annotations": list(annotations), "predictions": []}


@becomes(
    "Label Studio: its JSON beside `images/`, with the paths of uploads",
    "boxes with their names; images are found with and without the prefix of 8 digits",
)
@pytest.mark.parametrize(
    "written",
    [
        "/data/upload/3/9c8b7a6d-{}",
        "/data/local-files/?d=photos/{}",
        "s3://bucket/photos/{}",
        "https://host/some/{}?token=1",
        "C:\\photos\\{}",
    ],
)
def test_paths(two: Path, tmp_path: Path, written: str) -> None:
    name = "b b.jpg" if "\\" in written else "b%20b.jpg"
    tasks = [
        task(written.format("a.jpg"), annotation(rectangle("dog"))),
        task(written.format(name), annotation(rectangle("cat", 50))),
    ]
    file = write(two / "project-1.json", tasks)
    for root in (two, file):
        boxes, summary = packed_objects(root, tmp_path / "packed")
        assert boxes == {
            "images/a.jpg": [("dog", [4, 4, 16, 14])],
            "images/b b.jpg": [("cat", [20, 4, 32, 14])],
        }
        assert assumed(summary) == []


@becomes("Label Studio: the uploads, with their prefix", "each upload is an image")
def test_prefixes(tmp_path: Path) -> None:
    names = "11111111-a.jpg", "22222222-a.jpg"
    source = photos(tmp_path / "src", *names, size=(40, 20))
    tasks = [
        task(f"/data/upload/{number}/{name}", annotation(rectangle(str(number))))
        for number, name in enumerate(names)
    ]
    write(source / "export.json", tasks)
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert {name: pairs[0][0] for name, pairs in boxes.items()} == dict(
        zip(names, "01", strict=True)
    )
    for name in names:
        (source / name).unlink()
    photos(source, "a.jpg", size=(40, 20))
    with pytest.raises(fastpipe.PackError, match=r"several annotations .* fit the image a\.jpg"):
        fastpipe.pack(source, tmp_path / "none")


@becomes(
    "Label Studio: polygons, ellipses, rotated boxes, key points and brushes",
    "boxes around the shapes; what has no box is counted",
)
def test_shapes(two: Path, tmp_path: Path) -> None:
    ellipse = {
        "x": 50,
        "y": 50,
        "radiusX": 10,
        "radiusY": 10,
        "rotation": 0,
        "ellipselabels": ["e"],
    }
    results = [
        result("polygonlabels", {"points": [[10, 10], [20, 50], [5, 30]], "polygonlabels": ["p"]}),
        result("ellipselabels", ellipse),
        rectangle("r", 50, rotation=90),
        result("keypointlabels", {"x": 1, "y": 2, "width": 1, "keypointlabels": ["k"]}),
        result("brushlabels", {"format": "rle", "rle": [0, 1], "brushlabels": ["b"]}),
    ]
    write(two / "export.json", [task("/data/upload/1/a.jpg", annotation(*results))])
    boxes, summary = packed_objects(two, tmp_path / "packed")
    assert boxes["images/a.jpg"] == [
        ("p", [2, 2, 8, 10]),
        ("e", [16, 8, 24, 12]),
        ("r", [10, 4, 20, 16]),
    ]
    assert assumed(summary)[:2] == [
        "boxes: those around ellipses (1), polygons (1), rotated boxes (1), cut off at the edge of "
        "the image",
        "left out, because they give no box: brushes (in Label Studio, export them as COCO or as PNG) "
        "(1), points (1)",
    ]


@becomes(
    "Label Studio: skipped tasks, predictions, several annotations of a task",
    "the ground truth, else the last annotation; a task without one is left out; both are counted",
)
def test_annotations_that_count(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *(f"{name}.jpg" for name in "abcd"), size=(40, 20))
    tasks = [
        task(
            "a.jpg", annotation(rectangle("no"), was_cancelled=True), annotation(rectangle("dog"))
        ),
        task(
            "b.jpg",
            annotation(rectangle("new"), updated_at="2024-02-01T00:00:00Z"),
            annotation(rectangle("old"), updated_at="2024-01-01T00:00:00Z"),
        ),
        task("c.jpg", annotation()),
        {**task("d.jpg"), "predictions": [annotation(rectangle("guess"))]},
    ]
    write(source / "export.json", tasks)
    boxes, summary = packed_objects(source, tmp_path / "packed")
    assert {name: [label for label, _ in pairs] for name, pairs in boxes.items()} == {
        "a.jpg": ["dog"],
        "b.jpg": ["new"],
        "c.jpg": [],
    }
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("dog", "new")
    texts = assumed(summary)
    assert texts[0].startswith("images with several annotations: 1; the one that is marked")
    assert "images that nobody has annotated: 1 of 4; they are left out" in texts


@becomes("Label Studio: choices for each image", "their labels")
def test_choices(two: Path, tmp_path: Path) -> None:
    tasks = [
        task(f"/data/upload/1/{name}", annotation(result("choices", {"choices": [choice]})))
        for name, choice in (("a.jpg", "day"), ("b b.jpg", "night"))
    ]
    write(two / "export.json", tasks)
    assert fastpipe.pack(two, tmp_path / "packed").info["samples"] == 2
    data = fastpipe.open(tmp_path / "packed")
    assert [data.classes[label] for label in data["label"]] == ["day", "night"]


@becomes("Label Studio: JSON-MIN", "boxes with their names")
def test_min(two: Path, tmp_path: Path) -> None:
    value = rectangle("dog")["value"]
    entry = {"image": "/data/upload/1/1a2b3c4d-a.jpg", "id": 1, "annotator": 1, "annotation_id": 2}
    write(two / "export.json", [{**entry, "label": [{**value, **SIZE}]}])
    boxes, _ = packed_objects(two, tmp_path / "packed")
    assert boxes == {"images/a.jpg": [("dog", [4, 4, 16, 14])]}


@becomes(
    "Label Studio: an image that was turned there, or of several pages", "rejected with the reason"
)
def test_what_cannot_be_read(two: Path, tmp_path: Path) -> None:
    turned = {**rectangle("dog"), "image_rotation": 90}
    tasks = [task("a.jpg", annotation(rectangle("dog"))), task("b b.jpg", annotation(turned))]
    write(two / "export.json", tasks)
    summary = fastpipe.pack(two, tmp_path / "packed")
    assert list(objects(tmp_path / "packed")) == ["images/a.jpg"]
    ((path, reason),) = summary.tally.rejected
    assert path == "images/b b.jpg"
    assert "expected an image that is not turned in Label Studio" in reason


@becomes(
    "Label Studio: `train.json` and `val.json` of one folder of images, with --unlisted keep",
    "images of the other file are not packed; those that nobody has annotated have no boxes",
)
def test_files_of_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg", "c.jpg", "d.jpg", size=(40, 20))
    write(source / "train.json", [task("a.jpg", annotation(rectangle("dog"))), task("d.jpg")])
    write(source / "val.json", [task("b.jpg", annotation(rectangle("cat")))])
    for root in (source, source / "train.json"):
        split = "train" if root == source else None
        boxes, summary = packed_objects(root, tmp_path / "packed", split=split, unlisted="keep")
        assert boxes == {"a.jpg": [("dog", [4, 4, 16, 14])], "c.jpg": [], "d.jpg": []}
        (said,) = assumed(summary)
        assert "annotated: 1 of 2; they are packed without annotations" in said
