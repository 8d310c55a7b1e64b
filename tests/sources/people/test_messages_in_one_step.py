"""Messages about a source that has to be chosen: what they name is accepted, and packs the labels at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from support.sources.people import assumed, labels, masks, photos, values, write

import fastpipe
from fastpipe.errors import PackError


def refusal_of(source: Path) -> str:
    """The message that refuses a source."""
    with pytest.raises(PackError) as refused:
        fastpipe.pack(source, source.parent / "none")
    return str(refused.value)


def test_kinds_are_values_of_format(tmp_path: Path) -> None:
    """Kaggle's Carvana has metadata.csv, which is about cars and lists no image."""
    source = photos(tmp_path / "src", *(f"train/{n}.jpg" for n in (1, 2)), "test/3.jpg")
    for name in ("1_mask.png", "2_mask.png"):
        (source / "train_masks").mkdir(exist_ok=True)
        Image.new("L", (40, 30), 1).save(source / "train_masks" / name)
    write(source / "metadata.csv", "id,year\n1,2014\n")
    message = refusal_of(source)
    words = "kinds of source: masks, or images that metadata.csv describes. --format masks leaves "
    assert words in message
    fastpipe.pack(source, tmp_path / "packed", format="masks", split="train")
    assert set(labels(tmp_path)) == {"train/1.jpg", "train/2.jpg"}


def test_a_list_of_other_images_is_not_named(tmp_path: Path) -> None:
    """Kaggle's test.csv names images of the same folder, and none of train.csv."""
    names = [f"images/{split}_{n}.jpg" for split in ("train", "test") for n in range(4)]
    source = photos(tmp_path / "src", *names)
    write(source / "train.csv", "image_id,label\ntrain_0,a\ntrain_1,b\ntrain_2,a\ntrain_3,b\n")
    write(source / "test.csv", "image_id\ntest_0\ntest_1\n")
    command = f"Pass one: {source / 'train.csv'}, with --image-root {source / 'images'}. --format"
    assert command in refusal_of(source)


def test_a_list_of_some_images_of_the_table_is_named(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *(f"images/{n}.jpg" for n in range(6)))
    rows = "".join(f"{n}.jpg,{'ab'[n % 2]}\n" for n in range(5))
    table = write(source / "labels.csv", f"file,label\n{rows}")
    split_list = write(source / "train.txt", "0.jpg\n1.jpg\n")
    assert f"(add --split-list {split_list} to pack one split)" in refusal_of(source)
    images = source / "images"
    fastpipe.pack(table, tmp_path / "packed", image_root=images, split_list=split_list)
    assert labels(tmp_path) == {"0.jpg": "a", "1.jpg": "b"}


def test_names_of_numbers_beside_a_table_of_a_split(tmp_path: Path) -> None:
    """Cassava has the names of its classes in label_num_to_disease_map.json."""
    source = photos(
        tmp_path / "src", "train_images/1.jpg", "train_images/2.jpg", "test_images/3.jpg"
    )
    table = write(source / "train.csv", "image_id,label\n1.jpg,1\n2.jpg,0\n")
    names = write(source / "label_num_to_disease_map.json", {"0": "blight", "1": "streak"})
    images = source / "train_images"
    command = f"fastpipe pack {table} DST --image-root {images} --classes-from {names}. "
    assert command in refusal_of(source)
    option = f"beside the table may have their names (--classes-from {names})"
    assert assumed(fastpipe.pack(table, tmp_path / "none", image_root=images))[-1].endswith(option)
    fastpipe.pack(table, tmp_path / "packed", image_root=images, classes_from=names)
    assert labels(tmp_path) == {"1.jpg": "streak", "2.jpg": "blight"}


def test_list_of_classes_beside_a_list_of_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *(f"images/{n}.jpg" for n in range(4)))
    table = write(source / "train.txt", "images/0.jpg 0\nimages/1.jpg 1\nimages/2.jpg 1\n")
    names = write(source / "classes.txt", "tench\nshark\n")
    assert f"Pass it: {table}, with --classes-from {names}. " in refusal_of(source)
    texts = assumed(fastpipe.pack(table, tmp_path / "none"))
    assert texts[-1].endswith(f"beside the table may have their names (--classes-from {names})")
    fastpipe.pack(table, tmp_path / "packed", classes_from=names)
    assert set(labels(tmp_path).values()) == {"tench", "shark"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "tench\n"),  # fewer than numbers
        ("val_labels.txt", "images/2.jpg 1\nimages/3.jpg 0\n"),  # images
        ("label_map.json", '{"1": "tench", "2": "shark"}'),  # of other numbers
    ],
)
def test_other_files_name_no_classes(tmp_path: Path, name: str, text: str) -> None:
    source = photos(tmp_path / "src", *(f"images/{n}.jpg" for n in range(4)))
    table = write(source / "train.txt", "images/0.jpg 0\nimages/1.jpg 1\n")
    write(source / name, text)
    assert "--classes-from" not in refusal_of(source)
    assert "--classes-from" not in str(assumed(fastpipe.pack(table, tmp_path / "packed")))


def test_names_of_classes_go_before_their_numbers(tmp_path: Path) -> None:
    """birds.csv of 525 bird species has both beside the class folders."""
    names = [
        f"{split}/{bird}/{n}.jpg" for split in ("train", "test") for bird in "ab" for n in "12"
    ]
    source = photos(tmp_path / "src", *names)
    rows = "".join(
        f"{'ab'.index(name.split('/')[1])},{name},{name.split('/')[1]}\n" for name in names
    )
    table = write(source / "birds.csv", f"class id,filepaths,labels\n{rows}")
    text = assumed(fastpipe.pack(source, tmp_path / "none", split="train"))[-1]
    assert text.endswith(f"pass {table}, with --label-column labels")
    fastpipe.pack(table, tmp_path / "packed", label_column="labels", split="train")
    assert set(labels(tmp_path).values()) == {"a", "b"}


@pytest.mark.parametrize("labels_column", ["a a a a", "0 1 0 1", "a b c a"])
def test_the_first_column_of_labels_stays(tmp_path: Path, labels_column: str) -> None:
    source = photos(tmp_path, *(f"{n}.jpg" for n in range(4)))
    cells = labels_column.split()
    rows = "".join(f"{n}.jpg,{n % 2},{cells[n]}\n" for n in range(4))
    table = write(source / "t.csv", f"file,class id,labels\n{rows}")
    text = assumed(fastpipe.pack(table, tmp_path / "packed"))[-1]
    assert "(--label-column 'class id')" in text


def test_classes_in_the_names_of_images_of_training(tmp_path: Path) -> None:
    """Dogs vs. Cats."""
    names = [f"train/{kind}.{n}.jpg" for kind in ("cat", "dog") for n in range(3)]
    source = photos(tmp_path / "src", *names, "test1/1.jpg", "test1/2.jpg")
    message = refusal_of(source)
    pattern = re.search(r"\(cat, dog\): --split train --label-pattern '(.*)' takes them", message)
    assert pattern is not None
    fastpipe.pack(source, tmp_path / "packed", split="train", label_pattern=pattern[1])
    assert set(labels(tmp_path).values()) == {"cat", "dog"}


@pytest.mark.parametrize("name", ["train/cat/cat.{}.jpg", "train/IMG_{}.jpg"])
def test_names_of_images_without_classes(tmp_path: Path, name: str) -> None:
    names = [name.format(n) for n in range(6)]
    source = photos(tmp_path / "src", *names, "test/1.jpg")
    assert "--label-pattern" not in refusal_of(source)


def test_splits_and_masks_of_voc_in_a_folder(tmp_path: Path) -> None:
    source = tmp_path / "src"
    voc = photos(source / "VOCdevkit/VOC2012", "JPEGImages/1.jpg", "JPEGImages/2.jpg")
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>8</xmax><ymax>9</ymax></bndbox>"
    (voc / "SegmentationClass").mkdir()
    for name in "12":
        text = f"<annotation><object><name>ant</name>{box}</object></annotation>"
        write(voc / f"Annotations/{name}.xml", text)
        Image.new("L", (40, 30), 1).save(voc / f"SegmentationClass/{name}.png")
    for split, image in (("train", "1"), ("val", "2")):
        write(voc / f"ImageSets/Main/{split}.txt", image)
        write(voc / f"ImageSets/Main/ant_{split}.txt", f"{image} 1")
    path = f"Pass {voc}, which has the splits train, val (--split train packs one)"
    assert f"{path}. --format" in refusal_of(source)
    fastpipe.pack(voc, tmp_path / "packed", split="train")
    assert list(values(tmp_path, "boxes")) == ["1.jpg"]

    for split, image in (("train", "1"), ("val", "2")):
        write(voc / f"ImageSets/Segmentation/{split}.txt", image)
    masks_too = "; --format masks --split train packs the masks in SegmentationClass in place of "
    assert path + masks_too in refusal_of(source)
    fastpipe.pack(voc, tmp_path / "packed", split="train", format="masks", overwrite=True)
    assert list(masks(tmp_path)) == ["JPEGImages/1.jpg"]


def test_tables_of_splits_in_a_folder(tmp_path: Path) -> None:
    """A tutorial of TensorFlow's object detection has images/train_labels.csv beside images/train."""
    source = tmp_path / "src"
    images = photos(source / "images", "train/1.jpg", "train/2.jpg", "test/3.jpg", "test/4.jpg")
    header = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
    train = write(
        images / "train_labels.csv", f"{header}1.jpg,40,30,ten,1,2,9,8\n2.jpg,40,30,ten,1,2,9,8\n"
    )
    test = write(
        images / "test_labels.csv", f"{header}3.jpg,40,30,ten,1,2,9,8\n4.jpg,40,30,ten,1,2,9,8\n"
    )
    write(images / "sample_submission.csv", "filename,class\n3.jpg,ten\n4.jpg,ten\n")
    first = f"Pass {train}, with --image-root {images / 'train'}; "
    second = f"or {test}, with --image-root {images / 'test'}; or {images} for the images alone. "
    assert first + second in refusal_of(source)
    fastpipe.pack(train, tmp_path / "packed", image_root=images / "train")
    assert set(values(tmp_path, "boxes")) == {"1.jpg", "2.jpg"}


def test_tables_beside_classes_of_splits_come_second(tmp_path: Path) -> None:
    source = tmp_path / "src"
    data = photos(source / "data", "train/a/1.jpg", "train/b/2.jpg", "test/a/3.jpg", "test/b/4.jpg")
    write(data / "birds.csv", "filepaths,labels\ntrain/a/1.jpg,a\ntrain/b/2.jpg,b\n")
    assert f"Pass {data}. --format" in refusal_of(source)


def yolo_splits(source: Path, form: str, lines: str) -> Path:
    """Splits of YOLO whose label files have these lines; `form`: the folders of a split."""
    for number, split in enumerate(("train", "val")):
        images, label_files = (form.format(kind=kind, split=split) for kind in ("images", "labels"))
        photos(source, f"{images}/{number}.jpg")
        write(source / f"{label_files}/{number}.txt", lines)
    write(source / "data.yaml", "names: [apple, banana]\n")
    return source


_POLYGON = "1 0.1 0.1 0.5 0.1 0.5 0.5\n"
_BOX = "0 0.5 0.5 0.2 0.2\n"
_ROTATED = "0 0.1 0.1 0.5 0.1 0.5 0.5 0.1 0.5\n"


@pytest.mark.parametrize("form", ["{kind}/{split}", "{split}/{kind}"])
def test_polygons_of_splits_of_yolo(tmp_path: Path, form: str) -> None:
    source = yolo_splits(tmp_path / "src", form, _POLYGON)
    fields = ["boxes", "mask=segmentation:mask"]
    options = "--field boxes --field mask=segmentation:mask"
    assert f"The label files have polygons: add {options} to pack" in refusal_of(source)
    fastpipe.pack(source, tmp_path / "packed", split="train", fields=fields)
    assert {number for mask in masks(tmp_path).values() for row in mask for number in row} == {0, 2}


@pytest.mark.parametrize("lines", [_BOX, _POLYGON + _BOX, _ROTATED, "", "no numbers\n", "\0 é"])
@pytest.mark.parametrize("form", ["{kind}/{split}", "{split}/{kind}"])
def test_splits_of_yolo_without_masks(tmp_path: Path, form: str, lines: str) -> None:
    source = yolo_splits(tmp_path / "src", form, lines)
    assert "--field" not in refusal_of(source)
