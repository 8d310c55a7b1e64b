"""crop_box, mirrored and original_size: with them, Pillow makes the rows of a batch from the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.pictures.drawn import smooth_noise
from support.running.soak import Tried, times

import fastpipe

COUNT = 40
FIELDS = ["image", "id", "crop_box", "mirrored", "original_size"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNGs of many sizes, whose pixels a decoder cannot change."""
    folder = tmp_path_factory.mktemp("crops") / "data"
    with fastpipe.Writer(folder) as writer:
        for number in range(COUNT):
            picture = smooth_noise(40 + 7 * (number % 5), 90 - 4 * (number % 7), seed=number)
            writer.add(np.asarray(picture.convert("RGB")), key=str(number))
    return folder


def row_of(data: fastpipe.Dataset, batch: dict[str, Any], row: int) -> NDArray[Any]:
    """The row as Pillow makes it: the crop is cut out, resized, and mirrored."""
    image, _ = data[int(batch["id"][row])]
    pixels = image.permute(1, 2, 0).numpy()
    assert batch["original_size"][row].tolist() == list(pixels.shape[:2])
    left, top, right, bottom = batch["crop_box"][row].tolist()
    cut = Image.fromarray(pixels).crop((int(left), int(top), int(right), int(bottom)))
    size = batch["image"].shape[-2:]
    resized = np.asarray(cut.resize(size[::-1], Image.Resampling.BILINEAR))
    return resized[:, ::-1] if batch["mirrored"][row] else resized


def test_pillow_makes_the_rows(data: Path, tried: Tried) -> None:
    epochs = times(3, 250)
    opened = fastpipe.open(data)
    mirrored = 0
    rows = 0
    with fastpipe.loader(data, 8, size=(24, 30), fields=FIELDS, exact=True) as loader:
        for _ in range(epochs):
            for batch in loader:
                for row in range(len(batch["id"])):
                    expected = row_of(opened, batch, row)
                    assert np.array_equal(batch["image"][row].permute(1, 2, 0).numpy(), expected)
                    rows += 1
                mirrored += int(batch["mirrored"].sum())
    assert rows == epochs * COUNT
    assert 0.2 * rows < mirrored < 0.8 * rows
    tried("a row cut out and resized by Pillow, by its crop_box", rows, "the same pixels")


def test_views_and_several_crops(data: Path) -> None:
    views = [fastpipe.View(), fastpipe.View(16, hflip=1.0)]
    with fastpipe.loader(data, 8, size=24, fields=FIELDS, views=views) as loader:
        batch = next(iter(loader))
    assert [boxes.shape for boxes in batch["crop_box"]] == [(8, 4), (8, 4)]
    assert batch["mirrored"][1].all()
    assert not batch["mirrored"][0].all()
    assert batch["original_size"].shape == (8, 2)

    ten = fastpipe.TenCrop(resize=40)
    with fastpipe.loader(data, 8, size=24, fields=FIELDS, crop=ten, train=False) as loader:
        batch = next(iter(loader))
    assert batch["crop_box"].shape == (8, 10, 4)
    assert batch["mirrored"].tolist() == [[False] * 5 + [True] * 5] * 8


def test_a_padded_crop_may_reach_beyond_the_picture(data: Path) -> None:
    letterbox = fastpipe.Letterbox()
    with fastpipe.loader(data, 8, size=32, fields=FIELDS, crop=letterbox, hflip=False) as loader:
        batch = next(iter(loader))
    left, top, right, bottom = batch["crop_box"].T
    height, width = batch["original_size"].T
    assert ((left <= 0) & (top <= 0) & (right >= width) & (bottom >= height)).all()
    # As square as whole pixels of the row allow.
    assert (((right - left) / (bottom - top) - 1).abs() < 0.05).all()


def test_a_field_of_this_name_is_the_datasets(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "data", {"mirrored": "int"}) as writer:
        writer.add(smooth_noise(30, 20, seed=0), key="0", mirrored=7)
    fields = ["image", "mirrored"]
    with fastpipe.loader(tmp_path / "data", 1, size=16, fields=fields) as loader:
        assert next(iter(loader))["mirrored"].tolist() == [7]
