"""Lists of splits beside sources that have no splits of their own, and splits that users ask for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, masks, photos, write

import fastpipe
from fastpipe.errors import PackError

PETS = ("Abyssinian_1", "Abyssinian_2", "beagle_1", "beagle_12")
BREEDS = r"(?:^|/)([^\W\d_][^/]*?)[-_. ]+\d+[.]\w+$"


def food(root: Path) -> Path:
    photos(root / "images/pie", "11.jpg", "12.jpg", "13.jpg")
    photos(root / "images/sushi", "21.jpg", "22.jpg", "23.jpg")
    write(root / "meta/train.txt", "pie/11\npie/12\nsushi/21\nsushi/22\n")
    write(root / "meta/test.txt", "pie/13\nsushi/23\n")
    return root


@becomes(
    "Food-101: `images/`, its splits in `meta/train.txt`, and `--split train`",
    "refused; the option that takes the list is named",
    "--split-list SRC/meta/train.txt",
)
@pytest.mark.parametrize("folder", ["", "images"])
def test_a_split_that_a_list_has(tmp_path: Path, folder: str) -> None:
    source = food(tmp_path / "src")
    file = source / "meta/train.txt"
    words = f"{file} has the images of this split: pass --split-list {file}"
    if not folder:
        words += f" with {source}/images"
    with pytest.raises(PackError, match=f"{re.escape(words)}$"):
        fastpipe.pack(source / folder, tmp_path / "none", split="train")
    summary = fastpipe.pack(source / "images", tmp_path / "packed", split_list=file)
    assert labels(tmp_path) == {
        "pie/11.jpg": "pie",
        "pie/12.jpg": "pie",
        "sushi/21.jpg": "sushi",
        "sushi/22.jpg": "sushi",
    }
    # The lists of this split and of the other one are no labels that were left out.
    assert assumed(summary) == []


@becomes(
    "Food-101, SUN397: class folders in `images/`, the splits in `meta/train.txt` or `Partitions/`",
    "refused; the folder of the classes is named, with the option for a split",
    "SRC/images --split-list SRC/meta/train.txt",
)
def test_lists_beside_a_folder_of_classes(tmp_path: Path) -> None:
    source = food(tmp_path / "src")
    words = (
        f"Pass {source}/images, whose folders may be the classes; --split-list "
        f"{source}/meta/train.txt packs the images of this list alone. "
    )
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    (source / "meta").rename(source / "Partitions")
    option = f"pass --split-list {source}/Partitions/train.txt"
    with pytest.raises(PackError, match=f"{re.escape(option)}$"):
        fastpipe.pack(source / "images", tmp_path / "none", split="train")


def test_a_split_that_no_list_has(tmp_path: Path) -> None:
    source = food(tmp_path / "src") / "images"
    with pytest.raises(PackError, match=f"split: {source} has no splits; leave it out"):
        fastpipe.pack(source, tmp_path / "none", split="val")


@becomes(
    "CUB: `images/` with `train_test_split.txt` of 0 and 1",
    "refused without a list; with it, the images of training, as `--split 1` has them",
    "--split-list SRC/train_test_split.txt --split train",
)
def test_numbers_of_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/1.ant/a.jpg", "images/2.bee/b.jpg")
    write(source / "images.txt", "1 1.ant/a.jpg\n2 2.bee/b.jpg\n")
    file = write(source / "train_test_split.txt", "1 0\n2 1\n")
    option = f"pass --split-list {file} --split 1 with {source}/images"
    with pytest.raises(PackError, match=re.escape(option)):
        fastpipe.pack(source, tmp_path / "none", split="train")
    fastpipe.pack(source / "images", tmp_path / "packed", split_list=file, split="train")
    assert labels(tmp_path) == {"2.bee/b.jpg": "2.bee"}
    with pytest.raises(PackError, match="0 is test, 1 is train"):
        fastpipe.pack(source / "images", tmp_path / "none", split_list=file, split="val")


def pets(root: Path) -> Path:
    photos(root / "images", *(f"{name}.jpg" for name in PETS))
    (root / "annotations/trimaps").mkdir(parents=True)
    for name in PETS:
        trimap = np.full((30, 40), 2, np.uint8)
        trimap[5:15, 5:15] = 1
        Image.fromarray(trimap).save(root / f"annotations/trimaps/{name}.png")
    write(root / "annotations/list.txt", "#Image\n" + "".join(f"{name} 1 1 1\n" for name in PETS))
    write(root / "annotations/trainval.txt", "Abyssinian_1 1 1 1\nbeagle_12 2 2 1\n")
    write(root / "annotations/test.txt", "Abyssinian_2 1 1 1\nbeagle_1 2 2 1\n")
    return root


@becomes(
    "Oxford's pets: `images/` beside `annotations/trimaps/` and lists",
    "masks without labels; the pattern that takes the breeds is named, and the lists of the splits",
    f"--label-pattern '{BREEDS}', --split-list SRC/annotations/trainval.txt",
)
def test_masks_and_breeds_of_pets(tmp_path: Path) -> None:
    source = pets(tmp_path / "src")
    lists = source / "annotations"
    texts = assumed(fastpipe.pack(source, tmp_path / "none"))
    assert texts == [
        "not read, beside the images: annotations/list.txt; if one of them has labels, list images "
        "and labels in a CSV file, or use fastpipe.Writer",
        f"split: none; {lists}/trainval.txt, {lists}/test.txt name some of these images each and are "
        f"not used (--split-list {lists}/trainval.txt)",
        "labels: none. The names of the images may have the classes (Abyssinian, beagle, as in "
        f"images/Abyssinian_1.jpg) (--label-pattern '{BREEDS}')",
    ]
    fastpipe.pack(source, tmp_path / "packed", label_pattern=BREEDS)
    breeds = {f"images/{name}.jpg": name.rpartition("_")[0] for name in PETS}
    assert labels(tmp_path) == breeds
    mask = np.array(masks(tmp_path)["images/beagle_12.jpg"])
    assert (mask[5:15, 5:15] == 1).all()
    assert (mask == 2).sum() == 40 * 30 - 100
    fastpipe.pack(
        source,
        tmp_path / "packed",
        label_pattern=BREEDS,
        split_list=lists / "trainval.txt",
        overwrite=True,
    )
    assert labels(tmp_path) == {
        "images/Abyssinian_1.jpg": "Abyssinian",
        "images/beagle_12.jpg": "beagle",
    }


@becomes(
    "Oxford's pets with `annotations/xmls/` beside `annotations/trimaps/`",
    "refused; the options that pack the masks with the breeds are named",
    f"--format masks --label-pattern '{BREEDS}'",
)
def test_boxes_and_masks_of_pets(tmp_path: Path) -> None:
    source = pets(tmp_path / "src")
    box = "<bndbox><xmin>5</xmin><ymin>5</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    text = f"<annotation><object><name>cat</name>{box}</object></annotation>"
    write(source / "annotations/xmls/Abyssinian_1.xml", text)
    words = f"--format masks with --label-pattern '{BREEDS}' takes the classes in the names"
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    (text,) = assumed(fastpipe.pack(source / "images", tmp_path / "images"))
    assert f"pack {source} DST --format masks --label-pattern '{BREEDS}'. " in text
    fastpipe.pack(source, tmp_path / "packed", format="masks", label_pattern=BREEDS)
    assert labels(tmp_path)["images/beagle_1.jpg"] == "beagle"
    assert np.array(masks(tmp_path)["images/beagle_1.jpg"]).max() == 2


def test_a_list_that_is_used_is_read(tmp_path: Path) -> None:
    source = pets(tmp_path / "src")
    file = source / "annotations/trainval.txt"
    summary = fastpipe.pack(source, tmp_path / "packed", split_list=file)
    (unread, _) = assumed(summary)
    assert unread.startswith(
        "not read, beside the images: annotations/list.txt, annotations/test.txt;"
    )


def test_a_split_of_masks_that_a_list_has(tmp_path: Path) -> None:
    source = pets(tmp_path / "src")
    words = f"pass --split-list {source}/annotations/trainval.txt"
    with pytest.raises(PackError, match=f"{re.escape(words)}$"):
        fastpipe.pack(source, tmp_path / "none", split="trainval")
