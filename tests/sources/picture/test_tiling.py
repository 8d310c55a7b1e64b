"""Tests of the restart interval that packing chooses: tiles make a grid, are about as wide as asked for, and cheap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pictures.jpegs import (
    SUBSAMPLINGS,
    WHOLE_ROWS,
    encoded,
    mcu_size,
    picture,
    restart_interval,
    tiled,
)
from support.sources.pack_sources import jpegtran, pillow

from fastpipe import _engine
from fastpipe.sources.picture.convert import EncodeOptions, convert


def packed(jpeg: bytes, tile: int) -> bytes:
    """With the source's own size as what tiles are weighed by."""
    out, _ = _engine.transcode(jpeg, tile=tile)
    assert out is not None
    return out


# Width, sampling, width of a tile that is asked for -> MCUs of a tile.
INTERVALS = [
    (500, "420", 32, 2),  # 32 MCUs in a row
    (500, "444", 32, 3),  # 63: 24 pixels is nearer to 32 than 56
    (500, "444", 37, 7),  # and under two thirds of 37
    (512, "444", 32, 4),
    (512, "gray", 32, 4),
    (512, "411", 32, 1),
    (512, "420", 10, 1),
    (512, "420", 48, 4),  # 64 pixels is nearer to 48 than 32 is: as 4 to 3, not 3 to 2
    (512, "420", 45, 2),  # 32 is: as 1.41 to 1.42
    (512, "420", WHOLE_ROWS, 32),
    (592, "420", 32, 37),  # a prime number of MCUs: 16 pixels are under two thirds of 32
    (592, "420", 24, 1),  # but not of 24
    (336, "422", 32, 3),  # 21: 48 pixels; one MCU would be 16
    (17, "420", 32, 2),
    (7, "444", 32, 1),
]


def test_the_interval_chosen() -> None:
    for width, sampling, tile, interval in INTERVALS:
        jpeg = tiled(encoded(picture(width, 40, "smooth"), sampling), tile)
        assert restart_interval(jpeg) == interval, (width, sampling, tile)


def test_a_picture_of_one_tile_has_no_markers() -> None:
    for sampling in SUBSAMPLINGS:
        mcu_width, mcu_height = mcu_size(sampling)
        for width, height, tile in [
            (1, 1, 8),
            (mcu_width, mcu_height, 8),
            (3 * mcu_width, mcu_height, WHOLE_ROWS),
        ]:
            assert restart_interval(tiled(encoded(picture(width, height), sampling), tile)) == 0, (
                width,
                height,
            )


def test_tiles_that_would_cost_too_much_are_wider_or_none() -> None:
    for sampling in SUBSAMPLINGS:
        column, square = (
            encoded(picture(*size, "flat"), sampling) for size in [(8, 500), (704, 704)]
        )
        assert packed(column, 8) == packed(column, 0)
        assert restart_interval(tiled(column, 8)) == 1
        interval = restart_interval(packed(square, 8))
        assert interval == 0 or interval > restart_interval(tiled(square, 8)) == 1


@pytest.mark.parametrize("kind", ["flat", "smooth"])
def test_pictures_that_are_cheap_to_code_grow_little(kind: str) -> None:
    """A tile's cost is a mean, of photos: that of a flat picture can be twice as much."""
    rng = np.random.default_rng(1)
    for sampling in SUBSAMPLINGS:
        grew = 0
        for seed in range(12):
            width, height = (int(side) for side in rng.integers(30, 500, 2))
            source = encoded(
                picture(width, height, kind, seed), sampling, int(rng.choice([30, 75, 95]))
            )
            if seed % 4 == 0:
                source = jpegtran(source, "-progressive")
            tile = int(rng.choice([8, 16, 32, 64]))
            added = len(packed(source, tile)) - len(packed(source, 0))
            assert 0 <= added <= len(source) / 32, (width, height, tile)
            grew += added > 0
        assert grew > 0 or kind == "flat"


@pytest.mark.photos
def test_real_photos_keep_their_size_and_pixels(photos: list[Path]) -> None:
    sources = plain = with_tiles = tiled_photos = 0
    for photo in photos:
        data = photo.read_bytes()
        small, large = (
            convert(data, EncodeOptions(tile=tile, keep_metadata=True)) for tile in (0, 32)
        )
        assert np.array_equal(_engine.decode(small.data), _engine.decode(large.data))
        assert np.array_equal(pillow(large.data), pillow(data)) or large.change is not None
        if large.change is not None:
            continue
        sources += len(data)
        plain += len(small.data)
        with_tiles += len(large.data)
        tiled_photos += restart_interval(large.data) > 0
    assert tiled_photos == len(photos)
    assert 0.98 < with_tiles / sources < 1.02
    assert 1 < with_tiles / plain < 1.02
