"""Folders of splits whose labels are in tables: the message that lists the splits names the tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import labels, photos, tags, values, write

import fastpipe
from fastpipe.errors import PackError


def message_of(source: Path) -> str:
    """The message that lists the splits of a source."""
    with pytest.raises(PackError, match=r"has the splits .*; pass one of them") as refused:
        fastpipe.pack(source, source.parent / "none")
    return str(refused.value)


@becomes(
    "Kaggle's contests (Cassava): `train.csv` beside `train_images/` and `test_images/`",
    "refused: the splits are named, and the command that packs the images of training with their labels",
    "SRC/train.csv --image-root SRC/train_images",
)
def test_a_table_beside_splits(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "train_images/1.jpg", "train_images/2.jpg", "test_images/3.jpg"
    )
    table = write(source / "train.csv", "image_id,label\n1.jpg,3\n2.jpg,0\n")
    write(source / "sample_submission.csv", "image_id,label\n3.jpg,4\n")
    images = source / "train_images"
    command = f"fastpipe pack {table} DST --image-root {images}. --format"
    assert (
        f"train.csv lists the images of train_images: to pack them with what it says, {command}"
        in message_of(source)
    )
    fastpipe.pack(table, tmp_path / "packed", image_root=images)
    assert labels(tmp_path) == {"1.jpg": "3", "2.jpg": "0"}


@becomes(
    "Kaggle's CIFAR-10: `trainLabels.csv` with ids beside `train/` and `test/`, which both have `1.png`",
    "refused: the splits are named, and the command for the images of training",
    "SRC/trainLabels.csv --image-root SRC/train --image-column id",
)
def test_ids_of_training_that_test_has_too(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", *(f"{split}/{n}.png" for split in ("test", "train") for n in (1, 2))
    )
    table = write(source / "trainLabels.csv", "id,label\n1,frog\n2,truck\n")
    images = source / "train"
    words = f"fastpipe pack {table} DST --image-root {images} --image-column id. "
    message = message_of(source)
    assert words in message
    assert "the images of test" not in message
    fastpipe.pack(table, tmp_path / "packed", image_root=images, image_column="id")
    assert labels(tmp_path) == {"1.png": "frog", "2.png": "truck"}


@becomes(
    "boxes in `train.csv` beside `train/` and `test/` (VinBigData)",
    "refused: the splits are named, and the command for the images of training",
    "SRC/train.csv --image-root SRC/train",
)
def test_boxes_beside_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/aa.jpg", "train/bb.jpg", "test/cc.jpg")
    text = "image_id,class_name,x_min,y_min,x_max,y_max\naa,No finding,,,,\nbb,Nodule,1,2,9,8\n"
    table = write(source / "train.csv", text)
    assert f"fastpipe pack {table} DST --image-root {source / 'train'}. " in message_of(source)
    fastpipe.pack(table, tmp_path / "packed", image_root=source / "train")
    assert values(tmp_path, "boxes") == {"aa.jpg": [[], []], "bb.jpg": [[[1, 2, 9, 8]], [0]]}


@becomes(
    "Roboflow's multi-label export: `_classes.csv` in `train/` and in `valid/`",
    "refused: the splits are named, and the command for each",
    "SRC/train/_classes.csv --field tags=apple,banana:classes",
)
def test_tables_in_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/a.jpg", "train/b.jpg", "valid/c.jpg", "valid/d.jpg")
    header = "filename, apple, banana\n"
    table = write(source / "train/_classes.csv", f"{header}a.jpg, 0, 1\nb.jpg, 1, 1\n")
    other = write(source / "valid/_classes.csv", f"{header}c.jpg, 0, 1\nd.jpg, 1, 0\n")
    message = message_of(source)
    for path in (table, other):
        assert f"fastpipe pack {path} DST --field tags=apple,banana:classes" in message
    assert message.index(str(table)) < message.index(str(other))
    fastpipe.pack(table, tmp_path / "packed", fields=["tags=apple,banana:classes"])
    assert tags(tmp_path, "tags") == {"a.jpg": {"banana"}, "b.jpg": {"apple", "banana"}}


@becomes(
    "the root of Tiny ImageNet, whose `val/` has `val_annotations.txt` beside `images/`",
    "refused: the splits are named, and the command for val",
    "val_annotations.txt --image-root images --label-column column_2 --classes-from train",
)
def test_a_list_in_the_split_of_validation(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "train", "n02/images/n02_0.JPEG", "n01/images/n01_0.JPEG", "n03/images/x.JPEG")
    photos(source / "val/images", "val_0.JPEG", "val_1.JPEG")
    text = "val_0.JPEG\tn02\t0\t9\nval_1.JPEG\tn03\t0\t3\n"
    table = write(source / "val/val_annotations.txt", text)
    images = source / "val/images"
    options = f"--image-root {images} --label-column column_2 --classes-from {source / 'train'}"
    assert f"fastpipe pack {table} DST {options}. " in message_of(source)
    chosen: dict[str, Any] = {"label_column": "column_2", "classes_from": source / "train"}
    fastpipe.pack(table, tmp_path / "packed", image_root=images, **chosen)
    assert labels(tmp_path) == {"val_0.JPEG": "n02", "val_1.JPEG": "n03"}


@pytest.mark.parametrize(
    ("pictures", "name", "text"),
    [
        # class folders have the labels
        (["train/cat/1.jpg", "train/dog/2.jpg", "test/cat/3.jpg"], "train.csv", "id,x\n1,a\n2,b\n"),
        (["train/1.jpg", "test/2.jpg"], "labels.csv", "id,label\n1,cat\n2,dog\n"),  # of all splits
        (["train/1.jpg", "test/2.jpg"], "names.csv", "name\n1.jpg\n2.jpg\n"),  # paths alone
        (["train/1.jpg", "test/2.jpg"], "prices.csv", "name,price\nx,1\ny,2\n"),  # of nothing here
    ],
)
def test_other_tables_are_not_named(
    tmp_path: Path, pictures: list[str], name: str, text: str
) -> None:
    source = photos(tmp_path / "src", *pictures)
    write(source / name, text)
    assert not re.search(r"lists the images|\.csv", message_of(source))
