"""Splits that lists name, files of another machine, and splits whose annotations differ in form."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, write

import fastpipe
from fastpipe.errors import PackError

LINE = "0 0.5 0.5 0.2 0.2\n"


def yolo(root: Path) -> Path:
    photos(root / "images", "1.jpg", "2.jpg", "3.jpg")
    for name in ("1", "2", "3"):
        write(root / f"labels/{name}.txt", LINE)
    write(root / "train.txt", "/home/bob/set/images/1.jpg\n/home/bob/set/images/2.jpg\n")
    write(root / "val.txt", "/home/bob/set/images/3.jpg\n")
    return root


@becomes(
    "YOLO: `images/`, `labels/`, and `train.txt` and `val.txt` with the paths of another machine",
    "the images of one list",
    "--split train",
)
@pytest.mark.parametrize("names", ["data.yaml", "classes.txt", "Classes.txt"])
def test_lists_of_yolo(tmp_path: Path, names: str) -> None:
    source = yolo(tmp_path / "src")
    text = "cat\ndog\n"
    if names == "data.yaml":
        text = "train: /home/bob/set/train.txt\nval: /home/bob/set/val.txt\nnames: [cat, dog]\n"
    write(source / names, text)
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    assert assumed(fastpipe.pack(source, tmp_path / "packed", split="train")) == []
    data = fastpipe.open(tmp_path / "packed")
    assert sorted(data["key"]) == ["1.jpg", "2.jpg"]
    assert data.fields["boxes"].names == ("cat", "dog")


@becomes(
    "YOLO: one `train.txt` beside `images/` and `labels/`",
    "all images; the list is named as not read",
)
def test_one_list(tmp_path: Path) -> None:
    source = yolo(tmp_path / "src")
    (source / "val.txt").unlink()
    write(source / "classes.txt", "cat\n")
    (text,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert text.startswith("not read, beside the images: train.txt;")
    assert len(fastpipe.open(tmp_path / "packed")) == 3


@becomes(
    "YOLO: `data.yaml` with absolute folders of another machine, `Images/` and `Labels/`",
    "the folders of the same names beside it",
    "--split train",
)
@pytest.mark.parametrize("folder", ["images", "Images"])
def test_folders_of_another_machine(tmp_path: Path, folder: str) -> None:
    source = tmp_path / "src"
    labels = "labels" if folder == "images" else "Labels"
    for split in ("train", "val"):
        photos(source / folder / split, "1.jpg")
        write(source / labels / split / "1.txt", LINE)
    write(
        source / "data.yaml",
        f"train: C:\\set\\{folder}\\train\nval: C:\\set\\{folder}\\val\nnames: [cat]\n",
    )
    assert assumed(fastpipe.pack(source, tmp_path / "packed", split="train")) == []
    sample = fastpipe.open(tmp_path / "packed").with_fields(("boxes",))[0]
    assert len(sample["boxes"]) == 1


@becomes(
    "YOLO: `images/train` alone, with a `data.yaml` whose `val` does not exist or is missing",
    "the images of train, with the option or without; val is refused",
    "--split train",
)
@pytest.mark.parametrize("val", ["", "val: images/val\n"])
@pytest.mark.parametrize("folder", ["images/train", "train/images"])
def test_train_alone(tmp_path: Path, folder: str, val: str) -> None:
    source = tmp_path / "src"
    photos(source / folder, "1.jpg", "2.jpg")
    for name in ("1", "2"):
        write(source / folder.replace("images", "labels") / f"{name}.txt", LINE)
    write(source / "data.yaml", f"train: {folder}\n{val}names: [cat]\n")
    for number, split in enumerate(("train", None)):
        packed = tmp_path / f"packed{number}"
        assert assumed(fastpipe.pack(source, packed, split=split)) == []
        data = fastpipe.open(packed)
        assert sorted(data["key"]) == ["1.jpg", "2.jpg"]
        assert data.fields["boxes"].names == ("cat",)
        assert len(data.with_fields(("boxes",))[0]["boxes"]) == 1
    with pytest.raises(PackError, match="has the splits train, got 'val'; pass one of them"):
        fastpipe.pack(source, tmp_path / "none", split="val")


@becomes(
    "YOLO: `images/train` and `images/val`, with a `data.yaml` that calls the second one otherwise",
    "the images of train; that val is not read is said, with what to do",
    "the path in data.yaml",
)
def test_misnamed_split(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for split in ("train", "val"):
        photos(source / f"images/{split}", f"{split}.jpg")
        write(source / f"labels/{split}/{split}.txt", LINE)
    text = "train: images/train\nval: images/valid\nnames: [cat]\n"
    file = write(source / "data.yaml", text)
    assert assumed(fastpipe.pack(source, tmp_path / "packed")) == [
        f"data.yaml: val: images/valid does not exist, and {source / 'images/val'} does, which is "
        "not read. If it is this split, write its path into the file"
    ]
    assert list(fastpipe.open(tmp_path / "packed")["key"]) == ["train.jpg"]
    write(file, text.replace("valid", "val"))
    assert assumed(fastpipe.pack(source, tmp_path / "val", split="val")) == []
    assert list(fastpipe.open(tmp_path / "val")["key"]) == ["val.jpg"]


@becomes(
    "`train/` of YOLO and `valid/` of COCO",
    "one split, and its form; that the other may have other numbers is said",
    "--classes-from FILE",
)
def test_splits_of_two_formats(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "train/images", "1.jpg")
    write(source / "train/labels/1.txt", LINE)
    write(source / "train/classes.txt", "cat\n")
    photos(source / "valid", "2.jpg")
    coco = {
        "images": [{"id": 1, "file_name": "2.jpg"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 1, 4, 4]}],
        "categories": [{"id": 3, "name": "cat"}],
    }
    write(source / "valid/_annotations.coco.json", coco)
    said = (
        "classes: numbered as in train, of the format yolo; valid is of the format coco, and may "
        "have other numbers (--classes-from FILE)"
    )
    assert said in assumed(fastpipe.pack(source, tmp_path / "packed", split="train"))


@becomes(
    "KITTI: `testing/image_2` beside `training/image_2` and `training/label_2`",
    "images without labels",
    "--split testing",
)
def test_a_split_with_a_folder_of_images(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "testing/image_2", "0.png")
    photos(source / "training/image_2", "0.png")
    write(source / "training/label_2/0.txt", "Car 0 0 0\n")
    summary = fastpipe.pack(source, tmp_path / "packed", split="testing")
    assert list(fastpipe.open(tmp_path / "packed")["label"]) == [-1]
    assert fastpipe.open(tmp_path / "packed").classes == []
    assert assumed(summary) == [
        "labels: none, for the split testing has images alone, in image_2; training has labels "
        "beside them"
    ]


@becomes(
    "Kaggle's dog breeds: `test/` beside `train/` and `labels.csv`, which lists the images of train",
    "images without labels; the table is not proposed",
    "--split test",
)
@pytest.mark.parametrize("has_row", [False, True])
def test_a_table_without_images_of_the_split(tmp_path: Path, has_row: bool) -> None:
    source = photos(tmp_path / "src", "train/0a1b2c.jpg", "train/3d4e5f.jpg", "test/6a7b8c.jpg")
    text = "id,breed\n0a1b2c,pug\n3d4e5f,boxer\n"
    if has_row:
        text += "6a7b8c,pug\n"
    table = write(source / "labels.csv", text)
    (notice,) = assumed(fastpipe.pack(source, tmp_path / "packed", split="test"))
    if has_row:
        assert f"if it has the labels, pass {table}" in notice
    else:
        assert notice == "labels: none; labels.csv beside the splits has no image of test"


def test_a_table_of_all_splits_beside_one_of_other_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/0a1b2c.jpg", "test/6a7b8c.jpg")
    write(source / "test.csv", "id,breed\nffffff,pug\n")
    table = write(source / "labels.csv", "id,breed\n0a1b2c,pug\n6a7b8c,pug\n")
    write(source / "train.csv", "id,breed\n0a1b2c,pug\n")
    (notice,) = assumed(fastpipe.pack(source, tmp_path / "packed", split="test"))
    assert f"if it has the labels, pass {table}" in notice
    write(table, "id,breed\n0a1b2c,pug\n")
    (notice, *_) = assumed(fastpipe.pack(source, tmp_path / "packed", split="test", overwrite=True))
    assert notice == "labels: none; test.csv, labels.csv beside the splits has no image of test"


@becomes(
    "KITTI: `testing/` with `calib/` and `image_2/`",
    "refused; the folder of the images is named",
    "SRC/testing/image_2",
)
def test_calibration_beside_images(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for split in ("testing", "training"):
        photos(source / f"{split}/image_2", "0.png", "1.png")
        for name in ("0", "1"):
            write(source / f"{split}/calib/{name}.txt", "P0: 1 2\n")
            write(source / f"training/label_2/{name}.txt", "Car 0 0 0\n")
    images = source / "testing/image_2"
    with pytest.raises(PackError, match=f"To pack the images alone, pass {images}\\. "):
        fastpipe.pack(source, tmp_path / "none", split="testing")
    fastpipe.pack(images, tmp_path / "packed")
    assert list(fastpipe.open(tmp_path / "packed")["label"]) == [-1, -1]


@becomes(
    "Tiny ImageNet: `val/images/` beside `val/val_annotations.txt`",
    "no labels; the command that packs them is named",
    "the list, --image-root, --label-column column_2, --classes-from",
)
def test_tiny_imagenet(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for name in ("n01440764", "n01443537"):
        photos(source / "train" / name / "images", f"{name}_0.JPEG")
    photos(source / "val/images", "val_0.JPEG", "val_1.JPEG")
    table = source / "val/val_annotations.txt"
    write(table, "val_0.JPEG\tn01443537\t0\t0\t9\t9\nval_1.JPEG\tn01440764\t0\t0\t9\t9\n")
    write(source / "words.txt", "n01440764\ttench\n")
    texts = assumed(fastpipe.pack(source, tmp_path / "packed", split="val"))
    command = (
        f"fastpipe pack {table} DST --image-root {source / 'val/images'} --label-column column_2 "
        f"--classes-from {source / 'train'}"
    )
    assert any(f"To pack what it says: {command}." in text for text in texts)
    fastpipe.pack(
        table,
        tmp_path / "table",
        image_root=source / "val/images",
        label_column="column_2",
        classes_from=source / "train",
    )
    data = fastpipe.open(tmp_path / "table")
    assert dict(zip(data["key"], data["label"], strict=True)) == {"val_0.JPEG": 1, "val_1.JPEG": 0}
