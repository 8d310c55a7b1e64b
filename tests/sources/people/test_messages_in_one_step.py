"""Messages about a source that has to be chosen: what they name is accepted, and packs the labels at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from support.sources.people import labels, photos, write

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
