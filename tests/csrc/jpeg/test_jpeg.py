"""Tests of the JPEG decoder: a decoded region is bit-identical to that region of a full libjpeg-turbo decode."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.pictures.jpegs import (
    DENOMINATORS,
    SUBSAMPLINGS,
    crop,
    full_decode,
    has_one_scale,
    noise_jpeg,
    random_region,
    regions,
)

from fastpipe import _engine

EDGES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33)


@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_whole_pictures_around_block_borders(sampling: str, denominator: int) -> None:
    for width in EDGES:
        for height in EDGES:
            if not has_one_scale(width, height, denominator):
                continue
            jpeg = noise_jpeg(width, height, sampling)
            expected = full_decode(jpeg, denominator)
            got = _engine.decode(jpeg, None, denominator)
            assert got.dtype == np.uint8
            assert np.array_equal(got, expected), (width, height)


@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_crops_around_block_borders(sampling: str, denominator: int) -> None:
    rng = np.random.default_rng(denominator)
    for width in EDGES:
        for height in EDGES:
            jpeg = noise_jpeg(width, height, sampling)
            unambiguous = has_one_scale(width, height, denominator)
            expected = full_decode(jpeg, denominator) if unambiguous else _engine.decode(jpeg, None, denominator)
            for _ in range(5):
                region = random_region(rng, expected.shape[1], expected.shape[0])
                got = _engine.decode(jpeg, region, denominator)
                assert np.array_equal(got, crop(expected, region)), (width, height, region)


@settings(max_examples=300)
@given(st.data())
def test_any_crop_of_any_picture(data: st.DataObject) -> None:
    sampling = data.draw(st.sampled_from(sorted(SUBSAMPLINGS)))
    width, height = data.draw(st.integers(1, 130)), data.draw(st.integers(1, 130))
    denominator = data.draw(st.sampled_from(DENOMINATORS))
    assume(has_one_scale(width, height, denominator))
    jpeg = noise_jpeg(width, height, sampling)
    expected = full_decode(jpeg, denominator)
    region = data.draw(regions(expected.shape[1], expected.shape[0]))
    assert np.array_equal(_engine.decode(jpeg, region, denominator), crop(expected, region))


@pytest.mark.parametrize("sampling", ["420", "422"])
def test_every_crop_of_one_picture(sampling: str) -> None:
    width, height = 20, 13
    jpeg = noise_jpeg(width, height, sampling)
    expected = full_decode(jpeg)
    for y in range(height):
        for x in range(width):
            for bottom in range(y + 1, height + 1):
                for right in range(x + 1, width + 1):
                    got = _engine.decode(jpeg, (x, y, right - x, bottom - y))
                    assert np.array_equal(got, expected[y:bottom, x:right]), (x, y, right, bottom)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_crops_of_pictures_with_restart_markers(denominator: int) -> None:
    rng = np.random.default_rng(8)
    picture = Image.fromarray(rng.integers(0, 256, (75, 101, 3), dtype=np.uint8))
    for options in ({"restart_marker_rows": 1}, {"restart_marker_blocks": 1}, {"restart_marker_blocks": 3}):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=80, **options)
        expected = full_decode(file.getvalue(), denominator)
        for _ in range(40):
            region = random_region(rng, expected.shape[1], expected.shape[0])
            got = _engine.decode(file.getvalue(), region, denominator)
            assert np.array_equal(got, crop(expected, region)), (options, region)


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
                assert np.array_equal(_engine.decode(data, region, denominator), crop(expected, region))
                checked += 1
    assert checked > 50


def test_size_is_read_from_the_header() -> None:
    assert _engine.picture_size(noise_jpeg(31, 17, "420")) == (31, 17)


@pytest.mark.parametrize(
    "region", [(-1, 0, 4, 4), (0, -1, 4, 4), (0, 0, 0, 4), (0, 0, 4, 0), (30, 0, 4, 4), (0, 2**31 - 1, 1, 2**31 - 1)]
)
def test_regions_outside_the_picture_are_refused(region: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="is not inside the image"):
        _engine.decode(noise_jpeg(33, 17, "420"), region)


@pytest.mark.parametrize("denominator", [0, 3, 16, -1])
def test_other_denominators_are_refused(denominator: int) -> None:
    with pytest.raises(ValueError, match="denominator"):
        _engine.decode(noise_jpeg(33, 17, "420"), None, denominator)
