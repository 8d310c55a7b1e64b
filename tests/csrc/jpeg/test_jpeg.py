"""Tests of the JPEG decoder: a decoded region is bit-identical to that region of a full libjpeg-turbo decode."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.pictures.jpegs import (
    DENOMINATORS,
    SUBSAMPLINGS,
    crop,
    full_decode,
    has_one_scale,
    noise_jpeg,
    random_region,
)

from fastpipe import _engine

EDGES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33)


@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
def test_pictures_and_crops_around_block_borders(sampling: str) -> None:
    rng = np.random.default_rng(1)
    for width, height in itertools.product(EDGES, EDGES):
        jpeg = noise_jpeg(width, height, sampling)
        for denominator in DENOMINATORS:
            expected = _engine.decode(jpeg, None, denominator)
            assert expected.dtype == np.uint8
            if has_one_scale(width, height, denominator):
                assert np.array_equal(expected, full_decode(jpeg, denominator)), (
                    width,
                    height,
                    denominator,
                )
            for _ in range(4):
                region = random_region(rng, expected.shape[1], expected.shape[0])
                got = _engine.decode(jpeg, region, denominator)
                assert np.array_equal(got, crop(expected, region)), (
                    width,
                    height,
                    denominator,
                    region,
                )


@pytest.mark.photos
def test_crops_of_real_photos(photos: list[Path]) -> None:
    rng = np.random.default_rng(3)
    checked = 0
    for photo in photos:
        data = photo.read_bytes()
        with Image.open(io.BytesIO(data)) as opened:
            if opened.mode != "RGB" or opened.info.get("progressive"):
                continue
        for denominator in DENOMINATORS:
            expected = full_decode(data, denominator)
            for _ in range(2):
                region = random_region(rng, expected.shape[1], expected.shape[0])
                assert np.array_equal(
                    _engine.decode(data, region, denominator), crop(expected, region)
                )
                checked += 1
    assert checked > 50


def test_regions_outside_the_picture_and_other_denominators_are_refused() -> None:
    jpeg = noise_jpeg(33, 17, "420")
    assert _engine.picture_size(jpeg) == (33, 17)
    at_the_edge = [(32, 16, 1, 1), (0, 16, 33, 1), (32, 0, 1, 17)]
    outside = [
        (-1, 0, 4, 4),
        (0, -1, 4, 4),
        (0, 0, 0, 4),
        (0, 0, 4, 0),
        (30, 0, 4, 4),
        (33, 0, 1, 1),
        (0, 17, 1, 1),
    ]
    for region in at_the_edge:
        assert _engine.decode(jpeg, region).shape == (region[3], region[2], 3)
    for region in [
        *outside,
        (0, 0, 34, 17),
        (0, 0, 33, 18),
        (0, 14, 4, 4),
        (0, 2**31 - 1, 1, 2**31 - 1),
    ]:
        with pytest.raises(ValueError, match="is not inside the image"):
            _engine.decode(jpeg, region)
    for denominator in (0, 3, 16, -1):
        with pytest.raises(ValueError, match="denominator"):
            _engine.decode(jpeg, None, denominator)
