"""Tests of sources.picture.jpeg: pixels turned upright, shrunk and encoded."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
import turbojpeg
from numpy.typing import NDArray
from PIL import Image, ImageOps
from support.pictures.jpegs import SUBSAMPLINGS

from fastpipe.sources.picture.jpeg import apply_orientation, encode_jpeg, shrink

W, H = 21, 11
RNG = np.random.default_rng(7)
Array = NDArray[Any]


def noise(*shape: int, top: int = 256) -> Array:
    return RNG.integers(0, top, shape).astype(np.uint8 if top <= 256 else np.uint16)


RGB = noise(H, W, 3)


def test_orientation_agrees_with_pillow() -> None:
    for orientation in range(1, 9):
        image = Image.fromarray(RGB)
        image.getexif()[274] = orientation
        turned = apply_orientation(RGB, orientation)
        assert turned.flags.c_contiguous
        np.testing.assert_array_equal(turned, np.asarray(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("sampling", ["444", "420", "gray"])
def test_encoded_jpeg(sampling: str) -> None:
    smooth = cv2.resize(noise(4, 5, 3), (45, 37), interpolation=cv2.INTER_CUBIC)
    data = encode_jpeg(smooth, quality=92, sampling=sampling)
    assert data == encode_jpeg(np.ascontiguousarray(smooth.copy()), quality=92, sampling=sampling)
    assert data == encode_jpeg(np.asfortranarray(smooth), quality=92, sampling=sampling)
    assert b"\xff\xc0" in data
    assert b"\xff\xc2" not in data
    image = Image.open(io.BytesIO(data))
    assert image.size == (45, 37)
    assert image.mode == ("L" if sampling == "gray" else "RGB")
    expected = np.asarray(Image.fromarray(smooth).convert("L").convert("RGB")) if image.mode == "L" else smooth
    assert np.abs(np.asarray(image.convert("RGB")).astype(int) - expected).mean() < 12
    header = turbojpeg.TurboJPEG().decode_header(data)
    assert header[2] == SUBSAMPLINGS[sampling]


def test_shrink() -> None:
    for shape, max_size, expected in (
        ((40, 100), 50, (20, 50)),
        ((100, 40), 50, (50, 20)),
        ((1, 300), 100, (1, 100)),
        ((33, 100), 50, (17, 50)),
    ):
        small = shrink(noise(*shape, 3), max_size)
        assert small.shape == (*expected, 3)
        assert small.dtype == np.uint8


def test_shrink_averages() -> None:
    checkers = np.indices((8, 8)).sum(0) % 2 * 200
    np.testing.assert_array_equal(shrink(np.dstack([checkers.astype(np.uint8)] * 3), 4), 100)


def test_opencv_keeps_to_one_thread() -> None:
    shrink(RGB, 5)
    assert cv2.getNumThreads() <= 1
