"""Tests of what transcoding writes: byte for byte what libjpeg-turbo's own tool makes of the same source."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from support.pictures.jpegs import (
    PICTURES,
    WHOLE_ROWS,
    by_cjpeg,
    by_pillow,
    encoded,
    header_segments,
    mcu_size,
    picture,
    restart_interval,
    tiled,
)
from support.sources.pack_sources import jpegtran, one_scan_a_component, segment, with_segments

from fastpipe import _engine

SAMPLINGS = ("444", "422", "420", "440", "411", "gray")
TILES = (0, 8, 32, WHOLE_ROWS)
SIZES = ((1, 1), (7, 9), (16, 16), (17, 33), (65, 1), (1, 65), (97, 70), (130, 41))


def assert_as_libjpeg_writes_it(source: bytes, tiles: tuple[int, ...] = TILES) -> None:
    for tile in tiles:
        got = tiled(source, tile)
        options = ("-restart", f"{restart_interval(got)}B") if restart_interval(got) else ()
        assert got == jpegtran(source, "-copy", "none", "-optimize", *options), f"tile {tile}"


def test_all_samplings_and_borders() -> None:
    for sampling, size in itertools.product(SAMPLINGS, SIZES):
        assert_as_libjpeg_writes_it(encoded(picture(*size), sampling))


def test_all_qualities() -> None:
    for quality, kind, sampling in itertools.product((1, 50, 90, 100), PICTURES, ("420", "444")):
        assert_as_libjpeg_writes_it(encoded(picture(97, 70, kind), sampling, quality), (0, 32))


OTHER_CODINGS = [
    ("-restart", "1B"),
    ("-restart", "3B"),
    ("-restart", "7B", "-optimize"),
    ("-restart", "1"),
    ("-restart", "60000B"),
    ("-progressive",),
    ("-progressive", "-restart", "1"),
    ("-arithmetic",),
    ("-arithmetic", "-progressive"),
]


def test_sources_of_other_coding() -> None:
    for options, sampling in itertools.product(OTHER_CODINGS, ("420", "411", "gray")):
        source = encoded(picture(97, 70, "smooth"), sampling, 95)
        other = jpegtran(source, *options)
        assert other != source
        assert_as_libjpeg_writes_it(other, (0, 32))
        assert [tiled(other, tile) for tile in TILES] == [tiled(source, tile) for tile in TILES]


def test_rare_samplings() -> None:
    for factors in ("1x2,1x2,1x2", "1x2,1x1,1x1", "4x2,1x1,1x1", "2x2,2x1,2x1", "1x1,2x2,2x2"):
        for size in ((70, 45), (33, 33)):
            assert_as_libjpeg_writes_it(
                by_cjpeg(picture(*size), "-sample", factors, "-quality", "80")
            )


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
    "three tables of steps": lambda: by_pillow(
        picture(70, 45), qtables=[[4] * 64, [3] * 64, list(range(1, 65))]
    ),
    "not interleaved": lambda: one_scan_a_component((3, 1, 2)),
}


def adobe(jpeg: bytes) -> bytes:
    return with_segments(jpeg.replace(b"JFIF\0", b"JFXX\0"), (0xEE, b"Adobe\0\x64\0\0\0\0\x01"))


def test_what_headers_say() -> None:
    for make in SOURCES.values():
        assert_as_libjpeg_writes_it(make())


def test_factors_of_gray_are_kept_and_mean_nothing() -> None:
    gray = encoded(picture(96, 70), "gray")
    for factors in (0x22, 0x31, 0x14):

        def with_factors(jpeg: bytes, factors: int = factors) -> bytes:
            at = jpeg.index(b"\xff\xc0") + 11
            return jpeg[:at] + bytes([factors]) + jpeg[at + 1 :]

        for tile in TILES:
            assert tiled(with_factors(gray), tile) == with_factors(tiled(gray, tile))


def test_what_lies_beyond_the_edge_is_made_anew() -> None:
    """A picture of 32 x 32 that says it is smaller: its last MCUs have blocks that nobody sees, and much in them."""
    for sampling in ("422", "420", "440", "411"):
        jpeg = encoded(picture(32, 32), sampling, 95)
        at = jpeg.index(b"\xff\xc0") + 5
        mcu_width, mcu_height = mcu_size(sampling)
        for width in {32, 33 - mcu_width, 33 - mcu_width // 2}:
            for height in {32, 33 - mcu_height, 33 - mcu_height // 2}:
                size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
                assert_as_libjpeg_writes_it(jpeg[:at] + size + jpeg[at + 4 :], (0, 8))


DC_SYMBOLS = (0, 1, 3, 11, 12)
AC_SYMBOLS = (0x00, 0xF0, 0x01, 0xE2, 0x0A, 0x0B, 0x50, 0xF1)


def gray_block(*symbols: tuple[int, str], blocks: int = 1) -> bytes:
    """A gray JPEG of 8 x 8 pixels a block: each symbol as its number, and the bits behind it.

    The first symbol is of DC; all codes are 3 or 4 bits long.
    """
    bits, dc = "", True
    for symbol, behind in symbols:
        bits += f"{DC_SYMBOLS.index(symbol):03b}" if dc else f"{AC_SYMBOLS.index(symbol):04b}"
        bits += behind
        dc = symbol == 0 and not dc
    bits += "1" * (-len(bits) % 8)
    scan = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")

    return b"".join(
        (
            b"\xff\xd8",
            segment(0xDB, bytes([0]) + bytes([1] * 64)),
            segment(0xC0, bytes([8, 0, 8, 0, 8 * blocks, 1, 1, 0x11, 0])),
            segment(0xC4, bytes([0x00, 0, 0, len(DC_SYMBOLS), *[0] * 13, *DC_SYMBOLS])),
            segment(0xC4, bytes([0x10, 0, 0, 0, len(AC_SYMBOLS), *[0] * 12, *AC_SYMBOLS])),
            segment(0xDA, bytes([1, 1, 0, 0, 63, 0])),
            scan,
            b"\xff\xd9",
        )
    )


END, ZEROS = (0x00, ""), (0xF0, "")
ODD_CODING = {
    "as encoders write it": [(3, "101"), (0x01, "1"), ZEROS, (0x01, "0"), END],
    "zeros before the end of the block": [(3, "101"), (0x01, "1"), ZEROS, END],
    "zeros only": [(0, ""), ZEROS, ZEROS, ZEROS, END],
    "zeros up to the last place": [(1, "1"), (0xE2, "11"), ZEROS, ZEROS, ZEROS],
    "zeros beyond the last place": [(1, "1"), ZEROS, ZEROS, ZEROS, ZEROS],
    "a run without a value": [(1, "1"), (0x01, "0"), (0x50, "")],
    "a value at the last place": [(1, "1"), (0xE2, "11"), ZEROS, ZEROS, (0xF1, "1")],
    "the largest values": [(11, "1" * 11), (0x0A, "1" * 10), (0x0A, "0" * 10), END],
}


def test_odd_coding_is_mended() -> None:
    for symbols in ODD_CODING.values():
        assert_as_libjpeg_writes_it(gray_block(*symbols), (0,))
    # And between other blocks.
    first = [(3, "101"), (0x01, "1"), ZEROS, END]
    assert_as_libjpeg_writes_it(
        gray_block(*first, (1, "0"), (0x01, "0"), END, *first, blocks=3), (0, 8)
    )


def test_values_too_large_for_8_bits_are_refused() -> None:
    brightness, coefficient = [(12, "1" * 12), END], [(1, "1"), (0x0B, "1" * 11), END]
    for symbols in (brightness, coefficient):
        jpeg = gray_block(*symbols)
        with pytest.raises(ValueError, match="DCT coefficient out of range"):
            _engine.transcode(jpeg)
        assert _engine.transcode(jpeg, check_only=True)[1]["width"] == 8


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


def test_a_picture_after_a_larger_one() -> None:
    """Memory is used again; nothing of the picture before shows."""
    small, large = encoded(picture(9, 9)), encoded(picture(300, 200), "444", 100)
    first, _ = _engine.transcode(small)
    _engine.transcode(large)
    with pytest.raises(ValueError, match="corrupt"):
        _engine.transcode(large[:5000] + b"\xff\xd9")
    assert _engine.transcode(small)[0] == first
    assert _engine.transcode(small, check_only=True)[0] is None
