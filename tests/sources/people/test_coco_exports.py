"""COCO's annotations as tools and scripts write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask
from support.sources.becomes import becomes
from support.sources.listed import by_path, flat_photos
from support.sources.people import photos

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.sources.annotations.coco_shapes import find_box_around

BOX = [1, 2, 10, 20]
Content = dict[str, Any]


def content(images: int = 2) -> Content:
    """Photos 40, 41, ... x 30, each with a box."""
    photos = [
        {"id": at, "file_name": f"{at:03d}.jpg", "width": 40 + at, "height": 30}
        for at in range(images)
    ]
    notes = [{"id": 10 + at, "image_id": at, "category_id": 1, "bbox": BOX} for at in range(images)]
    return {"images": photos, "annotations": notes, "categories": [{"id": 1, "name": "ant"}]}


def write(folder: Path, what: Content) -> Path:
    if not folder.exists():
        flat_photos(folder, len(what["images"]))
    (folder / "all.json").write_text(json.dumps(what))
    return folder / "all.json"


@becomes(
    "COCO, ids or sizes as texts or fractions",
    "the same as numbers; images may have any text as id",
)
def test_ids_as_texts(tmp_path: Path) -> None:
    what = content(3)
    what["images"][0] |= {"width": "40", "height": 30.0}
    what["images"][0]["id"] = "0"
    what["images"][1]["id"] = "0a1f-uuid"
    what["annotations"][1]["image_id"] = "0a1f-uuid"
    what["annotations"][2]["image_id"] = 2.0
    what["annotations"][0]["category_id"] = "1"
    what["categories"] = [{"id": "1", "name": "ant"}, {"id": "2", "name": "bee"}]
    what["annotations"].append(
        {"id": "77", "image_id": "2", "category_id": "2", "bbox": [0, 0, 4, 5]}
    )
    summary = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")
    assert not summary.tally.rejected
    found = by_path(tmp_path / "packed", "boxes")
    assert {path: (boxes.tolist(), labels.tolist()) for path, (boxes, labels) in found.items()} == {
        "000.jpg": ([[1, 2, 11, 22]], [1]),
        "001.jpg": ([[1, 2, 11, 22]], [1]),
        "002.jpg": ([[1, 2, 11, 22], [0, 0, 4, 5]], [1, 2]),
    }
    assert PackedIndex(tmp_path / "packed").fields["boxes"].names == ("", "ant", "bee")


@becomes("COCO, ids of categories that are words", "refused")
def test_categories_that_are_words(tmp_path: Path) -> None:
    what = content()
    what["categories"] = [{"id": "ant", "name": "ant"}]
    with pytest.raises(
        PackError,
        match="expected categories with an id of 0 to 999,999 and a name, got 'ant' and 'ant'",
    ):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")


@becomes(
    "COCO, `image_id` for evaluation",
    "a field of numbers; of texts where ids are texts",
    "--field image_id",
)
def test_image_ids(tmp_path: Path) -> None:
    what = content()
    what["images"][1]["id"] = what["annotations"][1]["image_id"] = 123_456_789_012
    source = write(tmp_path / "src", what)
    fastpipe.pack(
        source, tmp_path / "packed", fields=["boxes=bbox", "image_id", "text=image_id:text"]
    )
    assert PackedIndex(tmp_path / "packed").fields["image_id"].kind == "int"
    found = by_path(tmp_path / "packed", "image_id", "text")
    assert found == {"000.jpg": (0, "0"), "001.jpg": (123_456_789_012, "123456789012")}
    for batch in fastpipe.loader(tmp_path / "packed", 2, train=False, fields=("image", "image_id")):
        assert sorted(batch["image_id"].tolist()) == [0, 123_456_789_012]
    what["images"][1]["id"] = what["annotations"][1]["image_id"] = "000123"
    fastpipe.pack(write(tmp_path / "src", what), tmp_path / "texts", fields=["image_id"])
    assert by_path(tmp_path / "texts", "image_id") == {"000.jpg": "0", "001.jpg": "000123"}
    with pytest.raises(
        PackError, match="--field image_id=image_id:int: expected the kind text, or none"
    ):
        fastpipe.pack(source, tmp_path / "other", fields=["image_id=image_id:int"])


@becomes(
    "COCO, `bbox` empty or missing beside polygons or runs",
    "the box around them; the summary counts them",
)
def test_boxes_around_segmentations(tmp_path: Path) -> None:
    mask = np.zeros((30, 43), np.uint8)
    mask[4:9, 7:8] = mask[5:7, 30:33] = 1
    packed_runs = coco_mask.encode(np.asfortranarray(mask))
    what = content(5)
    polygons = [[3, 4, 9, 5, 6, 8.5], [1, 20, 4, 20, 4, 25]]
    for at, (bbox, shape) in enumerate(
        [
            ([], polygons),
            (None, [polygons[0]]),
            ([], {"size": [30, 42], "counts": [2 * 30 + 3, 4, 39 * 30 + 23]}),
            ([], {"size": [30, 43], "counts": packed_runs["counts"].decode()}),
            (BOX, polygons),
        ]
    ):
        what["annotations"][at] |= {"bbox": bbox, "segmentation": shape}
    del what["annotations"][1]["bbox"]
    summary = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")
    assert not summary.tally.rejected
    assert {
        path: boxes.tolist() for path, (boxes, _) in by_path(tmp_path / "packed", "boxes").items()
    } == {
        "000.jpg": [[1, 4, 9, 25]],
        "001.jpg": [[3, 4, 9, 8.5]],
        "002.jpg": [[2, 3, 3, 7]],
        "003.jpg": [[7, 4, 33, 9]],
        "004.jpg": [[1, 2, 11, 22]],
    }
    assert [each.text for each in summary.assumed] == [
        "annotations with a segmentation and no bbox: 4; the boxes are those around it",
        "annotations with polygons or runs (segmentation): 5; they are left out",
    ]
    what["annotations"][0]["segmentation"] = []
    reasons = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "less").tally.rejected
    (where, reason) = reasons[0]
    assert where == "000.jpg"
    assert "annotation 10: expected boxes of four numbers: x, y, width, height; got [[]]" in reason


@becomes(
    "COCO, bbox as corners x0, y0, x1, y1, where `area` or the size of the images shows it; or as "
    "normalised coordinates (0 to 1)",
    "refused; the option for corners is named",
    "--box-format xyxy",
)
def test_boxes_of_another_form(tmp_path: Path) -> None:
    what = content(3)
    for at, note in enumerate(what["annotations"]):
        note |= {"bbox": [3, 4, 13 + at, 10], "area": (10 + at) * 6.0}
    with pytest.raises(
        PackError,
        match=r"the bbox of the first 3 annotations looks like xyxy \(x0, y0, x1, y1\), .* area .* "
        "expected x, y, width",
    ):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")
    fastpipe.pack(tmp_path / "src", tmp_path / "corners", box_format="xyxy")
    boxes, _ = by_path(tmp_path / "corners", "boxes")["001.jpg"]
    assert boxes.tolist() == [[3, 4, 14, 10]]
    what["annotations"][2]["area"] = 15 * 10
    assert not fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed").tally.rejected
    for note in what["annotations"]:
        note |= {"bbox": [0.1, 0.2, 0.5, 0.5]}
    with pytest.raises(
        PackError,
        match=r"bbox of the first 3 annotations has no number above 1, so they look like .* expected pixels",
    ):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "other")


def test_area_of_most_boxes(tmp_path: Path) -> None:
    what = content(3)
    for at, note in enumerate(what["annotations"]):
        note |= {"bbox": [3, 4, 13 + at, 10], "area": (10 + at) * 6.0}
    what["annotations"][1]["area"] = 0  # says nothing
    with pytest.raises(PackError, match="because the area or the polygon is that of these corners"):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")


@becomes("the same, where polygons show it, though `area` is third times fourth number", "refused")
def test_corners_by_polygons(tmp_path: Path) -> None:
    what = content(3)
    for at, note in enumerate(what["annotations"]):
        right = 10 + at
        polygon = [2, 3, right, 3, right, 9, 2, 9]
        note |= {"bbox": [2, 3, right, 9], "segmentation": [polygon], "area": right * 9}
    with pytest.raises(
        PackError, match=r"xyxy .* the area or the polygon is that of these corners"
    ):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "none")
    for note in what["annotations"]:
        left, top, right, bottom = note["bbox"]
        note["bbox"] = [left, top, right - left, bottom - top]
    fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")
    boxes, _ = by_path(tmp_path / "packed", "boxes")["001.jpg"]
    assert boxes.tolist() == [[2, 3, 11, 9]]


@becomes(
    "the same, where few boxes end outside of their images",
    "x, y, width, height; that they may be corners is said",
)
def test_doubtful_corners(tmp_path: Path) -> None:
    what = content(20)
    for note in what["annotations"]:
        note["bbox"] = [3, 4, 13, 10]
    what["annotations"][7]["bbox"] = [20, 10, 40, 28]
    source = write(tmp_path / "src", what)
    summary = fastpipe.pack(source, tmp_path / "packed", bad_boxes="clip")
    (text,) = [each for each in map(str, summary.assumed) if each.startswith("bbox")]
    assert "though 1 of the first 20 end outside" in text
    assert text.endswith("as xyxy (x0, y0, x1, y1) all lie inside (--box-format xyxy or xywh)")
    settled = fastpipe.pack(source, tmp_path / "settled", box_format="xywh", bad_boxes="clip")
    assert not any(str(each).startswith("bbox") for each in settled.assumed)
    boxes, _ = by_path(tmp_path / "packed", "boxes")["000.jpg"]
    assert boxes.tolist() == [[3, 4, 16, 14]]
    # A box that is no two corners answers it.
    what["annotations"][0]["bbox"] = [20, 4, 13, 10]
    summary = fastpipe.pack(write(source.parent, what), tmp_path / "other", bad_boxes="clip")
    assert not any(str(each).startswith("bbox") for each in summary.assumed)


def test_corners_of_few_boxes(tmp_path: Path) -> None:
    what = content(4)
    boxes = [[5, 5, 15, 15], [10, 3, 38, 28], [20, 10, 35, 25], [1, 1, 5, 6]]
    for note, box in zip(what["annotations"], boxes, strict=True):
        note["bbox"] = box
    with pytest.raises(PackError, match="and 2 end outside as x, y, width, height"):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")


def test_a_form_of_boxes_without_boxes(tmp_path: Path) -> None:
    what = content(1)
    note = what["annotations"][0]
    note.pop("bbox", None)
    note["caption"] = "a cat"
    file = write(tmp_path / "src", what)
    with pytest.raises(PackError, match=r"^box_format: .* has no boxes \(bbox\); leave it out"):
        fastpipe.pack(file, tmp_path / "packed", box_format="xyxy")


def test_a_box_by_its_centre(tmp_path: Path) -> None:
    what = content(1)
    what["annotations"][0]["bbox"] = [10, 12, 8, 6]
    fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed", box_format="cxcywh")
    boxes, _ = by_path(tmp_path / "packed", "boxes")["000.jpg"]
    assert boxes.tolist() == [[6, 9, 14, 15]]
    what["annotations"][0]["bbox"] = [10, 12, 8]
    with pytest.raises(PackError, match="the centre's x and y, width, height"):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "none", box_format="cxcywh")


@pytest.mark.parametrize("area", [None, 0, "product"])
@pytest.mark.parametrize("is_late", [False, True], ids=["images first", "annotations first"])
def test_corners_by_the_size_of_images(tmp_path: Path, area: Any, is_late: bool) -> None:
    what = content(3)
    # The first box may be either; the others end outside of 30 rows or of 41 and 42 columns.
    for note, box in zip(
        what["annotations"], [[3, 4, 13, 10], [20, 5, 41, 30], [2, 20, 30, 29]], strict=True
    ):
        note["bbox"] = box
        if area is not None:
            note["area"] = box[2] * box[3] if area == "product" else area
    if is_late:
        what["images"] = what.pop("images")
    source = write(tmp_path / "src", what)
    with pytest.raises(
        PackError,
        match=r"the bbox of the first 3 annotations looks like xyxy \(x0, y0, x1, y1\), because all lie "
        "inside their images as corners, and 2 end outside as x, y, width, height; expected x, y, "
        "width, height, as COCO has them. --box-format xyxy reads them as corners",
    ):
        fastpipe.pack(source, tmp_path / "packed")
    fastpipe.pack(source, tmp_path / "corners", box_format="xyxy")
    boxes, _ = by_path(tmp_path / "corners", "boxes")["001.jpg"]
    assert boxes.tolist() == [[20, 5, 41, 30]]
    # With a box that cannot be corners, the boxes over the edge are what they seem to be.
    what["annotations"][0]["bbox"] = [13, 4, 3, 10]
    summary = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed", bad_boxes="clip")
    assert not summary.tally.rejected
    packed = by_path(tmp_path / "packed", "boxes")
    assert {path: boxes.tolist() for path, (boxes, _) in packed.items()} == {
        "000.jpg": [[13, 4, 16, 14]],
        "001.jpg": [[20, 5, 41, 30]],
        "002.jpg": [[2, 20, 32, 30]],
    }


@becomes("COCO, the numbers of boxes and points as texts (Roboflow)", "the same as numbers")
def test_numbers_as_texts(tmp_path: Path) -> None:
    what = content()
    what["categories"][0]["keypoints"] = ["head"]
    what["annotations"][0] |= {"bbox": ["12.5", "3", "10", "20.25"], "area": "202.5"}
    what["annotations"][0]["keypoints"] = ["13", "4.5", "2"]
    what["annotations"][1] |= {"bbox": [1, "2", 3.5, 4], "area": 14}
    what["annotations"][1]["keypoints"] = [2, 3, 1]
    summary = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")
    assert not summary.tally.rejected
    packed = by_path(tmp_path / "packed", "boxes", "area", "keypoints")
    boxes, _, area, points, visibility = packed["000.jpg"]
    assert (boxes.tolist(), area) == ([[12.5, 3, 22.5, 23.25]], [202.5])
    assert (points.tolist(), visibility.tolist()) == ([[[13, 4.5]]], [[2]])
    boxes, _, area, points, visibility = packed["001.jpg"]
    assert (boxes.tolist(), area) == ([[1, 2, 4.5, 6]], [14])
    assert (points.tolist(), visibility.tolist()) == ([[[2, 3]]], [[1]])


@pytest.mark.parametrize("seed", range(5))
def test_boxes_around_runs_are_pycocotools(seed: int) -> None:
    mask = (np.random.default_rng(seed).random((7, 5)) < 0.1).astype(np.uint8)
    mask[seed % 7, seed % 5] = 1
    runs = coco_mask.encode(np.asfortranarray(mask))
    ys, xs = np.nonzero(mask)
    expected = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
    assert find_box_around({"size": [7, 5], "counts": runs["counts"].decode()}) == expected
    x, y, width, height = coco_mask.toBbox(runs).tolist()
    assert [x, y, x + width, y + height] == expected


@becomes(
    "LVIS, COCO with `coco_url` and no file_name",
    "FOLDER/NAME of the URL, or NAME in one folder; else what to do",
)
def test_coco_url(tmp_path: Path) -> None:
    what = content()
    for at, image in enumerate(what["images"]):
        image["coco_url"] = f"http://images.cocodataset.org/val2017/{at:03d}.jpg"
        del image["file_name"]
    (tmp_path / "lvis").mkdir()
    flat_photos(tmp_path / "lvis/val2017", 2)
    source = write(tmp_path / "lvis", what)
    for number, root in enumerate((None, tmp_path / "lvis", tmp_path / "lvis/val2017")):
        fastpipe.pack(source, tmp_path / f"packed{number}", image_root=root)
        found = by_path(tmp_path / f"packed{number}", "boxes")
        names = [
            f"{'' if root == tmp_path / 'lvis/val2017' else 'val2017/'}{at:03d}.jpg"
            for at in (0, 1)
        ]
        assert {path: boxes.tolist() for path, (boxes, _) in found.items()} == {
            name: [[1, 2, 11, 22]] for name in names
        }
    fastpipe.pack(write(tmp_path / "flat", what), tmp_path / "flat_packed")
    assert sorted(by_path(tmp_path / "flat_packed", "boxes")) == ["000.jpg", "001.jpg"]
    (tmp_path / "none").mkdir()
    words = (
        r"'val2017/000\.jpg', is in none of .* Images have a coco_url and no file_name: download "
        r"them, .* --image-root"
    )
    with pytest.raises(PackError, match=words):
        fastpipe.pack(write(tmp_path / "none", what), tmp_path / "other")


@becomes(
    "COCO with boxes and polygons",
    "boxes; the polygons are counted",
    "--field boxes --field mask=segmentation:mask",
)
def test_polygons_are_left_out(tmp_path: Path) -> None:
    what = content()
    what["annotations"][0]["segmentation"] = [[1, 2, 11, 2, 11, 22, 1, 22]]
    what["annotations"][1]["segmentation"] = []
    source = write(tmp_path / "src", what)
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert assumed.text == "annotations with polygons or runs (segmentation): 1; they are left out"
    summary = fastpipe.pack(source, tmp_path / "masks", fields=["boxes", "mask=segmentation:mask"])
    assert not summary.assumed
    mask = by_path(tmp_path / "masks", "mask")["000.jpg"]
    assert mask[10, 5] == 1
    assert mask[25, 5] == 0


@becomes(
    "COCO with polygons beside keypoints, areas or captions",
    "the option that keeps the polygons names the other fields, too",
    "--field boxes --field area --field mask=segmentation:mask",
)
def test_the_option_for_masks_keeps_all_fields(tmp_path: Path) -> None:
    what = content()
    what["annotations"][0] |= {"segmentation": [[1, 2, 11, 2, 11, 22, 1, 22]], "area": 200}
    source = write(tmp_path / "src", what)
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert assumed.option == "--field boxes --field area --field mask=segmentation:mask"
    fields = assumed.option.replace("--field", "").split()
    assert not fastpipe.pack(source, tmp_path / "masks", fields=fields).assumed
    assert {*fastpipe.open(tmp_path / "packed").fields, "mask"} == {
        *fastpipe.open(tmp_path / "masks").fields
    }
    what["categories"].append({"id": 0, "name": "bee"})
    source = write(tmp_path / "src", what)
    (assumed,) = fastpipe.pack(source, tmp_path / "zero").assumed
    assert assumed.option.endswith("--field mask=instances:mask")


@becomes("COCO, boxes of crowds (`iscrowd`)", "boxes like the others; the summary counts them")
def test_crowds_are_counted(tmp_path: Path) -> None:
    what = content()
    for number, note in enumerate(what["annotations"]):
        note["iscrowd"] = number
    (assumed,) = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed").assumed
    assert assumed.text == (
        "boxes of crowds (iscrowd): 1; they are boxes like the others, and field iscrowd tells "
        "which they are"
    )


@becomes(
    "COCO with `attributes` (CVAT), or other entries of annotations",
    "left out; the summary names them",
    "--field boxes --field attributes",
)
@becomes(
    "LVIS, `neg_category_ids` and `not_exhaustive_category_ids`", "left out; the summary names them"
)
def test_further_entries_are_named(tmp_path: Path) -> None:
    what = content()
    what["annotations"][0]["attributes"] = {"rotation": 0.0, "occluded": False}
    what["annotations"][1]["track_id"] = 7
    what["images"][0]["neg_category_ids"] = [1]
    source = write(tmp_path / "src", what)
    attributes, lvis = fastpipe.pack(source, tmp_path / "packed").assumed
    assert str(attributes) == (
        "entries of annotations that are not packed: attributes, track_id; attributes are "
        "occluded, rotation (--field boxes --field attributes)"
    )
    assert lvis.text == "entries of images that are not packed: neg_category_ids"
    fastpipe.pack(source, tmp_path / "all", fields=["boxes", "attributes"])
    assert by_path(tmp_path / "all", "attributes")["000.jpg"] == [
        {"rotation": 0.0, "occluded": False}
    ]


@becomes(
    "COCO, boxes that end less than a pixel outside, or without width",
    "cut off at the edge; as they are. The summary counts both",
)
def test_boxes_at_the_edge_are_counted(tmp_path: Path) -> None:
    what = content(3)
    what["annotations"][0]["bbox"] = [30.5, 2, 10, 20]
    what["annotations"][1]["bbox"] = [5, 5, 0, 10]
    what["annotations"][2]["bbox"] = [2, 2, 40.05, 20]  # rounded, as COCO's own
    summary = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")
    assert [assumed.text for assumed in summary.assumed] == [
        "boxes that end outside the image, by a pixel at most: 1; they are cut off at its edge",
        "boxes without width or height: 1; they are packed as they are",
    ]


PATHS = {
    "sub\\000.jpg": "sub/000.jpg",
    "./sub/000.jpg": "sub/000.jpg",
    "/sub/000.jpg": "sub/000.jpg",
    "C:\\data\\images\\sub\\000.jpg": "images/sub/000.jpg",
    "/home/me/images/sub/000.jpg": "images/sub/000.jpg",
    "../../label-studio/data/media/upload/1/sub/000.jpg": "sub/000.jpg",
    "s%75b/000.jpg": "sub/000.jpg",
    "SUB/000.JPG": "sub/000.jpg",
}


@pytest.mark.parametrize("written", PATHS)
@becomes("COCO, `file_name` with `\\`, `./` or `/` before it", "the image")
@becomes(
    "COCO, `file_name` of another machine, of Label Studio, or with URL escapes",
    "the image by the end of the path, and an example is named",
    "--image-root",
)
def test_paths_of_other_machines(tmp_path: Path, written: str) -> None:
    what = content(2)
    what["images"][0]["file_name"] = written
    what["images"][1]["file_name"] = written.replace("000", "001")
    source = tmp_path / "src"
    flat_photos(source / "images/sub", 2)
    write(source, what)
    for number, options in enumerate(({}, {"image_root": source / "images"})):
        summary = fastpipe.pack(source / "all.json", tmp_path / f"{number}", **options)  # type: ignore[arg-type]
        assert not summary.tally.rejected
        found = by_path(tmp_path / f"{number}", "boxes")
        keys = PATHS[written] if number == 0 else "sub/000.jpg"
        assert sorted(found) == [keys, keys.replace("000", "001")]
        assert found[keys][0].tolist() == [[1, 2, 11, 22]]
        is_by_end = any(
            "found by the end of their file_name" in each.text for each in summary.assumed
        )
        assert is_by_end or written.lower().strip("./").replace("\\", "/") == "sub/000.jpg"


def test_paths_that_end_alike(tmp_path: Path) -> None:
    what = content(2)
    what["images"][0]["file_name"] = "/upload/1/000.jpg"
    what["images"][1]["file_name"] = "/upload/2/000.jpg"
    with pytest.raises(PackError, match=r"/upload/1/000\.jpg and /upload/2/000\.jpg end alike"):
        fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed")
    what["images"][1]["file_name"] = "/upload/2/001.jpg"
    (assumed,) = fastpipe.pack(write(tmp_path / "src", what), tmp_path / "packed").assumed
    assert assumed.text.startswith(
        "images are found by the end of their file_name: /upload/1/000.jpg is 000.jpg in "
    )
    assert sorted(by_path(tmp_path / "packed", "boxes")) == ["000.jpg", "001.jpg"]


@becomes(
    "COCO's `instances_train2017.json` and `instances_val2017.json`",
    "`--split val` is val2017",
    "--split val",
)
def test_the_year_of_a_split_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "src/annotations").mkdir(parents=True)
    for split, number in (("train2017", 1), ("val2017", 2)):
        folder = tmp_path / "src" / split
        folder.mkdir()
        Image.new("RGB", (40, 30)).save(folder / f"{number}.jpg")
        described = {
            "images": [{"id": number, "file_name": f"{number}.jpg", "width": 40, "height": 30}],
            "annotations": [{"id": 1, "image_id": number, "category_id": 1, "bbox": [1, 2, 3, 4]}],
            "categories": [{"id": 1, "name": "cat"}],
        }
        annotations = tmp_path / "src/annotations" / f"instances_{split}.json"
        annotations.write_text(json.dumps(described))
    fastpipe.pack(tmp_path / "src", tmp_path / "packed", split="val")
    data = fastpipe.open(tmp_path / "packed")
    assert [str(key).rpartition("/")[2] for key in data["key"]] == ["2.jpg"]


@becomes(
    "Objects365: `zhiyuan_objv2_train.json` with `images/v1/patch8/a.jpg`, which is `train/patch8/a.jpg`",
    "the images by the ends of their paths; the summary says so",
)
def test_objects365(tmp_path: Path) -> None:
    names = [f"patch{number}/objects365_v1_{number}.jpg" for number in (8, 9)]
    photos(tmp_path / "src/train", *names)
    content = {
        "images": [
            {"id": number, "file_name": f"images/v1/{name}"} for number, name in enumerate(names)
        ],
        "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 1, 4, 4]}],
        "categories": [{"id": 1, "name": "Person"}],
    }
    (tmp_path / "src/zhiyuan_objv2_train.json").write_text(json.dumps(content))
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    (assumption,) = summary.assumed
    assert "images/v1/patch8/objects365_v1_8.jpg is patch8/objects365_v1_8.jpg" in assumption.text
    assert summary.info["samples"] == 2
