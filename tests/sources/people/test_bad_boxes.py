"""Boxes that end outside their image or cannot be read: --bad-boxes rejects, cuts or drops them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write
from support.sources.tables import pa, pq

import fastpipe
from fastpipe.errors import ConfigError, PackError

# In a photo of 40 x 30: a good box, one over the right edge, one outside.
GOOD, OVER, OUTSIDE = [4, 3, 20, 15], [30, 10, 50, 20], [50, 10, 60, 20]
HINT = "--bad-boxes clip or drop packs the image all the same"


def yolo(source: Path) -> Path:
    photos(source, "images/a.jpg")
    lines = []
    for number, (left, top, right, bottom) in enumerate([OUTSIDE, GOOD, OVER]):
        shares = [
            (left + right) / 80,
            (top + bottom) / 60,
            (right - left) / 40,
            (bottom - top) / 30,
        ]
        lines.append(" ".join(map(str, [number, *shares])))
    # A class that does not exist, pixels, and no numbers at all.
    lines += ["7 0.5 0.5 0.1 0.1", "1 10 12 30 20", "1 a b c d"]
    write(source / "labels/a.txt", "\n".join(lines))
    write(source / "data.yaml", "names: [x, y, z]")
    return source


def voc(source: Path) -> Path:
    photos(source, "JPEGImages/a.jpg")
    objects = ""
    for name, box in zip("xyz", [OUTSIDE, GOOD, OVER], strict=True):
        sides = "".join(
            f"<{side}>{number}</{side}>"
            for side, number in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        )
        difficult = int(name == "z")
        objects += f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{sides}</bndbox></object>"
    objects += "<object><name></name></object><object><name>x</name><bndbox><xmin>0</xmin></bndbox></object>"
    # A box at 0, so that pixels are counted from 0.
    other = "<object><name>x</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
    photos(source, "JPEGImages/a.jpg", "JPEGImages/b.jpg")
    size = "<size><width>40</width><height>30</height></size>"
    for stem, text in (("a", objects), ("b", other)):
        write(source / f"Annotations/{stem}.xml", f"<annotation>{size}{text}</annotation>")
    return source


def coco(source: Path) -> Path:
    photos(source, "a.jpg")
    annotations: list[dict[str, Any]] = []
    for number, (left, top, right, bottom) in enumerate([OUTSIDE, GOOD, OVER]):
        box = [left, top, right - left, bottom - top]
        annotations.append(
            {"id": number, "image_id": 1, "category_id": number, "bbox": box, "area": number}
        )
    annotations.append({"id": 8, "image_id": 1, "category_id": 99, "bbox": [1, 1, 2, 2], "area": 8})
    annotations.append({"id": 9, "image_id": 1, "category_id": 1, "bbox": [1, 1], "area": 9})
    write(
        source / "annotations.json",
        {
            "images": [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 30}],
            "categories": [{"id": number, "name": name} for number, name in enumerate("xyz")],
            "annotations": annotations,
        },
    )
    return source / "annotations.json"


def cvat(source: Path) -> Path:
    photos(source, "a.jpg")
    shapes = ""
    for name, (left, top, right, bottom) in zip("xyz", [OUTSIDE, GOOD, OVER], strict=True):
        shapes += f'<box label="{name}" xtl="{left}" ytl="{top}" xbr="{right}" ybr="{bottom}"/>'
    shapes += '<box label="x" xtl="a" ytl="1" xbr="2" ybr="3"/>'
    text = f'<image name="a.jpg" width="40" height="30">{shapes}</image>'
    write(source / "annotations.xml", f"<annotations><meta/>{text}</annotations>")
    return source


def table(source: Path) -> Path:
    photos(source, "a.jpg")
    rows = [
        f"a.jpg,{','.join(map(str, box))},{name},{name}"
        for name, box in zip("xyz", [OUTSIDE, GOOD, OVER], strict=True)
    ]
    text = "\n".join(["image,xmin,ymin,xmax,ymax,class,note", *rows, "a.jpg,1,2,,4,y,bad"])
    return write(source / "boxes.csv", text)


def parquet(source: Path) -> Path:
    photos(source, "a.jpg")
    boxes = [[x0, y0, x1 - x0, y1 - y0] for x0, y0, x1, y1 in (OUTSIDE, GOOD, OVER)]
    image = {"bytes": (source / "a.jpg").read_bytes(), "path": None}
    rows = {"image": [image], "boxes": [{"bbox": boxes, "categories": ["x", "y", "z"]}]}
    pq.write_table(pa.table(rows), source / "train.parquet")
    return source / "train.parquet"


# With the number of objects that cannot be read.
SOURCES = [(yolo, 3), (voc, 2), (coco, 2), (cvat, 1), (table, 1), (parquet, 0)]


@becomes(
    "boxes over the edge of their image, or outside it, in any format",
    "the image is rejected, with the option; or boxes are cut at the border, or dropped, and counted",
    "--bad-boxes clip or drop",
)
@becomes(
    "a line of YOLO with a class that does not exist or with pixels, an object of VOC without a name, a row "
    "of a table without a number",
    "the image is rejected; or the box is dropped and counted",
    "--bad-boxes clip or drop",
)
@pytest.mark.parametrize(("make", "unreadable"), SOURCES)
def test_bad_boxes(tmp_path: Path, make: Any, unreadable: int) -> None:
    source = make(tmp_path / "src")
    packed = tmp_path / "packed"
    options: dict[str, Any] = {}
    if make is parquet:
        options["fields"] = ["boxes=boxes:boxes"]
    key = "src/train.parquet/000000" if make is parquet else "a.jpg"
    # The order of classes tells which boxes are left.
    boxes: Any = None
    for choice, expected, dropped in (
        ("clip", [[GOOD, [30, 10, 40, 20]], [1, 2]], unreadable + 1),
        ("drop", [[GOOD], [1]], unreadable + 2),
    ):
        summary = fastpipe.pack(source, packed, bad_boxes=choice, overwrite=True, **options)
        assert not summary.tally.rejected
        boxes = {
            path.rpartition("/")[2]: value for path, value in values(tmp_path, "boxes").items()
        }
        assert [list(part) for part in boxes[key.rpartition("/")[2]]] == [
            expected[0],
            expected[1],
        ]
        counts = summary.info["counts"]
        assert counts["dropped_boxes"] == dropped
        assert counts.get("cut_boxes", 0) == (1 if choice == "clip" else 0)
        (said,) = [text for text in assumed(summary) if "--bad-boxes reject" in text]
        assert f"{dropped} dropped" in said
    if make is not voc:
        with pytest.raises(PackError, match=HINT):
            fastpipe.pack(source, packed, overwrite=True, **options)
    else:
        ((_, reason),) = fastpipe.pack(source, packed, overwrite=True).tally.rejected
        assert HINT in reason
        if reason.endswith(f"Else {HINT}"):
            assert "are their boxes of images of another size? " in reason


@pytest.mark.parametrize(
    ("make", "field", "expected"),
    [(coco, "area", [1, 2]), (voc, "difficult", [0, 1]), (table, "note", ["y", "z"])],
)
def test_other_values_of_a_box_go_with_it(
    tmp_path: Path, make: Any, field: str, expected: list[Any]
) -> None:
    fastpipe.pack(make(tmp_path / "src"), tmp_path / "packed", bad_boxes="clip")
    by_name = {key.rpartition("/")[2]: value for key, value in values(tmp_path, field).items()}
    assert by_name["a.jpg"] == expected


def test_points_of_a_box_go_with_it(tmp_path: Path) -> None:
    source = coco(tmp_path / "src")
    content = json.loads(source.read_text())
    for category in content["categories"]:
        category["keypoints"] = ["nose"]
    for annotation in content["annotations"]:
        annotation["keypoints"] = [annotation["id"], 5, 2]
    write(source, content)
    fastpipe.pack(source, tmp_path / "packed", bad_boxes="clip")
    points, visibility = values(tmp_path, "keypoints")["a.jpg"]
    assert points == [[[1, 5]], [[2, 5]]]
    assert visibility == [[2], [2]]


def test_masks_of_objects_keep_their_numbers(tmp_path: Path) -> None:
    """The numbers in such a mask are those of the boxes, of which one is gone."""
    pytest.importorskip("pycocotools")
    source = coco(tmp_path / "src")
    content = json.loads(source.read_text())
    for annotation in content["annotations"]:
        annotation["segmentation"] = [[1, 1, 5, 1, 5, 5]]
    write(source, content)
    fields = ["boxes", "objects=instances:mask"]
    with pytest.raises(PackError, match="field objects: a box of the image is dropped"):
        fastpipe.pack(source, tmp_path / "packed", bad_boxes="clip", fields=fields)


def test_an_added_source_has_the_option(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    fastpipe.pack(yolo(tmp_path / "src"), packed, bad_boxes="clip")
    photos(tmp_path / "more", "images/b.png", size=(60, 30))
    write(tmp_path / "more/labels/b.txt", "0 1 0.5 0.5 0.5\n9 0 0 0 0\n")
    write(tmp_path / "more/data.yaml", "names: [x, y, z]")
    grown = fastpipe.add(tmp_path / "more", packed)
    assert grown.added == 1
    texts = [str(assumption) for assumption in grown.assumed]
    assert "--bad-boxes clip: as the dataset was packed (--bad-boxes VALUE)" in texts
    assert any("1 cut at the border of their image, 1 dropped" in text for text in texts)
    assert values(tmp_path, "boxes")["b.png"] == [[[45, 7.5, 60, 22.5]], [0]]


def test_a_choice_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bad_boxes: expected 'reject', 'clip' or 'drop'"):
        fastpipe.pack(yolo(tmp_path / "src"), tmp_path / "packed", bad_boxes="all")
