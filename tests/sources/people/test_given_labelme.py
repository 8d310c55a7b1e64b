"""JSON of labelme beside images, as people have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.annotated import objects, packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, values, write
from support.sources.turned import check_boxes
from support.sources.turned import photos as turned_photos

import fastpipe
from fastpipe.errors import PackError


def shape(label: str, points: Any, kind: str = "rectangle", **more: Any) -> dict[str, Any]:
    return {"label": label, "points": points, "shape_type": kind, **more}


def annotation(path: str, *shapes: dict[str, Any], **more: Any) -> dict[str, Any]:
    size = {"imageWidth": 40, "imageHeight": 30}
    entry = {"version": "5.4.1", "imageData": None, "imagePath": path, "shapes": list(shapes)}
    return {**entry, **size, **more}


DOG = shape("dog", [[10, 12], [2, 3]])


@becomes(
    "labelme: `a.json` beside `a.jpg`",
    "boxes with their names; those around polygons and circles, and what has no box, are counted",
)
def test_shapes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    shapes = [
        DOG,
        shape("cat", [[5, 6], [20, 8], [18, 25]], "polygon"),
        shape("eye", [[10, 10], [13, 14]], "circle"),
        shape("cat", [[1, 2], [6, 8]], "mask"),
        shape("nose", [[3, 3]], "point"),
        shape("tail", [[3, 3], [5, 5]], "line"),
    ]
    write(source / "a.json", annotation("a.jpg", *shapes))
    write(source / "b.json", annotation("b.jpg"))
    write(source / "c.json", annotation("c.jpg", shape("eye", [[2, 2], [2, 6]], "circle")))
    boxes, summary = packed_objects(source, tmp_path / "packed")
    assert boxes == {
        "a.jpg": [
            ("dog", [2, 3, 10, 12]),
            ("cat", [5, 6, 20, 25]),
            ("eye", [5, 5, 15, 15]),
            ("cat", [1, 2, 7, 9]),
        ],
        "b.jpg": [],
        "c.jpg": [("eye", [0, 0, 6, 6])],  # cut off at the edge
    }
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("cat", "dog", "eye")
    assert assumed(summary) == [
        "boxes: those around circles (2), masks (1), polygons (1), cut off at the edge of the image",
        "left out, because they give no box: lines (1), points (1)",
        "images: 1 image in the same folders is not listed and is left out, "
        "such as d.jpg (--unlisted drop or keep)",
    ]
    fastpipe.pack(source, tmp_path / "all", unlisted="keep")
    assert objects(tmp_path / "all")["d.jpg"] == []


@becomes(
    "labelme: its JSON in a folder beside `images/`, with the paths of another machine",
    "boxes; an image is found by the name of its file",
)
def test_folders(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg", "other/a.jpg")
    write(source / "labels/a.json", annotation("..\\images\\a.jpg", DOG))
    write(source / "labels/b.json", annotation("C:\\Users\\me\\old name.png", DOG))
    expected = {
        "images/a.jpg": [("dog", [2, 3, 10, 12])],
        "images/b.jpg": [("dog", [2, 3, 10, 12])],
    }
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert boxes == expected
    boxes, _ = packed_objects(source / "labels", tmp_path / "one", image_root=source / "images")
    assert sorted(boxes) == ["a.jpg", "b.jpg"]


@becomes(
    "labelme: `train/` and `val/` with other classes",
    "the split that is asked for; a class has one number in both",
    "--split train",
)
def test_splits(tmp_path: Path) -> None:
    for folder in ("{}", "images/{}"):
        source = tmp_path / folder.replace("/", "_").format("set")
        for split, name in (("train", "dog"), ("val", "cat")):
            path = photos(source / folder.format(split), "1.jpg")
            place = path if folder == "{}" else source / "labels" / split
            write(place / "1.json", annotation("1.jpg", shape(name, [[1, 2], [3, 4]])))
        boxes, _ = packed_objects(source, tmp_path / "packed", split="val")
        assert list(boxes.values()) == [[("cat", [1, 2, 3, 4])]]
        boxes, _ = packed_objects(source, tmp_path / "packed", split="train")
        assert list(boxes.values()) == [[("dog", [1, 2, 3, 4])]]
        assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("cat", "dog")


@becomes(
    "labelme, VisDrone, DOTA: the folders `birds-train/` and `birds-val/`",
    "the split that is asked for; without it refused; one folder alone: its other numbers are said",
    "--split train",
)
def test_splits_with_a_common_name(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for folder, label in (("birds-train", "ant"), ("birds-val", "dog")):
        photos(source / folder, "a.jpg")
        write(source / folder / "a.json", annotation("a.jpg", shape(label, [[2, 3], [9, 9]])))
    with pytest.raises(PackError, match="--split train"):
        fastpipe.pack(source, tmp_path / "none")
    for split in ("val", "birds-val"):
        boxes, summary = packed_objects(source, tmp_path / split, split=split)
        assert boxes == {"a.jpg": [("dog", [2, 3, 9, 9])]}
        assert fastpipe.open(tmp_path / split).fields["boxes"].names == ("ant", "dog")
        assert assumed(summary) == []
    (text,) = assumed(fastpipe.pack(source / "birds-val", tmp_path / "alone"))
    assert text.startswith("classes: those of birds-val alone, with other numbers than those of")
    assert text.endswith(f"fastpipe pack {source} DST --split val")


@becomes(
    "labelme: a.json that names b.jpg, as after renaming",
    "the image with the name of the file counts; the files are counted",
)
def test_a_stale_name(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    write(source / "a.json", annotation("a.jpg", DOG))
    write(source / "b.json", annotation("a.jpg", shape("cat", [[1, 2], [3, 4]])))
    boxes, summary = packed_objects(source, tmp_path / "packed")
    assert boxes == {"a.jpg": [("dog", [2, 3, 10, 12])], "b.jpg": [("cat", [1, 2, 3, 4])]}
    assert assumed(summary) == [
        "files that have the name of one image, and name another image inside: 1; the name of the file "
        "counts"
    ]


@becomes(
    "labelme: a damaged file, or one whose image is missing or has another size",
    "the image is rejected with the reason",
)
def test_damaged_files(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    write(source / "a.json", annotation("a.jpg", DOG))
    write(source / "b.json", '{"shapes": [')
    write(source / "c.json", annotation("c.jpg", DOG, imageWidth=80))
    write(source / "d.json", annotation("d.jpg", shape("", [[1, 2], [3, 4]])))
    write(source / "e.json", annotation("e.jpg", DOG))
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert list(objects(tmp_path / "packed")) == ["a.jpg"]
    reasons = dict(summary.tally.rejected)
    assert "b.json: " in reasons["b.jpg"]
    assert "expected 80 x 30 pixels" in reasons["c.jpg"]
    assert "shape 0: expected the name of a class" in reasons["d.jpg"]
    assert "no image e.jpg in " in reasons["e.json"]


@becomes(
    "labelme: flags of images and shapes, group_id",
    "one flag an image is its label; flags of shapes are a field; a group has one box",
)
def test_flags(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    parts = [
        shape("dog", [[1, 2], [5, 6]], group_id=1, flags={"occluded": True, "blurred": False}),
        shape("dog", [[8, 2], [12, 9]], group_id=1),
    ]
    write(source / "a.json", annotation("a.jpg", *parts, flags={"day": True, "night": False}))
    write(source / "b.json", annotation("b.jpg", flags={"day": False, "night": True}))
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert boxes == {"a.jpg": [("dog", [1, 2, 12, 9])], "b.jpg": []}
    assert labels(tmp_path) == {"a.jpg": "day", "b.jpg": "night"}
    assert values(tmp_path, "attributes") == {"a.jpg": [{"occluded": True}], "b.jpg": []}


@becomes(
    "labelme: JSON in class folders, beside the images",
    "the folders as classes; the files are named, with the option",
    "--format annotations",
)
def test_class_folders(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat/1.jpg", "dog/1.jpg", "dog/2.jpg")
    write(source / "cat/1.json", annotation("1.jpg", DOG))
    write(source / "dog/2.json", annotation("2.jpg", DOG))
    (text,) = assumed(fastpipe.pack(source, tmp_path / "classes"))
    assert "such as cat/1.json (labelme's JSON)" in text
    assert "the same command with --format annotations packs them with the images" in text
    boxes, _ = packed_objects(source, tmp_path / "packed", format="annotations")
    assert sorted(boxes) == ["cat/1.jpg", "dog/2.jpg"]


@becomes("labelme: boxes of photos that EXIF turns", "boxes of the photo as shown")
def test_turned(tmp_path: Path) -> None:
    turned_photos(tmp_path / "src")
    for number in range(1, 9):
        size = {"imageWidth": 20, "imageHeight": 40}
        box = shape("dog", [[0, 0], [10, 10]])
        write(tmp_path / f"src/{number}.json", annotation(f"{number}.jpg", box, **size))
    for exif in ("apply", "ignore"):
        fastpipe.pack(tmp_path / "src", tmp_path / exif, exif=exif)
        check_boxes(tmp_path / exif, exif=exif)


@becomes(
    "labelme: its JSON beside two folders that have the same images",
    "the one that is called images; else refused",
    "--image-root FOLDER",
)
def test_two_folders(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "small/a.jpg")
    write(source / "labels/a.json", annotation("a.jpg", DOG))
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert list(boxes) == ["images/a.jpg"]
    (source / "images").rename(source / "large")
    with pytest.raises(PackError, match=r"may belong to the images in .*large, .*small"):
        fastpipe.pack(source, tmp_path / "none")
    boxes, _ = packed_objects(source, tmp_path / "packed", image_root=source / "large")
    assert list(boxes) == ["a.jpg"]


def test_a_name_of_another_picture_counts_once(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    file = write(source / "a.json", annotation("b.jpg", shape("cat", [[1, 2], [9, 8]])))
    _, summary = packed_objects(file, tmp_path / "packed")
    text = " ".join(assumed.text for assumed in summary.assumed)
    assert "name another image inside: 1" in text


def test_endings_in_capital_letters(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "img/a.jpg")
    write(source / "ann/a.JSON", annotation("a.jpg", shape("cat", [[1, 2], [9, 8]])))
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert boxes == {"img/a.jpg": [("cat", [1, 2, 9, 8])]}
