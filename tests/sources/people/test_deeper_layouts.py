"""Datasets whose folders lie deeper or elsewhere than usual: RVL-CDIP, LoveDA, AP-10K, Cityscapes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, masks, photos, values, write

import fastpipe
from fastpipe.errors import PackError


@becomes(
    "RVL-CDIP: `labels/train.txt` with paths such as `imagesa/a/a/a/aaa/1.tif` below `images/`",
    "refused; the lists are named with the folder of the images",
    "SRC/labels/train.txt --image-root SRC/images",
)
def test_lists_of_deep_paths(tmp_path: Path) -> None:
    source = tmp_path / "src"
    paths = [f"images{letter}/{letter}/{letter}/a/{letter}aa00/1.tif" for letter in "abc"]
    photos(source / "images", *paths)
    rows = [f"{path} {number}\n" for number, path in enumerate(paths)]
    table = write(source / "labels/train.txt", rows[0] + rows[1])
    other = write(source / "labels/val.txt", rows[2] + rows[0])
    words = f"Pass the table: {table} or {other}, with --image-root {source / 'images'}. "
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(table, tmp_path / "packed", image_root=source / "images")
    assert labels(tmp_path) == {paths[0]: "0", paths[1]: "1"}


@becomes(
    "Stanford Online Products: `Ebay_train.txt` with a header, beside folders of super classes",
    "the folders are the classes; the list is named with the column of its classes",
    "SRC/Ebay_train.txt --label-column class_id",
)
def test_lists_with_a_header_of_words(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "bicycle_final/1.JPG", "bicycle_final/2.JPG", "chair_final/3.JPG"
    )
    text = "image_id class_id super_class_id path\n1 1 1 bicycle_final/1.JPG\n2 2 1 bicycle_final/2.JPG\n"
    table = write(source / "Ebay_train.txt", text)
    (notice,) = assumed(fastpipe.pack(source, tmp_path / "none"))
    assert notice.endswith(f"pass {table}, with --label-column class_id")
    fastpipe.pack(table, tmp_path / "packed", label_column="class_id")
    data = fastpipe.open(tmp_path / "packed")
    numbers = dict(zip(data["key"], data["label"], strict=True))
    assert numbers == {"bicycle_final/1.JPG": 1, "bicycle_final/2.JPG": 2}


def write_mask(file: Path, number: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array([[0, number]], np.uint8)).save(file)


@becomes(
    "LoveDA: `Train/Rural/images_png/`, `Train/Rural/masks_png/`, and the same in `Urban`",
    "one dataset of both, without labels; this is said",
    "--split Train",
)
def test_several_pairs_of_a_split(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for number, name in enumerate(("Train/Rural", "Train/Urban", "Val/Rural", "Val/Urban"), 1):
        paths = ["images_png/0.png", f"images_png/{number}.png", "images_png/5.png"]
        photos(source / name, *paths, size=(2, 1))
        write_mask(source / name / "masks_png/0.png", number)
        write_mask(source / name / f"masks_png/{number}.png", 9)
        write_mask(source / name / "masks_png/5.png", 0)
    summary = fastpipe.pack(source, tmp_path / "packed", split="Train")
    expected = {
        "Rural/images_png/0.png": [0, 1],
        "Rural/images_png/1.png": [0, 9],
        "Rural/images_png/5.png": [0, 0],
        "Urban/images_png/0.png": [0, 2],
        "Urban/images_png/2.png": [0, 9],
        "Urban/images_png/5.png": [0, 0],
    }
    assert masks(tmp_path) == expected
    notice = "labels: none, for Rural, Urban have images and masks each, and are packed together"
    assert assumed(summary) == [notice]

    summary = fastpipe.pack(source / "Train", tmp_path / "packed", overwrite=True)
    (notice_with_option,) = assumed(summary)
    option = "; if they are the classes, pass the option (--label-pattern '([^/]+)/')"
    assert notice_with_option == notice + option
    fastpipe.pack(source / "Train", tmp_path / "packed", overwrite=True, label_pattern="([^/]+)/")
    assert masks(tmp_path) == expected
    assert labels(tmp_path) == {key: key.partition("/")[0] for key in expected}


def test_a_part_without_masks(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source, "Rural/images/0.png", "Rural/images/1.png", "Urban/images/0.png", size=(2, 1))
    for number in (0, 1):
        write_mask(source / f"Rural/masks/{number}.png", 1)
    with pytest.raises(PackError, match="in Rural a source of the format masks"):
        fastpipe.pack(source, tmp_path / "none")


@becomes(
    "Cityscapes without `--split`: `gtFine` has masks of several kinds",
    "refused: the splits are named, and the option for the masks of numbers",
    "--split train --field mask=gtFine_labelIds",
)
def test_splits_and_kinds_in_one_message(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for split in ("train", "val"):
        stem = f"{split}/x/x_0"
        photos(source, f"leftImg8bit/{stem}_leftImg8bit.png", size=(2, 1))
        for kind in ("instanceIds", "labelIds"):
            write_mask(source / f"gtFine/{stem}_gtFine_{kind}.png", 7)
        photos(source, f"gtFine/{stem}_gtFine_color.png", size=(2, 1))
    words = (
        "has the splits train, val; pass one of them. Each image has masks of the kinds "
        "gtFine_labelIds, gtFine_instanceIds, gtFine_color: add --field mask=gtFine_labelIds, or that "
        "of another kind"
    )
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "packed", split="train", fields=["mask=gtFine_labelIds"])
    assert list(masks(tmp_path).values()) == [[0, 7]]


def coco(name: str) -> dict[str, object]:
    return {
        "images": [{"id": 1, "file_name": name, "width": 40, "height": 30}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 1, "name": "wolf"}],
    }


@becomes(
    "AP-10K: COCO's files in `annotations/`, all images in `data/` beside it",
    "the images in data; this is said",
    "--split train-split1",
)
def test_images_of_coco_in_another_folder(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "data/1.jpg", "data/2.jpg")
    write(source / "annotations/ap10k-train-split1.json", coco("1.jpg"))
    write(source / "annotations/ap10k-val-split1.json", coco("2.jpg"))
    summary = fastpipe.pack(source, tmp_path / "packed", split="ap10k-train-split1")
    folder = source / "data"
    assert assumed(summary)[0] == (
        f"images: those in {folder}, which has the first one (--image-root FOLDER)"
    )
    assert values(tmp_path, "boxes") == {"1.jpg": [[[1, 2, 4, 6]], [1]]}


def test_the_folder_of_another_split_is_not_taken(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "val_data/1.jpg")
    file = write(source / "annotations/instances_train.json", coco("1.jpg"))
    with pytest.raises(PackError, match="--image-root says where the images are"):
        fastpipe.pack(file, tmp_path / "none")
