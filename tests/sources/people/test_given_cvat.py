"""CVAT's XML for images, as people have it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.annotated import objects, packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, tags, values, write

import fastpipe
from fastpipe.errors import PackError

BOX = '<box label="dog" xtl="2" ytl="3" xbr="10" ybr="12.5" occluded="{}" z_order="0">{}</box>'


def image(name: str, *shapes: str, **more: str) -> str:
    attributes = "".join(f' {key}="{value}"' for key, value in more.items())
    return (
        f'<image id="0" name="{name}" width="40" height="30"{attributes}>{"".join(shapes)}</image>'
    )


def annotations(*images: str) -> str:
    meta = "<meta><job><id>1</id><labels><label><name>dog</name></label></labels></job></meta>"
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version>'
    return f"{head}{meta}{''.join(images)}</annotations>"


@becomes(
    "CVAT for images 1.1: `annotations.xml` beside `images/`",
    "boxes with their names; those around polygons, masks, ellipses and rotated boxes are counted",
)
def test_shapes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/day1/a.jpg", "images/day1/b.jpg", "images/day1/c.jpg")
    colour = '<attribute name="colour">red</attribute>'
    shapes = [
        BOX.format(1, colour),
        '<polygon label="cat" points="5,6;20.5,8;18,25"/>',
        '<ellipse label="cat" cx="10" cy="10" rx="4" ry="2" rotation="90"/>',
        '<mask label="cat" rle="0, 24" left="20" top="10" width="6" height="4"/>',
        '<box label="dog" xtl="10" ytl="10" xbr="20" ybr="14" rotation="90"/>',
        '<points label="dog" points="1,2"/>',
        '<polyline label="dog" points="1,2;3,4"/>',
    ]
    text = annotations(image("day1/a.jpg", *shapes), image("day1/b.jpg"))
    file = write(source / "annotations.xml", text)
    expected = [
        ("dog", [2, 3, 10, 12.5]),
        ("cat", [5, 6, 20.5, 25]),
        ("cat", [8, 6, 12, 14]),
        ("cat", [20, 10, 26, 14]),
        ("dog", [13, 7, 17, 17]),
    ]
    for root in (source, file):
        boxes, summary = packed_objects(root, tmp_path / "packed")
        assert boxes == {"images/day1/a.jpg": expected, "images/day1/b.jpg": []}
        assert assumed(summary) == [
            "boxes: those around ellipses (1), masks (1), polygons (1), rotated boxes (1), cut off at "
            "the edge of the image; the option packs masks of them, too (--field boxes --field attributes "
            "--field mask=segmentation:mask)",
            "left out, because they give no box: lines (1), points (1)",
            "images: 1 image in the same folders is not listed and is left out, such as images/day1/c.jpg "
            "(--unlisted drop or keep)",
        ]
        first = values(tmp_path, "attributes")["images/day1/a.jpg"][0]
        assert first == {"occluded": True, "colour": "red"}
    boxes, _ = packed_objects(file, tmp_path / "packed", image_root=source / "images")
    assert sorted(boxes) == ["day1/a.jpg", "day1/b.jpg"]


@becomes("CVAT: a tag for each image", "its label")
@becomes("CVAT: several tags, or none, for some images", "a field `tags`; this is said")
def test_tags(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    day, night = '<tag label="day"/>', '<tag label="night"/>'
    write(source / "annotations.xml", annotations(image("a.jpg", day), image("b.jpg", night)))
    fastpipe.pack(source, tmp_path / "one")
    data = fastpipe.open(tmp_path / "one")
    assert [data.classes[label] for label in data["label"]] == ["day", "night"]
    assert not data.fields

    text = annotations(image("a.jpg", day, night), image("b.jpg", BOX.format(0, "")))
    write(source / "annotations.xml", text)
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert tags(tmp_path, "tags") == {"a.jpg": {"day", "night"}, "b.jpg": set()}
    assert assumed(summary) == [
        "labels: none, for some images have no class or several; the classes of images (day, night) "
        "are the field tags"
    ]


@becomes(
    "CVAT: subsets in one XML",
    "the subset that is asked for, with the classes of all",
    "--split Train",
)
def test_subsets(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg")
    cat = '<box label="cat" xtl="1" ytl="2" xbr="3" ybr="4"/>'
    images = [
        image("a.jpg", BOX.format(0, ""), subset="Train"),
        image("b.jpg", cat, subset="Validation"),
    ]
    file = write(source / "annotations.xml", annotations(*images))
    for root in (source, file):
        with pytest.raises(PackError, match="has the splits Train, Validation; pass one of them"):
            fastpipe.pack(root, tmp_path / "none")
        boxes, _ = packed_objects(root, tmp_path / "packed", split="Train")
        assert boxes == {"images/a.jpg": [("dog", [2, 3, 10, 12.5])]}
        assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("cat", "dog")


def test_exports_of_one_name(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg")
    for task, name in {"task_1": "a.jpg", "task_2": "b.jpg"}.items():
        text = annotations(image(name, BOX.format(0, "")))
        write(source / "annotations" / task / "annotations.xml", text)
    splits = "annotations/task_1/annotations, annotations/task_2/annotations"
    with pytest.raises(PackError, match=f"has the splits {splits}; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    split = "annotations/task_1/annotations"
    boxes, _ = packed_objects(source, tmp_path / "packed", split=split)
    assert boxes == {"images/a.jpg": [("dog", [2, 3, 10, 12.5])]}


@becomes("CVAT: tracks of a video", "refused, with the export to choose")
@becomes("CVAT: an image that is missing, or a shape that is damaged", "rejected with the reason")
def test_what_cannot_be_read(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    file = write(source / "annotations.xml", annotations('<track id="0" label="dog"/>'))
    with pytest.raises(PackError, match=r"the tracks of a video.*export as CVAT for images 1.1"):
        fastpipe.pack(file, tmp_path / "none")
    bad = '<box label="dog" xtl="a" ytl="3" xbr="10" ybr="12"/>'
    images = [image("a.jpg", BOX.format(0, "")), image("b.jpg", bad), image("gone.jpg")]
    write(file, annotations(*images))
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert list(objects(tmp_path / "packed")) == ["a.jpg"]
    reasons = dict(summary.tally.rejected)
    assert "box of dog: expected a number, got 'a'" in reasons["b.jpg"]
    assert "no image gone.jpg in " in reasons["annotations.xml/000002"]


@becomes(
    "CVAT: subsets of one project, `--split train`, beside an image that no subset has",
    "the images of other subsets have a row, also with --unlisted keep",
    "--unlisted drop or keep",
)
def test_images_of_other_subsets_are_not_without_a_row(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg", "images/c.jpg")
    text = annotations(
        image("a.jpg", BOX.format(0, ""), subset="train"),
        image("b.jpg", BOX.format(0, ""), subset="val"),
    )
    write(source / "annotations.xml", text)
    _, summary = packed_objects(source, tmp_path / "packed", split="train")
    (said,) = assumed(summary)
    assert "1 image in the same folders is not listed and is left out, such as images/c.jpg" in said
    boxes, _ = packed_objects(source, tmp_path / "packed", split="train", unlisted="keep")
    assert set(boxes) == {"images/a.jpg", "images/c.jpg"}


def test_tags_of_other_subsets_have_numbers(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    text = annotations(
        image("a.jpg", '<tag label="night"/>', subset="train"),
        image("b.jpg", '<tag label="day"/>', subset="val"),
    )
    write(source / "annotations.xml", text)
    fastpipe.pack(source, tmp_path / "packed", split="train")
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["day", "night"]
    assert list(data["label"]) == [1]
