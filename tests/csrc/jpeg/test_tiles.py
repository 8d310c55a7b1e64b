"""Tests of decoding by tiles: whatever the restart markers, a crop is that crop of a full libjpeg-turbo decode."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pictures.jpegs import (
    DENOMINATORS,
    PICTURES,
    SUBSAMPLINGS,
    WHOLE_ROWS,
    Pixels,
    by_cjpeg,
    by_pillow,
    crop,
    encoded,
    full_decode,
    has_one_scale,
    mcu_size,
    picture,
    random_region,
    restart_interval,
    scan_start,
    tiled,
)
from support.sources.pack_sources import segment

from fastpipe import _engine

TILES = (0, 8, 16, 24, 32, 48, 64, WHOLE_ROWS)
SIZE = (101, 75)  # no whole number of MCUs either way, in any sampling


def whole(jpeg: bytes, denominator: int) -> Pixels:
    """The reference at a scale."""
    width, height = _engine.picture_size(jpeg)
    if has_one_scale(width, height, denominator):
        return full_decode(jpeg, denominator)
    return _engine.decode(jpeg, None, denominator, method="libjpeg")


def assert_crops_are_right(name: object, jpeg: bytes, rng: np.random.Generator, crops: int) -> None:
    expected = {denominator: whole(jpeg, denominator) for denominator in DENOMINATORS}
    for denominator, _ in itertools.product(DENOMINATORS, range(crops)):
        height, width, _ = expected[denominator].shape
        region = random_region(rng, width, height)
        got = _engine.decode(jpeg, region, denominator)
        assert np.array_equal(got, crop(expected[denominator], region)), (name, denominator, region)


@settings(max_examples=150)
@given(
    sampling=st.sampled_from(sorted(SUBSAMPLINGS)),
    width=st.integers(1, 200),
    height=st.integers(1, 200),
    kind=st.sampled_from(PICTURES),
    quality=st.integers(1, 100),
    tile=st.sampled_from(TILES),
    seed=st.integers(0, 2**32),
)
def test_any_crop_of_any_tiled_picture(
    sampling: str, width: int, height: int, kind: str, quality: int, tile: int, seed: int
) -> None:
    source = encoded(picture(width, height, kind, seed), sampling, quality)
    jpeg = tiled(source, tile)
    reference = full_decode(source)
    assert np.array_equal(full_decode(jpeg), reference)
    rng = np.random.default_rng(seed)
    for denominator in (1, 1, 1, 1, 2, 4, 8):
        expected = reference if denominator == 1 else whole(jpeg, denominator)
        region = random_region(rng, expected.shape[1], expected.shape[0])
        got = _engine.decode(jpeg, region, denominator)
        assert np.array_equal(got, crop(expected, region)), (denominator, region)


@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
def test_every_column_range_and_every_row_range(sampling: str) -> None:
    width, height = 37, 21
    plain = encoded(picture(width, height), sampling)
    in_tiles = tiled(plain, tile=8)
    assert restart_interval(in_tiles) == 1, "each MCU is a tile"
    expected = full_decode(plain)
    columns = itertools.combinations(range(width + 1), 2)
    rows = itertools.combinations(range(height + 1), 2)
    ranges = [
        *itertools.product(columns, [(0, 21), (6, 10), (15, 17)]),
        *itertools.product([(0, 37), (7, 8), (15, 33)], rows),
    ]
    for jpeg, ((left, right), (top, bottom)) in itertools.product([plain, in_tiles], ranges):
        got = _engine.decode(jpeg, (left, top, right - left, bottom - top))
        assert np.array_equal(got, expected[top:bottom, left:right]), (left, right, top, bottom)


def with_components_named(jpeg: bytes, names: bytes) -> bytes:
    """Other identifiers of the three components, in the frame's and in the scan's header."""
    frame, scan = jpeg.index(b"\xff\xc0"), scan_start(jpeg) - 9
    out = bytearray(jpeg)
    out[frame + 10 : frame + 19 : 3] = names
    out[scan : scan + 6 : 2] = names
    return bytes(out)


def declared_rgb(jpeg: bytes) -> bytes:
    """Adobe's segment says RGB, in the place of JFIF's, which would say YCbCr."""
    assert jpeg[2:4] == b"\xff\xe0"
    return jpeg[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0\0") + jpeg[20:]


def layouts() -> dict[str, bytes]:
    """JPEGs as other encoders write them; test_baseline_decoder.py has more."""
    noise, soft = picture(*SIZE), picture(*SIZE, kind="smooth")
    found = {
        "RGB, odd interval": by_pillow(noise, keep_rgb=True, restart_marker_blocks=5),
        "RGB, as only Adobe's segment says": declared_rgb(
            by_pillow(noise, subsampling=0, restart_marker_blocks=1)
        ),
        "YCbCr, as only JFIF's segment says": with_components_named(
            by_pillow(noise, restart_marker_blocks=1), b"RGB"
        ),
        "smooth": by_pillow(soft, restart_marker_blocks=1, optimize=True),
        "interval of the whole picture": by_pillow(noise, restart_marker_blocks=35),
        "interval of all but the last MCU": by_pillow(noise, restart_marker_blocks=34),
    }
    for sampling in range(3):
        for interval in (2, 3, 7, 13, 26):
            options = {"subsampling": sampling, "restart_marker_blocks": interval}
            found[f"subsampling {sampling}, interval {interval}"] = by_pillow(noise, **options)
    gray = encoded(noise, "gray")
    at = gray.index(b"\xff\xc0")
    found["gray of factors 1 x 4"] = gray[: at + 11] + b"\x14" + gray[at + 12 :]
    return found


LAYOUTS = layouts()


def test_crops_of_other_encoders_pictures() -> None:
    rng = np.random.default_rng(1)
    for name, jpeg in LAYOUTS.items():
        assert_crops_are_right(name, jpeg, rng, crops=25)


def test_crops_of_rare_samplings() -> None:
    width, height = SIZE
    rng = np.random.default_rng(2)
    samplings = [
        "1x2,1x2,1x2",
        "2x1,2x1,2x1",
        "1x2,1x1,1x1",
        "4x1,1x1,1x1",
        "2x2,2x1,2x1",
        "1x1,2x2,2x2",
    ]
    samplings += ["4x2", "2x4", "4x1", "1x4", "3x1", "3x2", "2x2,2x1", "2x2,1x2,2x1"]
    for factors, interval in itertools.product(samplings, ["", "1B", "3B", "4B", "1"]):
        restarts = ["-restart", interval] if interval else []
        jpeg = by_cjpeg(picture(*SIZE), "-sample", factors, *restarts, "-quality", "80")
        for denominator in DENOMINATORS:
            expected = _engine.decode(jpeg, None, denominator, method="libjpeg")
            try:
                assert np.array_equal(full_decode(jpeg, denominator), expected), (
                    factors,
                    denominator,
                )
            except OSError as problem:  # a layout that TurboJPEG has no name for
                assert "subsampling" in str(problem)  # noqa: PT017
            for _ in range(10):
                region = random_region(rng, -(-width // denominator), -(-height // denominator))
                got = _engine.decode(jpeg, region, denominator)
                assert np.array_equal(got, crop(expected, region)), (
                    factors,
                    interval,
                    denominator,
                    region,
                )


@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
def test_only_the_tiles_that_a_crop_touches_are_read(sampling: str) -> None:
    """What cannot be decoded elsewhere in the picture is nothing to a crop; it is to one that reaches it."""
    width, height = 256, 128
    jpeg = tiled(encoded(picture(width, height), sampling), tile=32)
    tile_width = restart_interval(jpeg) * mcu_size(sampling)[0]
    assert tile_width == 32
    for denominator in DENOMINATORS:
        good = full_decode(jpeg, denominator)
        for x, y in [(0, 0), (112, 64), (230, 100), (0, 120)]:
            region = (x // denominator, y // denominator, 16 // denominator, 8 // denominator)
            damaged = without_tiles(
                jpeg, sampling, *(denominator * edge for edge in region), margin=5 * denominator
            )
            got = _engine.decode(damaged, region, denominator)
            assert np.array_equal(got, crop(good, region)), (denominator, x, y)
            with pytest.raises(ValueError, match="the JPEG is"):
                _engine.decode(damaged, None, denominator)


def without_tiles(
    jpeg: bytes, sampling: str, left: int, top: int, width: int, height: int, margin: int
) -> bytes:
    """Empties all tiles (their first MCU is left without an end) but those within a margin of a rectangle."""
    right, bottom = left + width, top + height
    start = scan_start(jpeg)
    columns = 256 // 32
    mcu_height = mcu_size(sampling)[1]
    pieces, at = [], start
    for number in itertools.count():
        end = next(i for i in range(at, len(jpeg)) if jpeg[i] == 0xFF and jpeg[i + 1] != 0)
        x, y = number % columns * 32, number // columns * mcu_height
        beside = x >= right + margin or x + 32 <= left - margin
        beyond = y >= bottom + margin or y + mcu_height <= top - margin
        pieces.append((b"\0" if beside or beyond else jpeg[at:end]) + jpeg[end : end + 2])
        at = end + 2
        if jpeg[end + 1] == 0xD9:
            return jpeg[:start] + b"".join(pieces)
    raise AssertionError("no end marker")


def test_pictures_of_one_row_or_column_of_tiles() -> None:
    rng = np.random.default_rng(4)
    sizes = [(1, 190), (190, 1), (5, 190), (17, 190), (190, 17), (3, 3), (33, 9)]
    for case in itertools.product(SUBSAMPLINGS, sizes, (8, WHOLE_ROWS)):
        sampling, (width, height), tile = case
        assert_crops_are_right(
            case, tiled(encoded(picture(width, height), sampling), tile), rng, crops=4
        )
