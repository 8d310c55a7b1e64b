"""Tests of packing.picture.pixels and jpeg: pixels turned upright, shrunk and encoded."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
import turbojpeg
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fastpipe.errors import ConfigError, ImageError
from fastpipe.packing.picture import jpeg as turbo
from fastpipe.packing.picture.jpeg import encode_jpeg
from fastpipe.packing.picture.pixels import apply_orientation, shrink

W, H = 21, 11
RNG = np.random.default_rng(7)
Array = NDArray[Any]


def noise(*shape: int, top: int = 256) -> Array:
    return RNG.integers(0, top, shape).astype(np.uint8 if top <= 256 else np.uint16)


RGB = noise(H, W, 3)
RGB16 = noise(H, W, 3, top=65536)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_agrees_with_pillow(orientation: int) -> None:
    image = Image.fromarray(RGB)
    image.getexif()[274] = orientation
    turned = apply_orientation(RGB, orientation)
    assert turned.flags.c_contiguous
    np.testing.assert_array_equal(turned, np.asarray(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("subsampling", ["444", "420", "422", "440", "411", "gray"])
def test_encoded_jpeg(subsampling: str) -> None:
    smooth = cv2.resize(noise(4, 5, 3), (45, 37), interpolation=cv2.INTER_CUBIC)
    data = encode_jpeg(smooth, quality=92, subsampling=subsampling)
    assert data == encode_jpeg(np.ascontiguousarray(smooth.copy()), quality=92, subsampling=subsampling)
    assert data == encode_jpeg(np.asfortranarray(smooth), quality=92, subsampling=subsampling)
    assert b"\xff\xc0" in data
    assert b"\xff\xc2" not in data
    image = Image.open(io.BytesIO(data))
    assert image.size == (45, 37)
    assert image.mode == ("L" if subsampling == "gray" else "RGB")
    expected = np.asarray(Image.fromarray(smooth).convert("L").convert("RGB")) if image.mode == "L" else smooth
    assert np.abs(np.asarray(image.convert("RGB")).astype(int) - expected).mean() < 12
    header = turbojpeg.TurboJPEG().decode_header(data)
    assert header[2] == turbo.SUBSAMPLINGS[subsampling]


def test_quality_changes_the_size() -> None:
    sizes = [len(encode_jpeg(RGB, quality=q, subsampling="444")) for q in (10, 50, 95)]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("image", "quality", "subsampling", "words"),
    [
        (RGB, 90, "4:2:0", "subsampling must be one of 444, 422, 420, 440, 411, gray, got '4:2:0'"),
        (RGB, 0, "420", "quality must be 1..100"),
        (RGB, 101, "420", "quality must be 1..100"),
        (RGB[:, :, 0], 90, "420", "image must be"),
        (RGB16, 90, "420", "image must be"),
        (RGB[:0], 90, "420", "image must be"),
    ],
)
def test_encode_refuses_wrong_arguments(image: Array, quality: int, subsampling: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        encode_jpeg(image, quality=quality, subsampling=subsampling)


def test_encode_refuses_sides_that_jpeg_cannot_have() -> None:
    with pytest.raises(ImageError, match="70000x1 pixels do not fit in a JPEG"):
        encode_jpeg(np.zeros((1, 70_000, 3), np.uint8), quality=90, subsampling="444")


def test_apply_orientation_refuses_other_numbers() -> None:
    assert apply_orientation(RGB, 1) is RGB
    with pytest.raises(ConfigError, match=r"1\.\.8, got 9"):
        apply_orientation(RGB, 9)


@pytest.mark.parametrize(
    ("shape", "max_size", "expected"),
    [
        ((40, 100), 50, (20, 50)),
        ((100, 40), 50, (50, 20)),
        ((1, 300), 100, (1, 100)),
        ((33, 100), 50, (17, 50)),
    ],
)
def test_shrink(shape: tuple[int, int], max_size: int, expected: tuple[int, int]) -> None:
    small = shrink(noise(*shape, 3), max_size)
    assert small.shape == (*expected, 3)
    assert small.dtype == np.uint8


def test_shrink_averages_and_leaves_small_pictures_alone() -> None:
    assert shrink(RGB, W) is RGB
    checkers = np.indices((8, 8)).sum(0) % 2 * 200
    np.testing.assert_array_equal(shrink(np.dstack([checkers.astype(np.uint8)] * 3), 4), 100)
    with pytest.raises(ConfigError, match="at least 1 pixel"):
        shrink(RGB, 0)


def test_opencv_keeps_to_one_thread() -> None:
    shrink(RGB, 5)
    assert cv2.getNumThreads() <= 1
