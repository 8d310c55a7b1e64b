"""Outlines that annotation tools draw around objects, packed as masks."""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.sources import turned
from support.sources.becomes import becomes
from support.sources.people import assumed, masks, photos, values, write

import fastpipe
from fastpipe.errors import PackError

MASK = {"mask": "segmentation:mask"}
BOTH = {"boxes": "boxes", **MASK}


def rectangles(*parts: tuple[int, int, int, int, int]) -> NDArray[Any]:
    """A mask of 40 x 30 pixels, with a number in each of some rectangles, later ones on top."""
    mask = np.zeros((30, 40), dtype=np.uint8)
    for left, top, right, bottom, number in parts:
        mask[top:bottom, left:right] = number
    return mask


def cvat(folder: Path, *shapes: str, **attributes: str) -> Path:
    photos(folder, "images/a.jpg")
    image = f'<image id="0" name="a.jpg" width="40" height="30">{"".join(shapes)}</image>'
    write(folder / "annotations.xml", f"<annotations>{image}</annotations>")
    return folder


def polygon(label: str, points: str, z_order: int = 0) -> str:
    return f'<polygon label="{label}" points="{points}" z_order="{z_order}"/>'


DOG = polygon("dog", "5,5;20,5;20,15;5,15")
CAT = polygon("cat", "10,10;30,10;30,20;10,20")


@becomes(
    "CVAT: polygons, masks, boxes and ellipses",
    "boxes around them; with the option a field `mask` with the number of the class + 1, too",
    "--field boxes --field mask=segmentation:mask",
)
def test_polygons_of_cvat(tmp_path: Path) -> None:
    source = cvat(tmp_path / "src", DOG, CAT)
    texts = assumed(fastpipe.pack(source, tmp_path / "boxes"))
    assert texts == [
        "boxes: those around polygons (2), cut off at the edge of the image; the option packs "
        "masks of them, too (--field boxes --field mask=segmentation:mask)"
    ]
    fastpipe.pack(source, tmp_path / "packed", fields=BOTH)
    expected = rectangles((5, 5, 20, 15, 2), (10, 10, 30, 20, 1))
    assert masks(tmp_path) == {"images/a.jpg": expected.tolist()}
    boxes = [[5, 5, 20, 15], [10, 10, 30, 20]]
    assert values(tmp_path, "boxes") == {"images/a.jpg": [boxes, [1, 0]]}
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == ("", "cat", "dog")


def test_numbers_of_objects(tmp_path: Path) -> None:
    source = cvat(tmp_path / "src", DOG, CAT)
    fastpipe.pack(source, tmp_path / "packed", fields={"mask": "instances:mask"})
    expected = rectangles((5, 5, 20, 15, 1), (10, 10, 30, 20, 2))
    assert masks(tmp_path) == {"images/a.jpg": expected.tolist()}


def test_levels_of_cvat(tmp_path: Path) -> None:
    dog = polygon("dog", "5,5;20,5;20,15;5,15", z_order=1)
    source = cvat(tmp_path / "src", dog, CAT)
    fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    expected = rectangles((10, 10, 30, 20, 1), (5, 5, 20, 15, 2))
    assert masks(tmp_path) == {"images/a.jpg": expected.tolist()}


def test_runs_and_boxes_of_cvat(tmp_path: Path) -> None:
    # Of 3 x 2 pixels, the second of each row is outside.
    runs = '<mask label="cat" rle="0, 1, 1, 2, 1, 1" left="30" top="20" width="3" height="2"/>'
    box = '<box label="dog" xtl="2" ytl="3" xbr="10" ybr="12"/>'
    turned = '<box label="dog" xtl="10" ytl="10" xbr="20" ybr="14" rotation="90"/>'
    source = cvat(tmp_path / "src", runs, box, turned)
    fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    parts = [(30, 20, 33, 22, 1), (31, 20, 32, 22, 0), (2, 3, 10, 12, 2), (13, 7, 17, 17, 2)]
    assert masks(tmp_path) == {"images/a.jpg": rectangles(*parts).tolist()}


def test_ellipses_of_cvat(tmp_path: Path) -> None:
    ellipse = '<ellipse label="cat" cx="20" cy="15" rx="10" ry="5" rotation="90"/>'
    source = cvat(tmp_path / "src", ellipse)
    fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    mask = np.array(masks(tmp_path)["images/a.jpg"])
    rows, columns = np.nonzero(mask)
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (15, 5, 24, 24)
    assert abs(mask.sum() - np.pi * 10 * 5) < 8


def test_runs_that_do_not_fit(tmp_path: Path) -> None:
    runs = '<mask label="cat" rle="0, 5" left="30" top="20" width="3" height="2"/>'
    source = cvat(tmp_path / "src", runs)
    with pytest.raises(PackError, match=r"object 1 \(cat\): expected runs of 6 pixels, got 5"):
        fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    # The box is as good as ever.
    fastpipe.pack(source, tmp_path / "packed")
    assert values(tmp_path, "boxes") == {"images/a.jpg": [[[30, 20, 33, 22]], [0]]}


def test_objects_without_an_outline(tmp_path: Path) -> None:
    points = '<points label="head" points="1,2"/><points label="tail" points="5,9"/>'
    source = cvat(tmp_path / "src", DOG, f'<skeleton label="horse">{points}</skeleton>')
    with pytest.raises(PackError, match=r"object 2 \(horse\) has no outline, and a mask needs one"):
        fastpipe.pack(source, tmp_path / "packed", fields=BOTH)


def test_fields_that_a_tool_does_not_have(tmp_path: Path) -> None:
    box = '<box label="dog" xtl="2" ytl="3" xbr="10" ybr="12"/>'
    source = cvat(tmp_path / "src", box)
    words = "--field mask=segmentation:mask: the annotations have boxes"
    with pytest.raises(PackError, match=words):
        fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    words = "--field boxes=boxes:text: expected the kind boxes, or none"
    with pytest.raises(PackError, match=words):
        fastpipe.pack(source, tmp_path / "packed", fields={"boxes": "boxes:text"})


@becomes(
    "labelme: polygons, rectangles and circles",
    "boxes around them; with the option a field `mask` with the number of the class + 1, too",
    "--field boxes --field mask=segmentation:mask",
)
def test_polygons_of_labelme(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg")
    square = [[5, 5], [20, 5], [20, 15], [5, 15]]
    first = {"label": "dog", "points": square, "shape_type": "polygon", "group_id": 1}
    far = [[25, 20], [30, 20], [30, 25], [25, 25]]
    second = {"label": "dog", "points": far, "shape_type": "polygon", "group_id": 1}
    box = {"label": "cat", "points": [[10, 10], [30, 18]], "shape_type": "rectangle"}
    entry = {"imagePath": "a.jpg", "imageWidth": 40, "imageHeight": 30}
    write(source / "a.json", {**entry, "shapes": [first, box, second]})
    texts = assumed(fastpipe.pack(source, tmp_path / "boxes"))
    assert texts[0].endswith("(--field boxes --field mask=segmentation:mask)")
    fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    parts = [(5, 5, 20, 15, 2), (25, 20, 30, 25, 2), (10, 10, 30, 18, 1)]
    assert masks(tmp_path) == {"a.jpg": rectangles(*parts).tolist()}


@becomes(
    "VGG's image annotator: polygons, rectangles, circles and ellipses",
    "boxes around them; with the option a field `mask` with the number of the class + 1, too",
    "--field boxes --field mask=segmentation:mask",
)
def test_polygons_of_via(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg")
    shape = {"name": "polygon", "all_points_x": [5, 20, 20, 5], "all_points_y": [5, 5, 15, 15]}
    box = {"name": "rect", "x": 10, "y": 10, "width": 20, "height": 8}
    regions = [
        {"shape_attributes": shape, "region_attributes": {"class": "dog"}},
        {"shape_attributes": box, "region_attributes": {"class": "cat"}},
    ]
    entry = {"filename": "a.jpg", "size": 9, "regions": regions, "file_attributes": {}}
    write(source / "via.json", {"a.jpg9": entry})
    texts = assumed(fastpipe.pack(source, tmp_path / "boxes"))
    assert texts[0].endswith("(--field boxes --field mask=segmentation:mask)")
    fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    expected = rectangles((5, 5, 20, 15, 2), (10, 10, 30, 18, 1))
    assert masks(tmp_path) == {"a.jpg": expected.tolist()}


@becomes(
    "Label Studio: polygons, rectangles and ellipses",
    "boxes around them; with the option a field `mask` with the number of the class + 1, too",
    "--field boxes --field mask=segmentation:mask",
)
def test_polygons_of_label_studio(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg")
    size = {"original_width": 40, "original_height": 30, "image_rotation": 0}
    # In percent of 40 x 30 pixels.
    points = [[12.5, 20], [50, 20], [50, 50], [12.5, 50]]
    shape = {"points": points, "polygonlabels": ["dog"]}
    sides = {"x": 50, "y": 30, "width": 25, "height": 20, "rotation": 90}
    results = [
        {"type": "polygonlabels", "value": shape, **size},
        {"type": "rectanglelabels", "value": {**sides, "rectanglelabels": ["cat"]}, **size},
    ]
    annotation = {"id": 1, "result": results, "was_cancelled": False}
    task = {"id": 1, "data": {"image": "/data/upload/1/a.jpg"}, "annotations": [annotation]}
    write(source / "export.json", [task])
    texts = assumed(fastpipe.pack(source, tmp_path / "boxes"))
    assert texts[0].endswith("(--field boxes --field mask=segmentation:mask)")
    fastpipe.pack(source, tmp_path / "packed", fields=MASK)
    # A box of 10 x 6 pixels is turned clockwise around its corner (20, 9).
    expected = rectangles((5, 6, 20, 15, 2), (14, 9, 20, 19, 1))
    assert masks(tmp_path) == {"a.jpg": expected.tolist()}
    brush = {"format": "rle", "rle": [0, 1], "brushlabels": ["cow"]}
    results.append({"type": "brushlabels", "value": brush, **size})
    write(source / "export.json", [task])
    with pytest.raises(PackError, match="brushes are not read, and a mask would lack these"):
        fastpipe.pack(source, tmp_path / "none", fields=MASK)


@pytest.mark.parametrize("exif", ["apply", "ignore"])
def test_masks_of_turned_photos(tmp_path: Path, exif: str) -> None:
    source = tmp_path / "src"
    turned.photos(source)
    runs = '<mask label="dog" rle="0, 100" left="0" top="0" width="10" height="10"/>'
    shapes = [polygon("dog", "0,0;10,0;10,5;0,5"), runs]
    images = [
        f'<image id="{number}" name="{number}.jpg" width="20" height="40">{shapes[number % 2]}</image>'
        for number in range(1, 9)
    ]
    write(source / "annotations.xml", f"<annotations>{''.join(images)}</annotations>")
    fastpipe.pack(source, tmp_path / "packed", fields=MASK, exif=exif)
    for orientation, sample in turned.samples(tmp_path / "packed", "mask").items():
        left, top, right, bottom = turned.bright_box(sample["image"])
        box = turned.bright_box(np.squeeze(sample["mask"]) * 200)
        if orientation % 2:
            assert box == [left, top, right, bottom]
        else:
            # The polygon covers half of the bright square.
            assert (box[2] - box[0]) * (box[3] - box[1]) == 50
            assert left <= box[0] <= box[2] <= right
            assert top <= box[1] <= box[3] <= bottom


def png(mode: str, pixels: Any) -> bytes:
    image = Image.fromarray(np.array(pixels, np.uint8))
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 255, 255])
    file = io.BytesIO()
    image.save(file, "PNG", **({"transparency": 0} if mode == "P" else {}))
    return file.getvalue()


def supervisely(folder: Path, *objects: dict[str, Any]) -> Path:
    photos(folder, "ds/img/a.jpg")
    size = {"height": 30, "width": 40}
    annotation = {"description": "", "tags": [], "size": size, "objects": list(objects)}
    write(folder / "ds/ann/a.jpg.json", annotation)
    return folder


def supervisely_polygon(name: str, exterior: Any, *holes: Any) -> dict[str, Any]:
    points = {"exterior": exterior, "interior": list(holes)}
    return {"classTitle": name, "geometryType": "polygon", "points": points, "tags": []}


def supervisely_bitmap(name: str, origin: list[int], data: bytes) -> dict[str, Any]:
    text = base64.b64encode(zlib.compress(data)).decode()
    bitmap = {"data": text, "origin": origin}
    return {"classTitle": name, "geometryType": "bitmap", "bitmap": bitmap, "tags": []}


SHAPE = [[0, 1, 1], [1, 0, 1]]


@pytest.mark.parametrize(
    "data",
    [
        png("L", SHAPE),
        png("P", SHAPE),
        png("RGBA", [[[9, 9, 9, 255 * on] for on in row] for row in SHAPE]),
    ],
)
@becomes(
    "Supervisely: polygons with holes, bitmaps, rectangles",
    "a field `mask` with the number of the class + 1; the pixels of the corners are inside, as there",
    "--field boxes --field mask=segmentation:mask",
)
def test_shapes_of_supervisely(tmp_path: Path, data: bytes) -> None:
    square = [[5, 5], [20, 5], [20, 15], [5, 15]]
    hole = [[8, 8], [11, 8], [11, 10], [8, 10]]
    rectangle = {**supervisely_polygon("dog", [[30, 28], [25, 20]]), "geometryType": "rectangle"}
    source = supervisely(
        tmp_path / "src",
        supervisely_polygon("dog", square, hole),
        supervisely_bitmap("cat", [18, 4], data),
        rectangle,
    )
    fastpipe.pack(source, tmp_path / "packed", fields=BOTH)
    expected = rectangles((5, 5, 21, 16, 2), (8, 8, 12, 11, 0), (25, 20, 31, 29, 2))
    expected[4, 19:21] = 1
    expected[5, [18, 20]] = 1
    assert masks(tmp_path) == {"ds/img/a.jpg": expected.tolist()}
    fastpipe.pack(source, tmp_path / "packed", fields={"mask": "instances:mask"}, overwrite=True)
    expected[(expected == 2) & (np.arange(30)[:, None] >= 20)] = 3
    assert masks(tmp_path) == {"ds/img/a.jpg": np.array([0, 2, 1, 3])[expected].tolist()}


@becomes("Supervisely: a bitmap that is cut, or ends outside the image", "the image is rejected")
def test_bitmaps_that_cannot_be_drawn(tmp_path: Path) -> None:
    whole = png("L", SHAPE)
    for origin, data, reason in (
        ([39, 0], whole, "expected a bitmap in the image of 40 x 30 pixels"),
        ([0, 0], whole[:-20], "segmentation 0: "),
        ([0, 0], png("RGB", [[[1, 2, 3]]]), "its bitmap has colours and no transparent pixels"),
    ):
        source = supervisely(tmp_path / "src", supervisely_bitmap("cat", origin, data))
        with pytest.raises(PackError, match=reason):
            fastpipe.pack(source, tmp_path / "none", fields=MASK)


@becomes(
    "labelme: `mask` shapes, whose PNG is in the JSON",
    "a field `mask` with the number of the class + 1",
    "--field boxes --field mask=segmentation:mask",
)
def test_masks_of_labelme(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a.jpg")
    text = base64.b64encode(png("L", SHAPE)).decode()
    shape = {"label": "cat", "shape_type": "mask", "points": [[7, 4], [9, 5]], "mask": text}
    entry = {"imagePath": "a.jpg", "imageWidth": 40, "imageHeight": 30, "shapes": [shape]}
    write(tmp_path / "src/a.json", entry)
    texts = assumed(fastpipe.pack(tmp_path / "src", tmp_path / "boxes"))
    assert texts[0].endswith("masks of them, too (--field boxes --field mask=segmentation:mask)")
    fastpipe.pack(tmp_path / "src", tmp_path / "packed", fields=MASK)
    expected = rectangles()
    expected[4:6, 7:10] = SHAPE
    assert masks(tmp_path) == {"a.jpg": expected.tolist()}
