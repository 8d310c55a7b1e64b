"""Folders around other sources, and folders that are parts of a dataset."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.listed import by_path
from support.sources.photo_trees import packed_labels, photos
from support.sources.tars import tar_of_folder

import fastpipe
from fastpipe.errors import PackError

VOC = (
    "<annotation><filename>a.jpg</filename><size><width>16</width><height>16</height></size><object><name>cat</name>"
    "<bndbox><xmin>3</xmin><ymin>5</ymin><xmax>8</xmax><ymax>12</ymax></bndbox></object></annotation>"
)


def voc(root: Path) -> Path:
    photos(root, "JPEGImages/a.jpg")
    for name, text in (("Annotations/a.xml", VOC), ("ImageSets/Main/train.txt", "a\n")):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    return root


def coco(root: Path) -> Path:
    photos(root, "train2017/a.jpg")
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 16, "height": 16}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [2, 4, 6, 8]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (root / "annotations").mkdir()
    (root / "annotations/instances_train2017.json").write_text(json.dumps(content))
    return root


def yolo(root: Path) -> Path:
    photos(root, "images/a.jpg")
    (root / "labels").mkdir()
    (root / "labels/a.txt").write_text("0 0.3125 0.5 0.375 0.5\n")
    (root / "data.yaml").write_text("names: [cat]\n")
    return root


@pytest.mark.parametrize("make", [voc, coco, yolo])
@pytest.mark.parametrize("around", ["VOCdevkit/VOC2007", "data", "a/b/c"])
@becomes(
    "folders around VOC, COCO or YOLO (`VOC2007/VOCdevkit/VOC2007`)",
    "refused, with the path to pass",
)
def test_folders_around_annotations(tmp_path: Path, make: object, around: str) -> None:
    source = tmp_path / "src"
    inner = make(source / around)  # type: ignore[operator]
    (source / "README.txt").write_text("from the web")
    for options in ({}, {"split": "train"}):
        with pytest.raises(PackError) as caught:
            fastpipe.pack(source, tmp_path / "none", **options)  # type: ignore[arg-type]
        assert f"Pass {inner}. " in str(caught.value)
    fastpipe.pack(inner, tmp_path / "packed", split="train" if make is voc else None)
    boxes, _ = by_path(tmp_path / "packed", "boxes")["a.jpg"]
    assert boxes.tolist() == [[2, 4, 8, 12]]


@becomes("`VOCdevkit/` with `VOC2007/` and `VOC2012/`", "refused, with the path to pass")
@becomes(
    "`VOCtrainval/VOCdevkit/VOC2007` beside `VOCtest/VOCdevkit/VOC2007`",
    "refused, with the path to pass",
)
def test_several_folders_around_annotations(tmp_path: Path) -> None:
    for number, (around, others) in enumerate(
        [("VOC2007", "VOC2012"), ("VOCtest/VOCdevkit/VOC2007", "VOCtrainval")]
    ):
        source = tmp_path / str(number)
        inner = voc(source / around)
        photos(source, f"{others}/JPEGImages/b.jpg")
        with pytest.raises(
            PackError, match=f"holds folders, and in .* a source of the format voc. Pass {inner}"
        ):
            fastpipe.pack(source, tmp_path / "packed")


@becomes(
    "two folders around class folders (`data/animals/cat`)",
    "one class, and named, with the path to pass",
)
@becomes("two folders around `train/` and `val/`", "refused, with the path to pass")
def test_two_folders_around_classes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a/b/cat/1.jpg", "a/b/dog/2.jpg")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert (
        f"the folders in it (cat, dog) are the classes or splits, pass {source}/a/b" in assumed.text
    )
    source = photos(tmp_path / "splits", "a/b/train/cat/1.jpg", "a/b/val/cat/2.jpg")
    with pytest.raises(PackError, match=f"the splits train, val. Pass {source}/a/b"):
        fastpipe.pack(source, tmp_path / "other")


@becomes("a tar of `VOCdevkit/`", "one class; it is named, and the annotations are")
def test_a_tar_around_annotations(tmp_path: Path) -> None:
    voc(tmp_path / "src/VOCdevkit/VOC2007")
    summary = fastpipe.pack(
        tar_of_folder(tmp_path / "src", tmp_path / "voc.tar"), tmp_path / "packed"
    )
    first, second = (each.text for each in summary.assumed)
    assert "all images are of the class VOCdevkit, the only folder in the tar" in first
    assert (
        "are not read: 1, such as VOCdevkit/VOC2007/Annotations/a.xml (annotations of Pascal VOC)"
        in second
    )


@pytest.mark.parametrize(
    "names", [("fold1", "fold2"), ("part_a", "part_b"), ("images_001", "images_002")]
)
@becomes(
    "`fold1/a.jpg`, `fold2/b.jpg`; `part_a/`; `images_001/`",
    "classes, and named",
    "--format imagefolder",
)
def test_parts_with_images(tmp_path: Path, names: tuple[str, str]) -> None:
    source = photos(tmp_path / "src", *(f"{name}/{name}.jpg" for name in names))
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert assumed.text.startswith(
        f"classes: the folders {names[0]}, {names[1]}, though they look like parts"
    )
    assert assumed.option == "--format imagefolder"
    assert not fastpipe.pack(source, tmp_path / "classes", format="imagefolder").assumed
    tar = tar_of_folder(source, tmp_path / "parts.tar")
    (assumed,) = fastpipe.pack(tar, tmp_path / "of_tar").assumed
    assert "look like parts of one dataset" in assumed.text


def test_classes_with_numbers_are_no_parts(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "class1/a.jpg", "class2/b.jpg", "fold/c.jpg", "boeing_747/d.jpg"
    )
    assert not fastpipe.pack(source, tmp_path / "packed").assumed


@becomes(
    "`fold_0/cat/a.jpg`, `fold_1/dog/b.jpg`",
    "refused; a part with the classes of all",
    "--split fold_1",
)
def test_parts_with_classes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "fold_0/ant/1.jpg", "fold_0/cow/2.jpg", "fold_1/cow/3.jpg")
    with pytest.raises(
        PackError, match=r"look like parts of one dataset, and class folders in them \(ant, cow\)"
    ):
        fastpipe.pack(source, tmp_path / "none")
    assert packed_labels(source, tmp_path / "one", split="fold_1") == (
        ["ant", "cow"],
        {"cow/3.jpg": 1},
    )
    with pytest.raises(PackError) as refused:
        fastpipe.pack(source, tmp_path / "none")
    (pattern,) = re.findall(r"--label-pattern '(\S+)' packs all of them", str(refused.value))
    assert packed_labels(source, tmp_path / "all", label_pattern=pattern) == (
        ["ant", "cow"],
        {"fold_0/ant/1.jpg": 0, "fold_0/cow/2.jpg": 1, "fold_1/cow/3.jpg": 1},
    )
    classes, _ = packed_labels(source, tmp_path / "classes", format="imagefolder")
    assert classes == ["fold_0", "fold_1"]


@becomes("`train/Cat` and `val/cat`; `traffic light` and `traffic_light`", "two classes, and named")
def test_classes_that_differ_by_case(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "train/Cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg", "val/dog/4.jpg"
    )
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    assert any(
        "classes: 'Cat', 'cat' differ in letter case" in each.text for each in summary.assumed
    )
    root = voc(tmp_path / "voc")
    second = VOC.replace("a.jpg", "b.jpg").replace("cat", "CAT")
    photos(root, "JPEGImages/b.jpg")
    (root / "Annotations/b.xml").write_text(second)
    summary = fastpipe.pack(root, tmp_path / "boxes", split="train")
    assert any("classes of boxes: 'CAT', 'cat' differ" in each.text for each in summary.assumed)
    source = photos(tmp_path / "spaces", "traffic light/1.jpg", "traffic_light/2.jpg", "dog/3.jpg")
    (assumed,) = fastpipe.pack(source, tmp_path / "other").assumed
    assert "'traffic light', 'traffic_light'" in assumed.text
