"""Messages about tables and folders: each names a way that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import PackError


def fgvc(root: Path, num_lists: int = 0) -> Path:
    photos(root / "data/images", "0001.jpg", "0002.jpg", "0003.jpg", "0004.jpg")
    write(root / "README", "planes")
    write(root / "data/images_family_train.txt", "0001 Boeing 737\n0002 DC-9\n")
    write(root / "data/images_variant_train.txt", "0001 737-200\n0002 DC-9-30\n")
    write(root / "data/images_variant_test.txt", "0003 DC-9-30\n0004 DC-9-30\n")
    for number in range(num_lists):
        write(root / f"data/list_{number:02}.txt", "0001 x\n0002 y\n")
    return root


@becomes(
    "FGVC-Aircraft: `images_variant_test.txt` beside `images_variant_train.txt` and `variants.txt`",
    "the classes of the list; that training has other numbers is said",
    "--classes-from variants.txt",
)
def test_class_list_of_a_list(tmp_path: Path) -> None:
    data = fgvc(tmp_path / "fgvc") / "data"
    test = data / "images_variant_test.txt"
    other_numbers = assumed(fastpipe.pack(test, tmp_path / "none"))[-1]
    assert "those of images_variant_train.txt beside it" in other_numbers
    assert "write the names of all classes into a file" in other_numbers
    variants = write(data / "variants.txt", "737-200\nCessna 172\nDC-9-30\n")
    assert assumed(fastpipe.pack(test, tmp_path / "alone"))[-1].endswith(
        f"(--classes-from {variants})"
    )
    fastpipe.pack(test, tmp_path / "packed", classes_from=variants)
    assert fastpipe.open(tmp_path / "packed").classes == ["737-200", "Cessna 172", "DC-9-30"]
    assert set(labels(tmp_path).values()) == {"DC-9-30"}


@becomes(
    "FGVC-Aircraft's root: `README` and `data/`, with `images/` and many lists in it",
    "refused; lists of these images are named",
)
@pytest.mark.parametrize("num_lists", [0, 20])
def test_many_lists_beside_images(tmp_path: Path, num_lists: int) -> None:
    root = fgvc(tmp_path / "fgvc", num_lists)
    with pytest.raises(PackError) as caught:
        fastpipe.pack(root, tmp_path / "packed")
    assert "which may have the labels. Pass one: " in str(caught.value)
    assert f"--image-root {root / 'data/images'}" in str(caught.value)


@becomes(
    "Stanford Cars of Kaggle: `anno_train.csv` beside `car_data/car_data/train/CLASS/`",
    "the user has to choose; the table and the folder of the splits are named",
    "car_data/car_data --split train",
)
def test_table_beside_nested_splits(tmp_path: Path) -> None:
    root = tmp_path / "cars"
    for split in ("train", "test"):
        photos(root / "car_data/car_data" / split, "Audi/1.jpg", "Fiat/2.jpg")
    table = write(root / "anno.csv", "image,label\n1.jpg,1\n2.jpg,2\n")
    with pytest.raises(PackError) as caught:
        fastpipe.pack(root, tmp_path / "none")
    assert str(table) in str(caught.value)
    inner = root / "car_data/car_data"
    assert f"if the folders test, train are the classes or splits, {inner}" in str(caught.value)
    fastpipe.pack(inner, tmp_path / "packed", split="train")
    assert labels(tmp_path) == {"Audi/1.jpg": "Audi", "Fiat/2.jpg": "Fiat"}


def test_first_label_is_not_proposed_for_boxes(tmp_path: Path) -> None:
    photos(tmp_path, "1.jpg", "2.jpg")
    table = write(tmp_path / "anno.csv", "1.jpg,1,1,9,9,1\n2.jpg,1,1,9,9,2\n")
    texts = assumed(fastpipe.pack(table, tmp_path / "packed", label_column="class"))
    assert texts[-1] == "labels: 1 to 2 stay as they are, so class 0 of 3 has no sample"


@becomes(
    "Planet of Kaggle: `train-jpg/`, its table in the folder `train_v2.csv/`",
    "no labels; the table is named, with the command",
    "train_v2.csv/train_v2.csv --image-root train-jpg",
)
def test_table_in_a_folder_of_its_name(tmp_path: Path) -> None:
    images = photos(tmp_path / "planet/train-jpg", "train_0.jpg", "train_1.jpg")
    table = tmp_path / "planet/train_v2.csv/train_v2.csv"
    write(table, "image_name,tags\ntrain_0,haze primary\ntrain_1,clear primary\n")
    (text,) = assumed(fastpipe.pack(images, tmp_path / "packed"))
    assert f"fastpipe pack {table} DST --image-root {images}" in text


@becomes(
    "Flickr8k's root: lists of names and `Flickr8k.token.txt` in `Flickr8k_text/`, beside the images",
    "refused; the captions are named first",
)
def test_captions_before_lists_of_names(tmp_path: Path) -> None:
    root = tmp_path / "flickr"
    photos(root / "Flickr8k_Dataset/Flicker8k_Dataset", "10001.jpg", "10002.jpg")
    captions = "10001.jpg#0\tA red photo .\n10002.jpg#0\tA photo .\n"
    table = write(root / "Flickr8k_text/Flickr8k.token.txt", captions)
    write(root / "Flickr8k_text/Flickr_8k.devImages.txt", "10001.jpg\n10002.jpg\n")
    with pytest.raises(PackError, match=f"Pass a table of these images: {table} or"):
        fastpipe.pack(root, tmp_path / "packed")


def test_a_table_of_another_split_is_not_proposed(tmp_path: Path) -> None:
    """Kaggle's CIFAR-10 has train/1.png and another test/1.png; trainLabels.csv is about the first."""
    root = tmp_path / "cifar"
    photos(root, "train/1.jpg", "train/2.jpg", "test/1.jpg", "test/2.jpg")
    write(root / "trainLabels.csv", "id,label\n1,frog\n2,truck\n")
    write(root / "sampleSubmission.csv", "id,label\n1,cat\n2,cat\n")
    (text, *_) = assumed(fastpipe.pack(root, tmp_path / "test", split="test"))
    assert text == "labels: none; trainLabels.csv beside the splits is called after another split"
    (text, *_) = assumed(fastpipe.pack(root, tmp_path / "train", split="train"))
    assert f"pass {root / 'trainLabels.csv'}" in text
