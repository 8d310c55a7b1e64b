"""Patches of images, at random places and in a grid, beside the crops of the whole image by Pillow."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.datasets.packed import pillow_picture
from support.pictures.drawn import smooth_noise
from support.running.soak import Tried, times

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex

COUNT = times(400, 10_000)  # patches of each kind
SIDE = 48
IMAGES = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of several tiles and of several kinds, and PNGs of several strips."""
    folder = tmp_path_factory.mktemp("large") / "data"
    draws = np.random.default_rng(0)
    with fastpipe.Writer(folder) as writer:
        for number in range(IMAGES):
            width, height = (int(side) for side in draws.integers(200, 1200, 2))
            file = io.BytesIO()
            image = smooth_noise(width, height, seed=number)
            if number % 4 == 3:
                image.save(file, "PNG", compress_level=1)
            else:
                image.save(file, "JPEG", quality=90, subsampling=number % 3)
            writer.add(file.getvalue(), key=str(number))
    return folder


@pytest.fixture(scope="module")
def wholes(data: Path) -> list[np.ndarray[Any, Any]]:
    """All images by Pillow, as they are packed."""
    index = PackedIndex(data)
    return [np.asarray(pillow_picture(index, number)) for number in range(IMAGES)]


def compare(loader: fastpipe.Loader, wholes: list[np.ndarray[Any, Any]], patches: int) -> int:
    """How many patches of some epochs are the crops of the whole images."""
    compared = 0
    while compared < patches:
        for batch in loader:
            images = batch["image"].flatten(0, -4).permute(0, 2, 3, 1).numpy()
            boxes = batch["crop_box"].reshape(-1, 4).int().tolist()
            per_image = len(boxes) // len(batch["id"])
            ids = np.repeat(batch["id"].numpy(), per_image)
            for number, (left, top, right, bottom), patch in zip(ids, boxes, images, strict=True):
                assert np.array_equal(patch, wholes[number][top:bottom, left:right])
                compared += 1
    return compared


def test_patches_at_random_places(
    data: Path, wholes: list[np.ndarray[Any, Any]], tried: Tried
) -> None:
    crop = fastpipe.RandomCrop(count=7)
    fields = ("image", "crop_box", "id")
    with fastpipe.loader(data, 6, size=SIDE, crop=crop, fields=fields, hflip=False) as loader:
        compared = compare(loader, wholes, COUNT)
    tried("patches at random places", compared, "equal to Pillow's crop of the whole image")


@pytest.mark.parametrize("train", [False, True])
def test_patches_of_a_grid(
    data: Path, wholes: list[np.ndarray[Any, Any]], train: bool, tried: Tried
) -> None:
    crop = fastpipe.Grid(stride=37)
    options: dict[str, Any] = {"train": train, "hflip": False, "drop_last": False}
    fields = ("image", "crop_box", "id")
    with fastpipe.loader(data, 16, size=SIDE, crop=crop, fields=fields, **options) as loader:
        compared = compare(loader, wholes, COUNT)
    tried("patches of a grid", compared, "equal to Pillow's crop of the whole image")
