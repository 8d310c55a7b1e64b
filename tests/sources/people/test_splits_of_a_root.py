"""Roots with a folder, or tars, for each split."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs.cli_run import failed
from support.sources.becomes import becomes
from support.sources.listed import by_path
from support.sources.people import write
from support.sources.photo_trees import labels_of, packed_labels, photos
from support.sources.tars import write_tar

import fastpipe
from fastpipe.errors import DatasetError, PackError

TRAIN = ("train/ant/1.jpg", "train/bee/2.jpg", "train/cow/3.jpg")
VAL = ("val/ant/4.jpg", "val/cow/5.jpg")
THREE = ["ant", "bee", "cow"]


def both_splits(
    source: Path, into: Path, first: str = "train", second: str = "val"
) -> Iterator[Any]:
    """Without --split nothing is packed; then classes and labels of two splits."""
    with pytest.raises(PackError, match=f"has the splits .*{second}.*; pass one of them"):
        fastpipe.pack(source, into / "none")
    assert not (into / "none").exists()
    for split in (first, second):
        yield packed_labels(source, into / split, split=split)


@becomes(
    "`train/` and `val/` with class folders",
    "one source with splits; a class has one number in all",
    "--split",
)
def test_folders_of_splits(tmp_path: Path) -> None:
    train, val = both_splits(photos(tmp_path / "src", *TRAIN, *VAL), tmp_path)
    assert train == (THREE, {"ant/1.jpg": 0, "bee/2.jpg": 1, "cow/3.jpg": 2})
    assert val == (THREE, {"ant/4.jpg": 0, "cow/5.jpg": 2})


@pytest.mark.parametrize(
    "names", [("Training", "Testing"), ("TRAIN", "valid"), ("seg_train/seg_train", "seg_test")]
)
@becomes(
    "`Training/` and `Testing/`, `TRAIN/`, `seg_train/seg_train/`",
    "as `train/` and `val/`",
    "--split",
)
def test_other_names_of_splits(tmp_path: Path, names: tuple[str, str]) -> None:
    source = tmp_path / "src"
    for name, paths in zip(names, (TRAIN, VAL), strict=True):
        photos(source / name, *(path.partition("/")[2] for path in paths))
    first, second = (name.partition("/")[0] for name in names)
    _, (classes, labels) = both_splits(source, tmp_path, first, second)
    assert (classes, labels) == (THREE, {"ant/4.jpg": 0, "cow/5.jpg": 2})


def test_a_split_may_be_asked_for_by_another_name(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *TRAIN, *(path.replace("val", "Validation") for path in VAL))
    assert packed_labels(source, tmp_path / "packed", split="val")[1] == {
        "ant/4.jpg": 0,
        "cow/5.jpg": 2,
    }
    with pytest.raises(PackError, match=r"^split: .* has the splits Validation, train, got .test."):
        fastpipe.pack(source, tmp_path / "other", split="test")


@becomes(
    "a loader of a folder with `train/` and `val/`",
    "refused; classes are those of all splits",
    "split=",
)
def test_opening_without_packing(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *TRAIN, *VAL)
    for take in (fastpipe.open, fastpipe.loader):
        with pytest.raises(DatasetError) as caught:
            take(source)
        assert f"fastpipe.open('{source}', split='train')" in str(caught.value)
        assert str(source / "train") in str(caught.value)
    for _ in range(2):  # the second time from the cache
        data = fastpipe.open(source, split="val")
        assert (data.classes, labels_of(data)) == (THREE, {"ant/4.jpg": 0, "cow/5.jpg": 2})
    (_, labels), *_ = fastpipe.loader(data, 2, size=8, train=False, num_workers=1)
    assert labels.tolist() == [0, 2]
    assert len(fastpipe.open(source, split="train")) == 3
    fastpipe.pack(source, tmp_path / "packed", split="val")
    with pytest.raises(fastpipe.ConfigError, match="packed dataset, which is one split already"):
        fastpipe.open(tmp_path / "packed", split="val")


@becomes(
    "class folders, one of which is called `test`", "stays a class, and is named", "--split test"
)
def test_a_class_that_is_called_like_a_split(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat/1.jpg", "dog/2.jpg", "test/3.jpg")
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert fastpipe.open(tmp_path / "packed").classes == ["cat", "dog", "test"]
    assert [str(each) for each in summary.assumed] == [
        "test: a class, though it looks like a split (--split test)"
    ]


@becomes(
    "class folders beside `test/` with the same class folders",
    "refused: `test/` is a split",
    "--split test",
)
def test_a_split_among_the_classes_of_another_one(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat/1.jpg", "dog/2.jpg", "test/cat/3.jpg", "test/dog/4.jpg")
    with pytest.raises(PackError, match="a folder test with the same classes, which is a split"):
        fastpipe.pack(source, tmp_path / "packed")
    assert packed_labels(source, tmp_path / "test", split="test") == (
        ["cat", "dog"],
        {"cat/3.jpg": 0, "dog/4.jpg": 1},
    )


@becomes(
    "`train/` and `val/`, packed as classes on purpose",
    "two classes, and named",
    "--format imagefolder",
)
def test_splits_as_classes_on_purpose(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *TRAIN, *VAL)
    summary = fastpipe.pack(source, tmp_path / "packed", format="imagefolder")
    assert fastpipe.open(tmp_path / "packed").classes == ["train", "val"]
    assert "looks like a split" in summary.assumed[0].text


@becomes("a zip's folder around `train/` and `val/`", "refused, with the path to pass")
def test_a_folder_around_the_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *(f"data/{path}" for path in (*TRAIN, *VAL)))
    with pytest.raises(
        PackError, match=f"holds one folder, and in it the splits train, val. Pass {source}/data"
    ):
        fastpipe.pack(source, tmp_path / "packed")


@becomes("a folder around the class folders", "one class, and named, with the path to pass")
def test_a_folder_around_the_classes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "animals/ant/1.jpg", "animals/bee/2.jpg")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert (
        f"the folders in it (ant, bee) are the classes or splits, pass {source}/animals"
        in assumed.text
    )


@becomes(
    "`train/` with class folders, `test/` with images alone",
    "no labels in `test`; the classes of `train`",
    "--split",
)
def test_a_split_without_labels(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *TRAIN, "test/1.jpg", "test/2.jpg")
    assert packed_labels(source, tmp_path / "test", split="test") == (
        THREE,
        {"1.jpg": -1, "2.jpg": -1},
    )


@becomes(
    "`test/unknown/` beside `train/` with class folders",
    "no labels in `test`, and named",
    "--split",
)
def test_a_split_with_a_folder_that_is_no_class(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *TRAIN, "test/unknown/1.jpg")
    assert packed_labels(source, tmp_path / "train", split="train")[0] == THREE
    summary = fastpipe.pack(source, tmp_path / "test", split="test")
    assert labels_of(fastpipe.open(tmp_path / "test")) == {"unknown/1.jpg": -1}
    assert "labels: none, for the only folder of the split test, unknown" in summary.assumed[0].text


def test_an_only_folder_among_the_given_classes_is_a_class(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *TRAIN, "test/bat/1.jpg")
    first = fastpipe.pack(source, tmp_path / "first", split="test")
    assert [assumed.option for assumed in first.assumed] == ["--classes-from FILE"]
    assert labels_of(fastpipe.open(tmp_path / "first")) == {"bat/1.jpg": -1}

    given = [*THREE, "bat"]
    summary = fastpipe.pack(source, tmp_path / "second", split="test", classes_from=given)
    assert summary.assumed == ()
    assert fastpipe.open(tmp_path / "second").classes == given
    assert labels_of(fastpipe.open(tmp_path / "second")) == {"bat/1.jpg": 3}


@becomes(
    "a class that the training split lacks",
    "in the classes of all splits, and named",
    "--classes-from",
)
def test_a_class_that_only_validation_has(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *TRAIN, *VAL, "val/bat/6.jpg")
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    assert fastpipe.open(tmp_path / "packed").classes == ["ant", "bat", "bee", "cow"]
    assert "; val has bat, which the training split lacks" in summary.assumed[0].text


@becomes("`cat/train/`, `cat/test/` (splits in class folders)", "all in one, and named")
def test_splits_in_class_folders(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "cat/train/1.jpg", "cat/test/2.jpg", "dog/train/3.jpg", "dog/test/4.jpg"
    )
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert "the folders test, train in the class folders are no splits" in assumed.text


def yolo(root: Path, split: str, line: str, images: str = "{split}/images") -> None:
    folder = images.format(split=split)
    photos(root, f"{folder}/{split}.jpg")
    labels = root / folder.replace("images", "labels")
    labels.mkdir(parents=True, exist_ok=True)
    (labels / f"{split}.txt").write_text(line)


@pytest.mark.parametrize(
    "said", ["../{split}/images", "{split}/images", "{root}/{split}/images", "/content/{split}"]
)
@becomes(
    "Roboflow's YOLO: `train/images`, `train/labels`, `data.yaml` above",
    "boxes with the names",
    "--split",
)
def test_yolo_of_roboflow(tmp_path: Path, said: str) -> None:
    source = tmp_path / "src"
    yolo(source, "train", "1 0.5 0.5 0.5 0.5\n")
    yolo(source, "valid", "0 0.5 0.5 0.25 0.5\n")
    train, valid = (said.format(split=split, root=source) for split in ("train", "valid"))
    (source / "data.yaml").write_text(f"names: [ant, bee]\nnc: 2\ntrain: {train}\nval: {valid}\n")
    with pytest.raises(PackError, match="has the splits train, val"):
        fastpipe.pack(source, tmp_path / "none")
    for split, label, x in (("train", 1, 4), ("valid", 0, 6)):
        fastpipe.pack(source, tmp_path / split, split=split)
        boxes, labels = by_path(tmp_path / split, "boxes")[f"{split}.jpg"]
        assert (boxes.tolist(), labels.tolist()) == ([[x, 4, 16 - x, 12]], [label])
        assert fastpipe.open(tmp_path / split).fields["boxes"].names == ("ant", "bee")


@becomes(
    "Ultralytics' YOLO: `images/train`, and other names in `data.yaml`",
    "the folders that it says",
    "--split",
)
def test_yolo_whose_splits_only_the_yaml_says(tmp_path: Path) -> None:
    source = tmp_path / "src"
    yolo(source, "north", "1 0.5 0.5 0.5 0.5\n", "{split}/images")
    yolo(source, "south", "0 0.5 0.5 0.5 0.5\n", "{split}/images")
    (source / "data.yaml").write_text(
        "path: .\nnames: {0: ant, 1: bee}\ntrain: north/images\nval: south/images\n"
    )
    with pytest.raises(PackError, match="has the splits train, val"):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "packed", split="train")
    assert by_path(tmp_path / "packed", "boxes")["north.jpg"][1].tolist() == [1]


@becomes("YOLO with lists of images (`train: train.txt`)", "the images of the list", "--split")
def test_yolo_with_lists(tmp_path: Path) -> None:
    source = tmp_path / "src"
    yolo(source, "a", "1 0.5 0.5 0.5 0.5\n", "images")
    yolo(source, "b", "0 0.5 0.5 0.5 0.5\n", "images")
    (source / "data.yaml").write_text("names: [ant, bee]\ntrain: train.txt\nval: val.txt\n")
    (source / "train.txt").write_text("./images/a.jpg\n")
    (source / "val.txt").write_text("images/b.jpg\n")
    fastpipe.pack(source, tmp_path / "packed", split="val")
    assert {
        name: labels.tolist() for name, (_, labels) in by_path(tmp_path / "packed", "boxes").items()
    } == {"b.jpg": [0]}


@pytest.mark.parametrize(
    ("north", "south"), [("images/north", "images/south"), ("north/images", "south/images")]
)
@pytest.mark.parametrize("form", ["[{}, {}]", "\n- {}\n- {}", "\n  - ./{}\n  - ../{}"])
@becomes("YOLO with several folders a split in `data.yaml`", "the images of all of them", "--split")
def test_yolo_with_several_folders(tmp_path: Path, form: str, north: str, south: str) -> None:
    source = tmp_path / "src"
    for number, folder in enumerate((north, south, "images/val")):
        yolo(source, f"{number}", f"{number % 2} 0.5 0.5 0.5 0.5\n", folder)
    yaml = f"path: .\nnames: [ant, bee]\ntrain: {form.format(north, south)}\nval: images/val\n"
    (source / "data.yaml").write_text(yaml)
    with pytest.raises(PackError, match="has the splits train, val"):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "packed", split="train")
    found = {
        Path(path).name: labels.tolist()
        for path, (_, labels) in by_path(tmp_path / "packed", "boxes").items()
    }
    assert found == {"0.jpg": [0], "1.jpg": [1]}


def test_entries_of_a_yaml_that_lose_images_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "src"
    yolo(source, "a", "1 0.5 0.5 0.5 0.5\n", "images/a")
    (source / "list.txt").write_text("images/a/a.jpg\n")
    for entry, words in {
        "[images/a, images/b]": "train: images/b does not exist, and .*images/a does",
        "[images/a, {path: b}]": "train: expected the paths of folders, got {'path': 'b'}",
        "[images/a, list.txt]": r"several folders or one list of images; .*list.txt is a file",
    }.items():
        (source / "data.yaml").write_text(f"names: [ant, bee]\ntrain: {entry}\n")
        with pytest.raises(PackError, match=words):
            fastpipe.pack(source, tmp_path / "packed")


@becomes("YOLO with `classes.txt` (Label Studio, LabelImg)", "the names of that file")
def test_yolo_with_a_text_of_names(tmp_path: Path) -> None:
    for number, place in enumerate(("", "labels")):
        source = tmp_path / f"src-{number}"
        yolo(source, "a", "1 0.5 0.5 0.5 0.5\n", "images")
        (source / place / "classes.txt").write_text("ant\nbee\n")
        fastpipe.pack(source, tmp_path / str(number))
        assert fastpipe.open(tmp_path / str(number)).fields["boxes"].names == ("ant", "bee")


@becomes("a split of YOLO without `labels/`", "refused, with the path of its images")
def test_yolo_with_a_split_without_labels(tmp_path: Path) -> None:
    source = tmp_path / "src"
    yolo(source, "train", "1 0.5 0.5 0.5 0.5\n")
    photos(source, "test/images/1.jpg")
    with pytest.raises(
        PackError, match=f"the split test .* has no labels, .* pass {source}/test/images"
    ):
        fastpipe.pack(source, tmp_path / "packed", split="test")


def coco(folder: Path, name: str, category: int) -> None:
    photos(folder, f"{name}.jpg")
    image = {"id": 1, "file_name": f"{name}.jpg", "width": 16, "height": 16}
    box = {
        "id": 1,
        "image_id": 1,
        "category_id": category,
        "bbox": [2, 4, 6, 8],
        "iscrowd": 0,
        "area": 48,
    }
    said = {
        "info": {},
        "images": [image],
        "annotations": [box],
        "categories": [{"id": 1, "name": "ant"}, {"id": 2, "name": "bee"}],
    }
    (folder / "_annotations.coco.json").write_text(json.dumps(said))


@becomes(
    "COCO of Roboflow: `train/_annotations.coco.json` among the images",
    "boxes with the names",
    "--split",
)
def test_coco_of_roboflow(tmp_path: Path) -> None:
    source = tmp_path / "src"
    coco(source / "train", "a", 1)
    coco(source / "valid", "b", 2)
    with pytest.raises(PackError, match="has the splits train, valid"):
        fastpipe.pack(source, tmp_path / "none")
    for split, name, label in (("train", "a", 1), ("valid", "b", 2)):
        assert not fastpipe.pack(source, tmp_path / split, split=split).tally.rejected
        boxes, labels = by_path(tmp_path / split, "boxes")[f"{name}.jpg"]
        assert (boxes.tolist(), labels.tolist()) == ([[2, 4, 8, 12]], [label])
        assert fastpipe.open(tmp_path / split).fields["boxes"].names == ("", "ant", "bee")


def voc(folder: Path, name: str, label: str) -> None:
    photos(folder, f"{name}.jpg")
    box = "<bndbox><xmin>3</xmin><ymin>5</ymin><xmax>8</xmax><ymax>12</ymax></bndbox>"
    size = "<size><width>16</width><height>16</height></size>"
    text = f"<annotation><filename>{name}.jpg</filename>{size}<object><name>{label}</name>{box}</object></annotation>"
    (folder / f"{name}.xml").write_text(text)


@becomes(
    "VOC of Roboflow: a `.xml` beside each image, in `train/` and `valid/`",
    "boxes; one list of names",
    "--split",
)
def test_voc_of_roboflow(tmp_path: Path) -> None:
    source = tmp_path / "src"
    voc(source / "train", "a", "ant")
    voc(source / "train", "c", "bee")
    voc(source / "valid", "b", "bee")
    fastpipe.pack(source, tmp_path / "packed", split="valid")
    boxes, labels = by_path(tmp_path / "packed", "boxes")["b.jpg"]
    assert (boxes.tolist(), labels.tolist()) == ([[2, 4, 8, 12]], [1])
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("ant", "bee")


@becomes(
    "VOC of Roboflow, where a box of another split alone begins at 0",
    "pixels counted from 0 in both; the summary says so",
    "--split",
)
def test_voc_of_roboflow_with_a_box_at_0_in_another_split(tmp_path: Path) -> None:
    source = tmp_path / "src"
    voc(source / "train", "a", "ant")
    voc(source / "valid", "b", "ant")
    annotation = source / "valid/b.xml"
    annotation.write_text(annotation.read_text().replace("<xmin>3<", "<xmin>0<"))
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    boxes, _ = by_path(tmp_path / "packed", "boxes")["a.jpg"]
    assert boxes.tolist() == [[3, 5, 8, 12]]
    assert [str(assumption) for assumption in summary.assumed] == [
        "boxes: pixels are counted from 0, not from 1, for boxes of other splits begin at 0"
    ]


VOC_OBJECT = "<object><name>{}</name><bndbox><xmin>3</xmin><ymin>4</ymin><xmax>9</xmax><ymax>8</ymax></bndbox></object>"


@becomes(
    "VOC: `images/train/`, `images/val/` beside `annotations/train/`, `annotations/val/`",
    "boxes of the split, with one list of names",
    "--split",
)
def test_splits_of_voc_in_both_folders(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for split, stem, name in (("train", "1", "bee"), ("val", "2", "ant")):
        photos(source / "images", f"{split}/{stem}.jpg")
        text = f"<annotation>{VOC_OBJECT.format(name)}</annotation>"
        write(source / f"annotations/{split}/{stem}.xml", text)
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    for split, key, label in (("train", "1.jpg", 1), ("val", "2.jpg", 0)):
        fastpipe.pack(source, tmp_path / split, split=split)
        ((path, (boxes, labels)),) = by_path(tmp_path / split, "boxes").items()
        assert (path, boxes.tolist(), labels.tolist()) == (key, [[2, 3, 9, 8]], [label])
        assert fastpipe.open(tmp_path / split).fields["boxes"].names == ("ant", "bee")


@becomes(
    "the same with `train/` alone",
    "its boxes, with the option or without",
    "--split train",
)
def test_one_split_of_voc(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "images", "train/1.jpg")
    text = f"<annotation>{VOC_OBJECT.format('bee')}</annotation>"
    write(source / "annotations/train/1.xml", text)
    for number, split in enumerate((None, "train")):
        fastpipe.pack(source, tmp_path / f"packed{number}", split=split)
        boxes, _ = by_path(tmp_path / f"packed{number}", "boxes")["1.jpg"]
        assert boxes.tolist() == [[2, 3, 9, 8]]
    with pytest.raises(PackError, match="has the splits train, got 'val'; pass one of them"):
        fastpipe.pack(source, tmp_path / "none", split="val")


@becomes(
    "VOC: images in folders of the classes, and annotations in one folder",
    "refused, with what to do",
    "SRC/images for the images alone",
)
def test_voc_in_other_class_folders(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for name in ("ant", "bee"):
        photos(source / "images", f"{name}/1.jpg")
        text = f"<annotation>{VOC_OBJECT.format(name)}</annotation>"
        write(source / f"annotations/{name}.xml", text)
    with pytest.raises(
        PackError,
        match=r"images holds the folders ant, bee and no images. Expected all images in images and "
        r"all annotations of VOC in annotations, .* pass .*images to pack the images without",
    ):
        fastpipe.pack(source, tmp_path / "none", format="voc")
    fastpipe.pack(source / "images", tmp_path / "packed")
    assert fastpipe.open(tmp_path / "packed").classes == ["ant", "bee"]


@becomes("VOC as `images/` beside `annotations/*.xml`", "boxes")
def test_voc_in_other_folders(tmp_path: Path) -> None:
    voc(tmp_path / "src" / "images", "a", "ant")
    (tmp_path / "src" / "annotations").mkdir()
    (tmp_path / "src/images/a.xml").rename(tmp_path / "src/annotations/a.xml")
    assert not fastpipe.pack(tmp_path / "src", tmp_path / "packed").tally.rejected
    assert by_path(tmp_path / "packed", "boxes")["a.jpg"][0].tolist() == [[2, 4, 8, 12]]


def tar(path: Path, samples: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    photos(path.parent / "made", "x.jpg")
    picture = (path.parent / "made" / "x.jpg").read_bytes()
    members: dict[str, bytes] = {}
    for name, label in samples.items():
        members[f"{name}.jpg"] = picture
        if label:
            members[f"{name}.cls"] = label.encode()
    write_tar(path, members)
    (path.parent / "made" / "x.jpg").unlink()
    (path.parent / "made").rmdir()


@pytest.mark.parametrize("pattern", ["{}/0.tar", "imagenet-{}-000000.tar"])
@becomes(
    "tars for each split: `train/*.tar`, or `train-0000.tar` beside `val-0000.tar`",
    "the tars of one",
    "--split",
)
def test_tars_of_splits(tmp_path: Path, pattern: str) -> None:
    tar(tmp_path / "src" / pattern.format("train"), {"a": "0", "b": "2"})
    tar(tmp_path / "src" / pattern.format("val"), {"c": "1"})
    train, val = both_splits(tmp_path / "src", tmp_path)
    assert (train[0], val[0]) == (["0", "1", "2"], ["0", "1", "2"])
    assert (sorted(train[1].values()), list(val[1].values())) == ([0, 2], [1])
    words = r"has the splits train, val\. In Python, .*split='train'\); or pass the"
    with pytest.raises(DatasetError, match=words):
        fastpipe.open(tmp_path / "src")
    assert labels_of(fastpipe.open(tmp_path / "src", split="train")) == train[1]


@pytest.mark.parametrize("pattern", ["{}/0.tar", "photos-{}-0.tar"])
def test_a_class_that_only_tars_of_another_split_have(tmp_path: Path, pattern: str) -> None:
    tar(tmp_path / "src" / pattern.format("train"), {"cat/a": "", "elk/b": ""})
    tar(tmp_path / "src" / pattern.format("val"), {"dog/c": "", "cat/d": ""})
    for split in ("train", "val"):
        summary = fastpipe.pack(tmp_path / "src", tmp_path / split, split=split)
        assert summary.info["classes"] == ["cat", "dog", "elk"]
        (assumed,) = summary.assumed
        assert assumed.text == (
            "classes: those of all splits; val has dog, which the training split lacks"
        )


@becomes("one tar with `train/` and `val/` in it", "the members of one split", "--split")
def test_splits_in_a_tar(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    tar(
        tmp_path / "src" / "photos.tar",
        dict.fromkeys(path.removesuffix(".jpg") for path in (*TRAIN, *VAL)),
    )  # type: ignore[arg-type]
    for number, source in enumerate((tmp_path / "src", tmp_path / "src" / "photos.tar")):
        prefix = "photos.tar/" if source.is_dir() else ""
        train, val = both_splits(source, tmp_path / str(number))
        assert train == (
            THREE,
            {f"{prefix}ant/1.jpg": 0, f"{prefix}bee/2.jpg": 1, f"{prefix}cow/3.jpg": 2},
        )
        assert val == (THREE, {f"{prefix}ant/4.jpg": 0, f"{prefix}cow/5.jpg": 2})
        with pytest.raises(DatasetError, match="split='train'"):
            fastpipe.open(source)
        data = fastpipe.open(source, split="val")
        assert (data.classes, labels_of(data)) == val


@pytest.mark.parametrize("form", ["{}.csv", "{}/metadata.csv"])
@becomes(
    "`train.csv` and `val.csv`, or `train/metadata.csv`, with names of classes",
    "one number in all",
    "--split",
)
def test_lists_of_splits(tmp_path: Path, form: str) -> None:
    source = tmp_path / "src"
    column = "file_name" if "metadata" in form else "path"
    for split, rows in (
        ("train", ("1.jpg,ant", "2.jpg,bee", "3.jpg,cow")),
        ("val", ("4.jpg,ant", "5.jpg,cow")),
    ):
        file = source / form.format(split)
        photos(file.parent, *(row.partition(",")[0] for row in rows))
        file.write_text("\n".join([f"{column},label", *rows]))
    train, val = both_splits_of_files(source, tmp_path)
    assert train == (THREE, {"1.jpg": 0, "2.jpg": 1, "3.jpg": 2})
    assert val == (THREE, {"4.jpg": 0, "5.jpg": 2})


def both_splits_of_files(source: Path, into: Path) -> Iterator[Any]:
    for split in ("train", "val"):
        yield packed_labels(source, into / split, split=split)


@becomes(
    "a folder around another kind of source (`VOCdevkit/VOC2012`, `data/images`, `data/labels`)",
    "refused, with the path to pass",
)
def test_a_folder_around_another_source(tmp_path: Path) -> None:
    source = tmp_path / "src"
    yolo(source / "data", "a", "1 0.5 0.5 0.5 0.5\n", "images")
    with pytest.raises(PackError, match=f"in it a source of the format yolo. Pass {source}/data"):
        fastpipe.pack(source, tmp_path / "packed")


@becomes("a COCO file beside class folders", "refused, with both kinds named", "--format")
def test_coco_beside_class_folders(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "ant/1.jpg", "bee/2.jpg")
    (source / "export.json").write_text('{"images": [], "annotations": [], "categories": []}')
    with pytest.raises(
        PackError, match=r"may be several kinds of source: coco, imagefolder. --format picks one"
    ):
        fastpipe.pack(source, tmp_path / "none")
    assert packed_labels(source, tmp_path / "packed", format="imagefolder")[0] == ["ant", "bee"]


@becomes(
    "Kaggle: `train/` and `test/` with images alone beside a `train.csv` of ids",
    "no labels, and named",
    "--image-root",
)
def test_a_table_beside_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/1.jpg", "test/2.jpg")
    (source / "train.csv").write_text("id,label\n1,cat\n")
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    assert labels_of(fastpipe.open(tmp_path / "packed")) == {"1.jpg": -1}
    assert "labels: none, though train.csv lies beside the splits" in summary.assumed[0].text


def test_a_form_for_results_beside_splits_has_no_labels(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/1.jpg", "test/2.jpg")
    (source / "sampleSubmission.csv").write_text("id,label\n2,0\n")
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    assert not any("sampleSubmission" in assumed.text for assumed in summary.assumed)


@becomes("one folder of images with a table in it", "one class; the table is named", "the table")
def test_a_table_in_the_only_folder(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "faces/1.jpg", "faces/2.jpg")
    table = source / "faces" / "landmarks.csv"
    table.write_text("image_name,x,y\n1.jpg,1,2\n2.jpg,3,4\n")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert "all images are of the class faces, the only folder" in assumed.text
    assert f"pass {table}" in assumed.text


@becomes("`images/` alone, also in `train/`", "one class, or in splits no labels, and named")
def test_a_folder_that_is_called_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/1.jpg")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert (
        f"all images are of the class images, the only folder; for images without labels, pass {source}"
        in assumed.text
    )
    source = photos(tmp_path / "splits", "train/images/1.jpg", "val/images/2.jpg")
    (assumed,) = fastpipe.pack(source, tmp_path / "train", split="train").assumed
    assert assumed.text == (
        "labels: none, for the only folder of the split train, images, looks like a folder of images, "
        "not like a class"
    )
    assert assumed.option == ""
    assert labels_of(fastpipe.open(tmp_path / "train")) == {"images/1.jpg": -1}


def test_a_split_is_named_as_its_user_writes_it(tmp_path: Path) -> None:
    """split in Python, --split in a command; `preview` has no such option."""
    source = tmp_path / "photos"
    for split in ("train", "val"):
        photos(source / split, "cat/1.jpg", "dog/2.jpg")
    words = (
        "has the splits train, val; pass one of them. --format imagefolder (format='imagefolder')"
    )
    with pytest.raises(PackError, match=re.escape(f"split: {source} {words}")):
        fastpipe.pack(source, tmp_path / "packed")
    assert f"fastpipe: --split: {source} {words}" in failed(1, "pack", source, tmp_path / "packed")
    with pytest.raises(PackError, match=r"train, val, got 'trian'; did you mean 'train'\?"):
        fastpipe.pack(source, tmp_path / "packed", split="trian")
    words = f"or pass the folder {source}/train, where the other splits do not count"
    assert words in failed(1, "preview", source)
    with pytest.raises(DatasetError, match="pass the folder") as refused:
        fastpipe.loader(source, 2)
    assert refused.value.__cause__ is None
    assert "--format" not in "".join(traceback.format_exception(refused.value))


def test_a_split_of_a_source_without_splits(tmp_path: Path) -> None:
    photos(tmp_path / "coco/images", "1.jpg")
    content = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 40, "height": 30}],
        "annotations": [],
        "categories": [{"id": 1, "name": "cat"}],
    }
    write(tmp_path / "coco/instances.json", content)
    with pytest.raises(PackError, match=r"^split: .*coco has no splits; leave it out$"):
        fastpipe.pack(tmp_path / "coco", tmp_path / "packed", split="train2017")
