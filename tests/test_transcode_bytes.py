"""Tests of what transcoding writes: byte for byte what libjpeg-turbo's own tool makes of the same source."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from jpegs import PICTURES, WHOLE_ROWS, by_cjpeg, by_pillow, encoded, header_segments, picture, restart_interval, tiled
from pack_sources import jpegtran, one_scan_a_component, with_segments
from PIL import Image

from fastpipe import _engine

SAMPLINGS = ("444", "422", "420", "440", "411", "gray")
TILES = (0, 8, 32, WHOLE_ROWS)
SIZES = ((1, 1), (7, 9), (16, 16), (17, 33), (65, 1), (1, 65), (97, 70), (130, 41))


def assert_as_libjpeg_writes_it(source: bytes, tiles: tuple[int, ...] = TILES) -> None:
    for tile in tiles:
        got = tiled(source, tile)
        options = ("-restart", f"{restart_interval(got)}B") if restart_interval(got) else ()
        assert got == jpegtran(source, "-copy", "none", "-optimize", *options), f"tile {tile}"


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_all_samplings_and_borders(sampling: str, size: tuple[int, int]) -> None:
    assert_as_libjpeg_writes_it(encoded(picture(*size), sampling))


@pytest.mark.parametrize("quality", [1, 10, 50, 75, 90, 95, 100])
@pytest.mark.parametrize("kind", PICTURES)
def test_all_qualities(quality: int, kind: str) -> None:
    for sampling in ("420", "444"):
        assert_as_libjpeg_writes_it(encoded(picture(97, 70, kind), sampling, quality), (0, 32))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    "options",
    [
        ["-restart", "1B"],
        ["-restart", "3B"],
        ["-restart", "7B", "-optimize"],
        ["-restart", "1"],
        ["-restart", "60000B"],
        ["-progressive"],
        ["-progressive", "-restart", "1"],
        ["-arithmetic"],
        ["-arithmetic", "-progressive"],
    ],
    ids=" ".join,
)
def test_sources_of_other_coding(sampling: str, options: list[str]) -> None:
    source = encoded(picture(97, 70, "smooth"), sampling, 95)
    other = jpegtran(source, *options)
    assert other != source
    assert_as_libjpeg_writes_it(other)
    assert [tiled(other, tile) for tile in TILES] == [tiled(source, tile) for tile in TILES]


@pytest.mark.parametrize("factors", ["1x2,1x2,1x2", "1x2,1x1,1x1", "4x2,1x1,1x1", "2x2,2x1,2x1", "1x1,2x2,2x2"])
def test_rare_samplings(factors: str) -> None:
    for size in ((70, 45), (33, 33)):
        assert_as_libjpeg_writes_it(by_cjpeg(picture(*size), "-sample", factors, "-quality", "80"))


SOURCES: dict[str, Callable[[], bytes]] = {
    "RGB": lambda: by_pillow(picture(70, 45), keep_rgb=True),
    "RGB of two sizes": lambda: by_cjpeg(picture(70, 45), "-rgb", "-sample", "2x2,1x1,1x1"),
    "Adobe's YCbCr": lambda: adobe(encoded(picture(70, 45))),
    "density": lambda: by_pillow(picture(70, 45), dpi=(72, 300)),
    "JFIF 1.2": lambda: encoded(picture(70, 45)).replace(b"JFIF\0\x01\x01", b"JFIF\0\x01\x02"),
    "JFIF that comes twice": lambda: with_segments(
        encoded(picture(70, 45)), (0xE0, b"JFIF\0\x01\x02\x02\x00\x20\x00\x30\0\0")
    ),
    "no JFIF": lambda: encoded(picture(70, 45)).replace(b"JFIF\0", b"JFXX\0"),
    "16-bit steps": lambda: by_pillow(picture(70, 45), qtables=[[400] * 64, [3] * 64]),
    "three tables of steps": lambda: by_pillow(picture(70, 45), qtables=[[4] * 64, [3] * 64, list(range(1, 65))]),
    "not interleaved": lambda: one_scan_a_component((3, 1, 2)),
}


def adobe(jpeg: bytes) -> bytes:
    return with_segments(jpeg.replace(b"JFIF\0", b"JFXX\0"), (0xEE, b"Adobe\0\x64\0\0\0\0\x01"))


@pytest.mark.parametrize("name", SOURCES)
def test_what_headers_say(name: str) -> None:
    assert_as_libjpeg_writes_it(SOURCES[name]())


def test_the_headers_are_what_they_are_called() -> None:
    def payload(name: str, marker: int) -> bytes:
        return dict(reversed(header_segments(tiled(SOURCES[name](), 0))))[marker]

    assert payload("RGB", 0xEE)[-1] == 0
    assert payload("JFIF that comes twice", 0xE0)[6:12] == b"\x02\x02\x00\x20\x00\x30"
    assert payload("density", 0xE0)[7:12] == b"\x01\x00\x48\x01\x2c"
    assert len(payload("16-bit steps", 0xDB)) == 129


@pytest.mark.parametrize("factors", [0x22, 0x31, 0x14])
def test_factors_of_gray_are_kept_and_mean_nothing(factors: int) -> None:
    def with_factors(gray: bytes) -> bytes:
        at = gray.index(b"\xff\xc0") + 11
        return gray[:at] + bytes([factors]) + gray[at + 1 :]

    gray = encoded(picture(96, 70), "gray")
    for tile in TILES:
        assert tiled(with_factors(gray), tile) == with_factors(tiled(gray, tile))


def test_codes_of_16_bits() -> None:
    """So skewed a picture that its codes would be longer: many flat blocks, and each kind of block half as often."""
    rng = np.random.default_rng(5)
    blocks = np.full((180, 180, 8, 8), 128, np.uint8)
    rows = blocks.reshape(-1, 8, 8)
    share = len(rows) // 2
    for amplitude in (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 120):
        noise = rng.integers(-amplitude, amplitude + 1, (share, 8, 8))
        rows[rng.permutation(len(rows))[:share]] = np.clip(128 + noise, 0, 255)
        share //= 2
    gray = blocks.swapaxes(1, 2).reshape(1440, 1440)
    file = io.BytesIO()
    Image.fromarray(gray).save(file, "JPEG", quality=97)
    source = file.getvalue()
    tables = [payload for marker, payload in header_segments(tiled(source, 0)) if marker == 0xC4]
    assert any(table[16] > 0 for table in tables), "no code has 16 bits"
    assert_as_libjpeg_writes_it(source, (0, 32))


def test_bytes_of_ones_are_told_from_markers() -> None:
    packed = tiled(encoded(picture(130, 97), "444", 100), 0)
    scan = packed[packed.index(b"\xff\xda") + 14 : -2]
    assert scan.count(b"\xff") > 20
    assert scan.count(b"\xff") == scan.count(b"\xff\x00")


def test_a_picture_after_a_larger_one() -> None:
    """Memory is used again; nothing of the picture before shows."""
    small, large = encoded(picture(9, 9)), encoded(picture(300, 200), "444", 100)
    first, _ = _engine.transcode(small)
    _engine.transcode(large)
    with pytest.raises(ValueError, match="corrupt"):
        _engine.transcode(large[:5000] + b"\xff\xd9")
    assert _engine.transcode(small)[0] == first
    assert _engine.transcode(small, check_only=True)[0] is None
