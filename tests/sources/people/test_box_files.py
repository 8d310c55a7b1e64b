"""Label files of YOLO and annotations of Pascal VOC, as tools write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.listed import by_path, flat_photos

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError

FROM_ONE = (
    "boxes: pixels are counted from 1, as VOC counts them, for no box begins at 0; so xmin and ymin "
    "lose 1, xmax and ymax stay"
)


def write_yolo(root: Path, *texts: str | None, yaml: str = "names: [ant, bee, cow]\n") -> Path:
    """A photo of width 40 + number and height 30 for each text; None: it has no label file."""
    flat_photos(root / "images", len(texts))
    (root / "labels").mkdir()
    for number, text in enumerate(texts):
        if text is not None:
            (root / "labels" / f"{number:03d}.txt").write_text(text)
    if yaml:
        (root / "data.yaml").write_text(yaml)
    return root


def packed(
    tmp_path: Path, source: Path, *fields: str, **options: Any
) -> tuple[dict[str, Any], list[str]]:
    """The fields of each photo, boxes if no other is named, and the texts of what was assumed."""
    summary = fastpipe.pack(source, tmp_path / "packed", **options)
    assert not summary.tally.rejected
    return by_path(tmp_path / "packed", *(fields or ("boxes",))), [
        each.text for each in summary.assumed
    ]


@becomes("YOLO, the class as 2.0", "the class 2")
def test_a_class_as_a_fraction(tmp_path: Path) -> None:
    found, assumed = packed(tmp_path, write_yolo(tmp_path / "yolo", "2.0 0.5 0.5 0.5 0.2\n"))
    boxes, labels = found["000.jpg"]
    assert (boxes.tolist(), labels.tolist(), assumed) == ([[10, 12, 30, 18]], [2], [])


@becomes(
    "YOLO, polygons among boxes (a segmentation set)",
    "the box around each polygon; the summary counts them",
)
@becomes(
    "YOLO OBB, as Roboflow and Ultralytics write it: a class and 8 numbers",
    "the box around the four corners",
)
def test_polygons(tmp_path: Path) -> None:
    obb = "1 0.25 0.2 0.5 0.1 0.75 0.5 0.5 0.9\n"
    source = write_yolo(tmp_path / "yolo", "2 0.5 0.5 0.5 0.2\n0 0.1 0.2 0.3 0.2 0.2 0.8\n" + obb)
    found, assumed = packed(tmp_path, source)
    boxes, labels = found["000.jpg"]
    np.testing.assert_allclose(
        boxes, [[10, 12, 30, 18], [4, 6, 12, 24], [10, 3, 30, 27]], rtol=1e-6
    )
    assert labels.tolist() == [2, 0, 1]
    assert assumed == [
        "polygons or rotated boxes in label files: 2; the boxes are those around them, and the "
        "outlines and angles are lost"
    ]


def polygon(label: int, left: int, top: int, right: int, bottom: int) -> str:
    """A line with the corners of a rectangle in a photo of 40 x 30 pixels."""
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return f"{label} " + " ".join(f"{x / 40} {y / 30}" for x, y in corners) + "\n"


@becomes(
    "YOLO, polygons of a segmentation set, as masks",
    "a field `mask`: the class + 1 in the pixels of a polygon, 0 is background; later lines cover earlier ones",
    "--field mask=segmentation:mask",
)
@becomes(
    "the same, with a mask that tells objects apart",
    "a field `objects`: the number of the line, from 1, in the pixels of its polygon",
    "--field objects=instances:mask",
)
def test_masks_of_polygons(tmp_path: Path) -> None:
    text = polygon(2, 10, 5, 20, 15) + polygon(0, 15, 10, 30, 20)
    source = write_yolo(tmp_path / "yolo", text, None)
    fields = ["boxes", "mask=segmentation:mask", "objects=instances:mask"]
    found, assumed = packed(tmp_path, source, "boxes", "mask", "objects", fields=fields)
    boxes, labels, mask, objects = found["000.jpg"]
    expected = np.zeros((30, 40), int)
    expected[5:15, 10:20] = 3
    expected[10:20, 15:30] = 1
    assert np.squeeze(mask).tolist() == expected.tolist()
    assert np.squeeze(objects).tolist() == np.array([0, 2, 0, 1])[expected].tolist()
    np.testing.assert_allclose(boxes, [[10, 5, 20, 15], [15, 10, 30, 20]], rtol=1e-6)
    assert labels.tolist() == [2, 0]
    assert not found["001.jpg"][2].any()
    assert assumed == ["images without a label file: 1 of 2; they have no boxes"]
    fields_of_dataset = fastpipe.open(tmp_path / "packed").fields
    assert fields_of_dataset["mask"].names == ("", "ant", "bee", "cow")
    assert fields_of_dataset["objects"].names == ()


@becomes(
    "YOLO, boxes among the polygons of which masks are wanted",
    "the image is rejected with the number of the object",
    "--field mask=segmentation:mask",
)
def test_masks_of_boxes(tmp_path: Path) -> None:
    source = write_yolo(tmp_path / "yolo", polygon(2, 10, 5, 20, 15), "0 0.5 0.5 0.5 0.2\n")
    summary = fastpipe.pack(source, tmp_path / "packed", fields=["mask=segmentation:mask"])
    assert summary.tally.rejected == [
        ("001.jpg", "001.txt: object 1 is a box, and a mask needs a polygon (001.jpg)")
    ]
    with pytest.raises(PackError, match="label files of YOLO have boxes, segmentation, instances"):
        fastpipe.pack(source, tmp_path / "none", fields=["area"])
    with pytest.raises(PackError, match="expected the kind mask, or none"):
        fastpipe.pack(source, tmp_path / "none", fields=["mask=segmentation:json"])


@becomes(
    "YOLO, a sixth number a line (a confidence, a track)",
    "the boxes; the summary counts the numbers left out",
)
def test_a_sixth_number(tmp_path: Path) -> None:
    found, assumed = packed(
        tmp_path, write_yolo(tmp_path / "yolo", "2 0.5 0.5 0.5 0.2 0.93\n", "0 0.5 0.5 1 1 17\n")
    )
    assert [boxes.tolist() for boxes, _ in found.values()] in (
        [[[10, 12, 30, 18]], [[0, 0, 41, 30]]],
        [[[0, 0, 41, 30]], [[10, 12, 30, 18]]],
    )
    assert assumed == [
        "lines with a sixth number, such as a confidence or a track: 2; it is left out"
    ]


@becomes("YOLO, a line twice", "one box, as Ultralytics does it; the summary counts them")
def test_a_line_twice(tmp_path: Path) -> None:
    line, other = "2 0.5 0.5 0.5 0.2\n", "0 0.5 0.5 1 1\n"
    found, assumed = packed(
        tmp_path, write_yolo(tmp_path / "yolo", f"{line}{other}2 0.50 0.5 0.5 0.2\n")
    )
    boxes, labels = found["000.jpg"]
    assert (boxes.tolist(), labels.tolist()) == ([[10, 12, 30, 18], [0, 0, 40, 30]], [2, 0])
    assert assumed == ["lines that are listed twice in a label file: 1; each is taken once"]


@becomes(
    "YOLO, labels counted from 1 beside names of as many classes", "refused", "--first-label 1"
)
def test_labels_from_1(tmp_path: Path) -> None:
    source = write_yolo(
        tmp_path / "yolo", "1 0.5 0.5 0.5 0.2\n", "3 0.5 0.5 0.5 0.2\n2 0.5 0.5 1 1"
    )
    words = (
        "the highest label is 3, none is 0, and there are 3 names: the labels are counted from 1. "
        "With --first-label 1"
    )
    with pytest.raises(PackError, match=words):
        fastpipe.pack(source, tmp_path / "packed")
    found, assumed = packed(tmp_path, source, first_label=1)
    assert {path: labels.tolist() for path, (_, labels) in found.items()} == {
        "000.jpg": [0],
        "001.jpg": [2, 1],
    }
    assert PackedIndex(tmp_path / "packed").info["packs"][0]["options"]["source"] == {
        "first_label": 1
    }
    assert assumed == []
    reasons = fastpipe.pack(
        write_yolo(tmp_path / "other", "0 0.5 0.5 1 1", "1 0.5 0.5 1 1"),
        tmp_path / "one",
        first_label=1,
    )
    assert reasons.tally.rejected[0][1].startswith(
        "000.txt, line 1: expected a class from 1 to 3 and x, y"
    )


@becomes("YOLO pose (kpt_shape in data.yaml)", "boxes and keypoints, with flip_idx")
def test_pose(tmp_path: Path) -> None:
    yaml = "names: [ant]\nkpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n"
    source = write_yolo(
        tmp_path / "yolo", "0 0.5 0.5 0.5 0.2 0.1 0.2 2 0.3 0.4 1 0 0 0\n", "", yaml=yaml
    )
    found, _ = packed(tmp_path, source, "boxes", "keypoints")
    boxes, labels, points, seen = found["000.jpg"]
    assert (boxes.tolist(), labels.tolist(), seen.tolist()) == (
        [[10, 12, 30, 18]],
        [0],
        [[2, 1, 0]],
    )
    np.testing.assert_allclose(points, [[[4, 6], [12, 12], [0, 0]]], rtol=1e-6)
    assert PackedIndex(tmp_path / "packed").fields["keypoints"].flip_pairs == ((1, 2),)
    (source / "labels/001.txt").write_text("0 0.5 0.5 0.5 0.2\n")
    reasons = fastpipe.pack(source, tmp_path / "more").tally.rejected
    assert "x, y, width, height and 3 points of 3 numbers, normalised (0 to 1)" in reasons[0][1]
    (source / "data.yaml").write_text(yaml.replace("[0, 2, 1]", "[0, 2, 3]"))
    with pytest.raises(PackError, match="flip_idx: expected the numbers 0 to 2"):
        fastpipe.pack(source, tmp_path / "other")


@becomes(
    "YOLO without data.yaml, with classes.txt of LabelImg or Label Studio", "its names, by number"
)
def test_names_of_labelimg(tmp_path: Path) -> None:
    for number, place in enumerate(("labels/classes.txt", "classes.txt", "obj.names")):
        source = write_yolo(tmp_path / str(number), "1 0.5 0.5 0.5 0.2\n", yaml="")
        (source / place).write_text("ant\nsmall bee\n\n")
        fastpipe.pack(source, tmp_path / f"packed{number}")
        assert PackedIndex(tmp_path / f"packed{number}").fields["boxes"].names == (
            "ant",
            "small bee",
        )


@becomes("YOLO, `nc` of another number than there are names", "refused")
def test_another_number_of_classes(tmp_path: Path) -> None:
    source = write_yolo(tmp_path / "yolo", "1 0.5 0.5 0.5 0.2\n", yaml="nc: 3\nnames: [ant, bee]\n")
    with pytest.raises(
        PackError,
        match=r"data\.yaml: expected names of the classes: nc is 3, and there are 2 names",
    ):
        fastpipe.pack(source, tmp_path / "packed")
    (source / "data.yaml").write_text("nc: 2\nnames: {0: ant, 1: 7}\n")
    fastpipe.pack(source, tmp_path / "packed")
    assert PackedIndex(tmp_path / "packed").fields["boxes"].names == ("ant", "7")


@becomes(
    "YOLO, images without a label file", "no boxes, as Ultralytics does it; the summary counts them"
)
@becomes("YOLO, labels of other names than the images", "refused")
def test_images_without_labels(tmp_path: Path) -> None:
    source = write_yolo(tmp_path / "yolo", "0 0.5 0.5 1 1\n", None, "")
    found, assumed = packed(tmp_path, source)
    assert {path: len(boxes) for path, (boxes, _) in found.items()} == {
        "000.jpg": 1,
        "001.jpg": 0,
        "002.jpg": 0,
    }
    assert assumed == ["images without a label file: 1 of 3; they have no boxes"]
    for name in ("000", "002"):
        (source / f"labels/{name}.txt").rename(source / f"labels/photo_{name}.txt")
    words = r"none of the 2 label files in .*/labels, such as photo_000.txt, is called after an image in .*/images"
    with pytest.raises(PackError, match=words):
        fastpipe.pack(source, tmp_path / "other")


@becomes(
    "YOLO, 1.jpg and 1.png beside each other",
    "both with the boxes of 1.txt; the summary counts them",
)
def test_one_label_file_of_two_images(tmp_path: Path) -> None:
    source = write_yolo(tmp_path / "yolo", "0 0.5 0.5 1 1\n")
    Image.new("RGB", (20, 10)).save(source / "images/000.png")
    found, assumed = packed(tmp_path, source)
    assert {path: boxes.tolist() for path, (boxes, _) in found.items()} == {
        "000.jpg": [[0, 0, 40, 30]],
        "000.png": [[0, 0, 20, 10]],
    }
    text = "images whose names differ in the ending alone, such as 1.jpg and 1.png: 1; they have the same label file"
    assert assumed == [text]


@becomes(
    "label files of DOTA (corners in pixels, the name, difficult) with YOLO's `data.yaml`",
    "the user has to choose; as YOLO, each image is rejected with that reason",
    "--format annotations",
)
def test_dota(tmp_path: Path) -> None:
    source = write_yolo(tmp_path / "yolo", "1 1 20 1 20 9 1 9 plane 0\n", "")
    with pytest.raises(PackError, match="several kinds of source: annotations, yolo"):
        fastpipe.pack(source, tmp_path / "none")
    ((path, reason),) = fastpipe.pack(source, tmp_path / "packed", format="yolo").tally.rejected
    assert (path, "a line of DOTA's" in reason) == ("000.jpg", True)


def write_voc(root: Path, *objects: str) -> Path:
    """A photo for each text, which are the objects of its annotation."""
    flat_photos(root / "JPEGImages", len(objects))
    (root / "Annotations").mkdir()
    for number, text in enumerate(objects):
        (root / f"Annotations/{number:03d}.xml").write_text(
            f"<annotation><filename>{number:03d}.jpg</filename>{text}</annotation>"
        )
    return root


def thing(name: str, box: tuple[float, ...] = (), rest: str = "") -> str:
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=False)
    inner = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    return f"<object><name>{name}</name>{rest}{f'<bndbox>{inner}</bndbox>' if box else ''}</object>"


@becomes(
    "VOC, Unspecified or nothing as difficult, pose, truncated",
    "not difficult; the summary counts Unspecified",
)
@becomes("VOC, boxes of parts in an object", "the object's own box")
def test_unspecified(tmp_path: Path) -> None:
    unspecified = "".join(
        f"<{tag}>Unspecified</{tag}>" for tag in ("difficult", "pose", "truncated")
    )
    part = "<part><name>head</name><bndbox><xmin>3</xmin><ymin>3</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></part>"
    things = (
        thing("dog", (1, 2, 20, 30), unspecified),
        thing("ant", (1, 1, 9, 9), part + "<difficult>1</difficult>"),
        thing("ant", (1, 1, 9, 8), "<difficult/>"),
        thing("ant", (1, 1, 9, 7)),
    )
    found, assumed = packed(
        tmp_path, write_voc(tmp_path / "voc", "".join(things)), "boxes", "difficult"
    )
    boxes, labels, difficult = found["000.jpg"]
    assert boxes.tolist() == [[0, 1, 20, 30], [0, 0, 9, 9], [0, 0, 9, 8], [0, 0, 9, 7]]
    assert (labels.tolist(), difficult) == ([1, 0, 0, 0], [0, 1, 0, 0])
    assert assumed == [
        FROM_ONE,
        "objects that say neither 0 nor 1 as difficult: 1; they are taken as not difficult",
        "attributes of objects that are not packed: part",
    ]


@becomes(
    "VOC with polygons (LabelMe, CVAT, Roboflow)",
    "bndbox; where it is missing, the box around the polygon",
)
def test_polygons_of_voc(tmp_path: Path) -> None:
    labelme = "<polygon><pt><x>3</x><y>5</y></pt><pt><x>9</x><y>4</y></pt><pt><x>6</x><y>8</y></pt></polygon>"
    roboflow = "<polygon><x1>3</x1><y1>5</y1><x2>9</x2><y2>4</y2><x3>6</x3><y3>8</y3></polygon>"
    source = write_voc(
        tmp_path / "voc",
        thing("a", (2, 2, 30, 30), roboflow),
        thing("a", (), labelme),
        thing("a", (), roboflow),
    )
    found, assumed = packed(tmp_path, source)
    assert [found[f"00{number}.jpg"][0].tolist() for number in range(3)] == [
        [[1, 1, 30, 30]],
        [[2, 3, 9, 8]],
        [[2, 3, 9, 8]],
    ]
    assert assumed == [
        FROM_ONE,
        "objects with a polygon and no bndbox: 2; the boxes are those around them",
    ]


@becomes(
    "VOC, boxes that begin at 0 (CVAT, scripts)",
    "pixels counted from 0 in all; the summary says so",
)
def test_voc_from_0(tmp_path: Path) -> None:
    source = write_voc(tmp_path / "voc", thing("a", (0, 2, 20, 30)), thing("a", (3, 4, 9, 9)))
    found, assumed = packed(tmp_path, source)
    assert [found[f"00{number}.jpg"][0].tolist() for number in range(2)] == [
        [[0, 2, 20, 30]],
        [[3, 4, 9, 9]],
    ]
    assert assumed == ["boxes that begin at 0: 1 of 2; so pixels are counted from 0, not from 1"]


@becomes(
    "VOC, an object without a name, without a box, or with a rotated box alone",
    "rejected, with that reason",
)
def test_objects_that_lack_something(tmp_path: Path) -> None:
    rotated = "<robndbox><cx>9</cx><cy>9</cy><w>4</w><h>4</h><angle>0.3</angle></robndbox>"
    source = write_voc(
        tmp_path / "voc",
        thing("", (1, 1, 2, 2)),
        thing("a"),
        thing("a", (), rotated),
        thing("a", (1, 1, 2, 2)),
    )
    reasons = dict(fastpipe.pack(source, tmp_path / "packed").tally.rejected)
    words = (
        "object 0 has no name",
        "object 0 (a): expected a bndbox or a polygon, got none",
        "got a robndbox",
    )
    for number, expected in enumerate(words):
        assert any(
            f"{number:03d}" in path and expected in reason for path, reason in reasons.items()
        ), expected
    assert len(reasons) == 3


@becomes(
    "VOC, LabelImg: images without an annotation",
    "left out; the summary counts them and names one; or images without boxes",
    "--unlisted keep",
)
def test_images_without_an_annotation(tmp_path: Path) -> None:
    source = write_voc(tmp_path / "voc", thing("a", (1, 1, 9, 9)), thing("a", (1, 1, 9, 8)))
    flat_photos(source / "JPEGImages", 4)
    found, texts = packed(tmp_path, source)
    assert sorted(found) == ["000.jpg", "001.jpg"]
    text = "images without an annotation: 2 of 4, such as 00[23].jpg; they are left out"
    counted, left_out = texts
    assert counted == FROM_ONE
    assert re.fullmatch(text, left_out)
    boxes, _ = packed_objects(source, tmp_path / "kept", unlisted="keep")
    first = [("a", [0, 0, 9, 9])]
    second = [("a", [0, 0, 9, 8])]
    assert boxes == {"000.jpg": first, "001.jpg": second, "002.jpg": [], "003.jpg": []}
    _, summary = packed_objects(source, tmp_path / "packed")
    assert summary.assumed[-1].option == "--unlisted drop or keep"
    _, summary = packed_objects(source, tmp_path / "packed", unlisted="drop")
    assert [entry.text for entry in summary.assumed] == [FROM_ONE]


def test_images_of_a_split_without_an_annotation(tmp_path: Path) -> None:
    source = write_voc(tmp_path / "voc", thing("a", (1, 1, 9, 9)), thing("a", (1, 1, 9, 8)))
    flat_photos(source / "JPEGImages", 4)
    (source / "ImageSets/Main").mkdir(parents=True)
    (source / "ImageSets/Main/train.txt").write_text("000\n003\n")
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    (reason,) = dict(summary.tally.rejected).values()
    assert reason == "no such annotation; --unlisted keep packs the image without boxes"
    boxes, _ = packed_objects(source, tmp_path / "kept", split="train", unlisted="keep")
    assert boxes == {"000.jpg": [("a", [0, 0, 9, 9])], "003.jpg": []}


@becomes(
    "LabelImg, whose boxes count pixels from 0, though none begins at 0",
    "counted from 1, as VOC does it; this is said, with the option",
    "--first-pixel 0",
)
def test_voc_from_0_by_option(tmp_path: Path) -> None:
    source = write_voc(tmp_path / "voc", thing("a", (3, 4, 20, 30)))
    boxes, summary = packed_objects(source, tmp_path / "packed")
    assert boxes == {"000.jpg": [("a", [2, 3, 20, 30])]}
    assert [str(entry) for entry in summary.assumed] == [f"{FROM_ONE} (--first-pixel 0 or 1)"]
    boxes, summary = packed_objects(source, tmp_path / "packed", first_pixel=0)
    assert boxes == {"000.jpg": [("a", [3, 4, 20, 30])]}
    assert not summary.assumed
    yolo = write_yolo(tmp_path / "yolo", "0 0.5 0.5 0.5 0.2\n")
    with pytest.raises(PackError, match=r"^first_pixel: it has no effect on YOLO labels"):
        fastpipe.pack(yolo, tmp_path / "none", first_pixel=0)


OTHER_PICTURE = (
    "files that have the name of one image, and name another image inside: {}; the name of the file "
    "counts"
)


@pytest.mark.parametrize(
    ("names", "other_count"),
    [(("001.jpg", "000.jpg"), 2), (("001", "D:\\old\\001.jpg"), 1)],
)
@becomes(
    "VOC: 000.xml that names 001.jpg, as after renaming",
    "the image with the name of the file counts; the files are counted",
)
def test_stale_names_of_voc(tmp_path: Path, names: tuple[str, str], other_count: int) -> None:
    """Names in a circle, or several files with one name."""
    source = write_voc(tmp_path / "voc", thing("a", (1, 1, 9, 9)), thing("a", (1, 1, 5, 5)))
    for number, name in enumerate(names):
        file = source / f"Annotations/{number:03d}.xml"
        file.write_text(file.read_text().replace(f"{number:03d}.jpg", name))
    boxes, assumed = packed(tmp_path, source)
    assert boxes["000.jpg"][0].tolist() == [[0, 0, 9, 9]]
    assert boxes["001.jpg"][0].tolist() == [[0, 0, 5, 5]]
    assert assumed == [FROM_ONE, OTHER_PICTURE.format(other_count)]


@becomes(
    "VOC: several files without an image of their name, whose `<filename>` is the same image",
    "a sample each; the summary counts such images",
)
def test_files_of_voc_for_one_picture(tmp_path: Path) -> None:
    source = write_voc(tmp_path / "voc", thing("a", (1, 1, 9, 9)), thing("a", (1, 1, 5, 5)))
    second = source / "Annotations/001.xml"
    (source / "Annotations/copy.xml").write_text(second.read_text())
    boxes, assumed = packed(tmp_path, source)
    assert boxes["001.jpg"][0].tolist() == [[0, 0, 5, 5]]
    assert boxes["001.jpg#2"][0].tolist() == [[0, 0, 5, 5]]
    assert assumed[1:] == [
        "images that several annotations name: 1, such as 001.jpg; each annotation is a sample of "
        "its own"
    ]


@becomes("VOC, truncated, occluded, pose and parts of objects", "left out; the summary names them")
def test_attributes_of_objects(tmp_path: Path) -> None:
    part = "<part><name>head</name></part>"
    source = write_voc(
        tmp_path / "voc",
        thing("a", (1, 1, 9, 9), "<truncated>1</truncated><pose>Unspecified</pose>"),
        thing("a", (1, 1, 9, 8), f"<occluded>0</occluded>{part}"),
    )
    _, assumed = packed(tmp_path, source)
    assert assumed == [FROM_ONE, "attributes of objects that are not packed: part, truncated"]
