"""Tests of data.with_pixels(...): single samples as gray, RGB or RGBA, of 8 bits, 16 bits or floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.picture_forms import MIXED, SIZE, as_array, by_pillow, with_alpha, write_mixed

import fastpipe
from fastpipe.dataset import tensors
from fastpipe.errors import ConfigError

MODES = {"gray": "L", "rgb": "RGB", "rgba": "RGBA"}
WIDTH, HEIGHT = SIZE


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos of all kinds, packed beside it."""
    root = tmp_path_factory.mktemp("mixed")
    write_mixed(root / "photos")
    fastpipe.pack(root / "photos", root / "packed", workers=1)
    return root / "photos"


@pytest.fixture
def packed(photos: Path) -> fastpipe.Dataset:
    return fastpipe.open(photos.parent / "packed")


@pytest.mark.parametrize("channels", MODES)
@pytest.mark.parametrize("kind", ["packed", "photos"])
def test_whole_images_are_pillows(photos: Path, kind: str, channels: str) -> None:
    data = fastpipe.open(photos.parent / kind).with_pixels(channels)
    for number, key in enumerate(data["key"]):
        image, _ = data[number]
        assert image.dtype == torch.uint8
        assert image.stride(0) == 1, "in the order of channels_last"
        assert np.array_equal(
            image.permute(1, 2, 0).numpy(), as_array(by_pillow(photos / key, MODES[channels]))
        ), key


def test_without_it_they_are_rgb_of_8_bits(packed: fastpipe.Dataset) -> None:
    assert {(each.shape[0], each.dtype) for each, _ in packed} == {(3, torch.uint8)}
    assert repr(packed.with_pixels("rgba", torch.uint16)).endswith(
        "channels='rgba', dtype=torch.uint16>"
    )
    assert all(
        torch.equal(one, other)
        for (one, _), (other, _) in zip(packed, packed.with_pixels(), strict=True)
    )


@pytest.mark.parametrize("channels", MODES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float32])
@pytest.mark.parametrize("kind", ["packed", "photos"])
def test_crops_are_the_loaders(photos: Path, kind: str, channels: str, dtype: torch.dtype) -> None:
    path, crop = (
        photos.parent / kind,
        fastpipe.RandomCrop(padding=9, pad_if_needed=True, fill=(1, 200, 3)),
    )
    data = fastpipe.open(path).with_pixels(channels, dtype).cropped(crop, 36, hflip=True, seed=2)
    data.set_epoch(0)
    options: dict[str, Any] = {"size": 36, "crop": crop, "hflip": True, "seed": 2, "shuffle": False}
    options |= {"channels": channels, "dtype": dtype, "num_workers": 1, "drop_last": False}
    with fastpipe.loader(path, len(MIXED), **options) as loader:
        (batch,) = loader
    assert batch.images.dtype == dtype
    for (image, _), expected in zip(data, batch.images, strict=True):
        assert torch.equal(image, expected)


def test_floats_are_in_0_to_1(packed: fastpipe.Dataset) -> None:
    data = packed.with_pixels("gray", torch.float32)
    for (floats, _), (whole, _) in zip(data, packed.with_pixels("gray"), strict=True):
        assert floats.dtype == torch.float32
        torch.testing.assert_close(floats, whole / 255)


def test_a_transform_gets_them(packed: fastpipe.Dataset) -> None:
    seen: list[Any] = []

    def look(*, image: Any) -> dict[str, Any]:
        seen.append((image.shape, image.dtype))
        return {"image": image}

    image, _ = packed.with_transform(look).with_pixels("rgba", torch.uint16)[0]
    assert seen == [((HEIGHT, WIDTH, 4), np.dtype(np.uint16))]
    assert (image.shape, image.dtype) == ((4, HEIGHT, WIDTH), torch.uint16)
    image, _ = packed.with_pixels("gray", torch.float32).with_transform(lambda tensor: tensor * 2)[
        0
    ]
    assert image.shape == (1, HEIGHT, WIDTH)


def test_own_is_that_of_the_samples(packed: fastpipe.Dataset) -> None:
    with pytest.raises(
        ConfigError,
        match=r'"own" needs samples of one number of channels, got 3 of 1 .gray., 3 of 3',
    ):
        packed.with_pixels("own")
    for channels in (1, 3, 4):
        data = packed.select(np.asarray(packed["channels"]) == channels).with_pixels("own")
        assert {image.shape[0] for image, _ in data} == {channels}
    gray = packed.select(np.asarray(packed["channels"]) == 1).with_pixels("own")
    both = fastpipe.concat(gray, gray)
    assert both[4][0].shape == (1, HEIGHT, WIDTH)
    with pytest.raises(ConfigError, match="other transforms, crops, pixels or fields"):
        fastpipe.concat(gray, packed)


@pytest.mark.parametrize("cropped", [False, True])
def test_second_images_have_the_same_pixels(tmp_path: Path, cropped: bool) -> None:
    tensors._tv_tensors.cache_clear()
    depth = np.random.default_rng(0).integers(0, 2**16, (HEIGHT, WIDTH), dtype=np.uint16)
    with fastpipe.Writer(tmp_path / "packed", fields={"depth": "image", "mask": "mask"}) as writer:
        for given in (depth, None):
            writer.add(with_alpha(0), depth=given, mask=np.ones((HEIGHT, WIDTH), dtype=np.uint8))
    data = fastpipe.open(tmp_path / "packed").with_fields(["image", "depth", "mask"])
    if cropped:
        data = data.cropped(fastpipe.Resize(), (HEIGHT, WIDTH))
    deep, without = data.with_pixels("gray", torch.uint16)
    assert deep["image"].dtype == deep["depth"].dtype == torch.uint16
    assert np.array_equal(deep["depth"][0].numpy(), depth)
    assert (without["depth"].shape, without["depth"].dtype) == ((1, HEIGHT, WIDTH), torch.uint16)
    assert not without["depth"].to(torch.int32).any()
    floats, without = data.with_pixels("own", torch.float32)
    assert floats["image"].shape == floats["depth"].shape == (4, HEIGHT, WIDTH)
    assert (floats["image"].dtype, floats["depth"].dtype) == (torch.float32, torch.uint8), (
        "as of a loader"
    )
    assert np.array_equal(floats["depth"][0], depth >> 8)
    assert floats["mask"].dtype == torch.uint8
