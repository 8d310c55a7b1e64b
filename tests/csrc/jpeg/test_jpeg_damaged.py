"""Tests of what the JPEG decoder refuses: every input gives pixels that are right or a ValueError with a reason."""

from __future__ import annotations

import io
import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from support.pictures.jpegs import scan_start

from fastpipe import _engine

PLAIN_REASON = re.compile(r"the (JPEG|TIFF|picture|bytes) [a-zA-Z.' ]+(: [^\n]+)?")
WIDTH, HEIGHT = 57, 43


def encoded(mode: str = "RGB", size: tuple[int, int] = (WIDTH, HEIGHT), **options: object) -> bytes:
    channels = len(Image.new(mode, (1, 1)).getbands())
    shape = (size[1], size[0], channels) if channels > 1 else (size[1], size[0])
    file = io.BytesIO()
    pixels = np.random.default_rng(4).integers(0, 256, shape, dtype=np.uint8)
    picture = Image.frombytes(mode, size, pixels.tobytes())
    picture.save(file, "JPEG", **{"quality": 75, **options})
    return file.getvalue()


BASELINE = encoded()
WITH_RESTARTS = encoded(restart_marker_blocks=1)
WHOLE = {BASELINE: _engine.decode(BASELINE), WITH_RESTARTS: _engine.decode(WITH_RESTARTS)}


def with_frame(
    jpeg: bytes, *, marker: int = 0xC0, precision: int = 8, size: tuple[int, int] | None = None
) -> bytes:
    """The JPEG with its frame header patched."""
    at = jpeg.index(b"\xff\xc0")
    out = bytearray(jpeg)
    out[at + 1] = marker
    out[at + 4] = precision
    if size is not None:
        out[at + 5 : at + 9] = struct.pack(">HH", size[1], size[0])
    return bytes(out)


def assert_plain(problem: ValueError) -> None:
    assert PLAIN_REASON.fullmatch(str(problem)), str(problem)


def decode_or_reason(
    jpeg: bytes, region: tuple[int, int, int, int] | None = None
) -> NDArray[np.uint8] | None:
    try:
        return _engine.decode(jpeg, region)
    except ValueError as problem:
        assert_plain(problem)
        return None


@pytest.mark.parametrize("jpeg", [BASELINE, WITH_RESTARTS], ids=["plain", "restarts"])
def test_truncated_anywhere_is_refused(jpeg: bytes) -> None:
    for length in range(len(jpeg) - 2):  # without the end marker alone every pixel is there
        with pytest.raises(ValueError, match=r"the (JPEG is truncated|bytes are not a JPEG)"):
            _engine.decode(jpeg[:length])


@settings(max_examples=100)
@given(st.data())
def test_a_crop_of_a_truncated_picture_is_right_or_refused(data: st.DataObject) -> None:
    jpeg = data.draw(st.sampled_from([BASELINE, WITH_RESTARTS]))
    length = data.draw(st.integers(scan_start(jpeg), len(jpeg)))
    x, y = data.draw(st.integers(0, WIDTH - 1)), data.draw(st.integers(0, HEIGHT - 1))
    width, height = data.draw(st.integers(1, WIDTH - x)), data.draw(st.integers(1, HEIGHT - y))
    got = decode_or_reason(jpeg[:length], (x, y, width, height))
    if got is not None:
        assert np.array_equal(got, WHOLE[jpeg][y : y + height, x : x + width])


@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_refused(garbage: bytes, starts_well: bool) -> None:
    assert decode_or_reason((b"\xff\xd8\xff" if starts_well else b"") + garbage) is None


WRONG = [
    (b"", "the bytes are not a JPEG"),
    (b"\xff\xd8", "the JPEG is truncated"),
    (b"\xff\xd8\xff\xd9", "the JPEG"),
    (b"GIF89a" + bytes(64), "the bytes are not a JPEG"),
    (encoded(progressive=True), "the JPEG has an unsupported format: progressive"),
    (with_frame(BASELINE, marker=0xC9), "the JPEG has an unsupported format"),  # arithmetic coding
    (with_frame(BASELINE, precision=12), "the JPEG has an unsupported format"),
    (with_frame(BASELINE, size=(0, HEIGHT)), "the JPEG"),
    (with_frame(BASELINE, size=(WIDTH, 0)), "the JPEG"),
    (encoded("CMYK"), "the JPEG has an unsupported format: 4 colour components"),
    (with_frame(BASELINE, size=(65535, 65535)), "the picture is larger than the size limit"),
    (
        with_frame(BASELINE, size=(65500, 65500)),
        "the picture is larger than the size limit: 65500 x 65500",
    ),
    (
        with_frame(BASELINE, size=(13000, 13000)),
        "the JPEG is truncated: .* cannot hold 13000 x 13000",
    ),
    (BASELINE[: scan_start(BASELINE)] + b"\xff\xd9", "the JPEG"),
]


def test_what_cannot_be_decoded_says_why() -> None:
    for jpeg, reason in WRONG:
        with pytest.raises(ValueError, match=reason) as caught:
            _engine.decode(jpeg)
        assert_plain(caught.value)


def test_header_of_a_huge_picture_needs_no_memory_for_it() -> None:
    with pytest.raises(ValueError, match="larger than the size limit"):
        _engine.picture_size(with_frame(BASELINE, size=(65500, 65500)))
    with pytest.raises(
        ValueError, match=rf"{WIDTH} x {HEIGHT} is over {WIDTH * HEIGHT - 1} pixels"
    ):
        _engine.decode(BASELINE, max_pixels=WIDTH * HEIGHT - 1)
    assert _engine.decode(BASELINE, max_pixels=WIDTH * HEIGHT).shape == (HEIGHT, WIDTH, 3)


def test_more_pixels_than_the_bytes_can_hold_are_refused_before_anything_is_made_ready() -> None:
    small = encoded("L", (64, 64), quality=1)
    assert _engine.decode(small).shape == (64, 64, 3)
    for size in ((4000, 65000), (65000, 4000), (3000, 3000)):
        with pytest.raises(
            ValueError, match=rf"the JPEG is truncated: \d+ bytes cannot hold {size[0]} x {size[1]}"
        ):
            _engine.picture_size(with_frame(small, size=size), max_pixels=10**9)


def test_the_decoder_works_on_after_an_error() -> None:
    for jpeg in (BASELINE[:200], encoded(progressive=True), BASELINE):
        decode_or_reason(jpeg)
    assert np.array_equal(_engine.decode(BASELINE), WHOLE[BASELINE])
