"""Tests of PNGs in strips: all readers find the samples that were encoded, and crops are those of the whole."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from support.pictures.jpegs import picture
from support.pictures.pngs import chunk, chunks, with_true_checksums

from fastpipe import _engine
from fastpipe.sources.picture.png import encode_png

SHAPES = [
    (1, 1, 3),
    (40, 33, 1),
    (300, 200, 3),
    (300, 200, 4),
    (123, 700, 2),
    (5, 20_000, 3),
    (2000, 3, 1),
]


def drawn(shape: tuple[int, int, int], dtype: Any, seed: int = 0) -> NDArray[Any]:
    """Smooth, with noise and a flat part."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    wave = ((np.sin(x / 9) + np.cos(y / 7) + 2) * np.iinfo(dtype).max / 5)[..., None]
    samples = (wave + np.random.default_rng(seed).integers(0, 9, shape)).astype(dtype)
    samples[: shape[0] // 3, : shape[1] // 2] = 7
    return samples


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_all_readers_find_the_samples(dtype: Any, filters: bool) -> None:
    for shape in SHAPES:
        assert_readers_find(shape, dtype, filters)


def assert_readers_find(shape: tuple[int, int, int], dtype: Any, filters: bool) -> None:
    samples = drawn(shape, dtype)
    data = encode_png(samples, filters=filters)
    found = _engine.png_samples(data)
    assert found.dtype == dtype
    assert np.array_equal(found, samples)
    if shape[2] == 1:
        assert np.array_equal(_engine.decode_mask(data), samples[..., 0])
    if shape[2] != 2:  # OpenCV makes four channels of gray and alpha
        channels = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[shape[2]]
        by_opencv = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        assert np.array_equal(by_opencv.reshape(shape)[..., channels], samples)
    if dtype == np.uint8 or shape[2] == 1:  # Pillow has no colour of 16 bits
        with Image.open(io.BytesIO(data)) as image:
            assert np.array_equal(np.asarray(image).reshape(shape), samples)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 400), st.integers(1, 300), st.sampled_from([1, 2, 3, 4])),
    dtype=st.sampled_from([np.uint8, np.uint16]),
    filters=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_crops_are_those_of_the_whole(
    shape: tuple[int, int, int], dtype: Any, filters: bool, seed: int
) -> None:
    samples = drawn(shape, dtype, seed)
    data = encode_png(samples, filters=filters)
    high = (samples >> 8 * (samples.itemsize - 1)).astype(np.uint8)
    rgb = high[..., :3] if shape[2] > 2 else high[..., :1].repeat(3, axis=2)
    assert np.array_equal(_engine.decode(data), rgb)
    random = np.random.default_rng(seed)
    for _ in range(10):
        left, top = int(random.integers(shape[1])), int(random.integers(shape[0]))
        width, height = (
            int(random.integers(1, shape[1] - left + 1)),
            int(random.integers(1, shape[0] - top + 1)),
        )
        part = _engine.decode(data, (left, top, width, height))
        assert np.array_equal(part, rgb[top : top + height, left : left + width])


def test_files_are_little_larger_than_optimized_pngs() -> None:
    """A photo, a drawing, and a mask of regions, whose rows are not filtered."""
    y, x = np.mgrid[:600, :800]
    drawing = (
        np.where((x // 40 + y // 25) % 3 == 0, 255, 30)
        .astype(np.uint8)[..., None]
        .repeat(3, axis=2)
    )
    y, x = np.mgrid[:375, :500]
    mask = ((y // 60 + x // 90) % 21).astype(np.uint8)
    mask[(y - 180) ** 2 + (x - 250) ** 2 < 100**2] = 255
    for pixels, filters, factor in [
        (picture(500, 375), True, 1.15),
        (drawing, True, 1.15),
        (mask, False, 1.0),
    ]:
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG", optimize=filters)
        data = encode_png(pixels, filters=filters)
        strip_rows = _engine.png_header(data)["strip_rows"]
        chunk_bytes = 150 * (600 // strip_rows + 1) if pixels is drawing else 0
        assert len(data) <= factor * len(stream.getvalue()) + chunk_bytes


def test_small_pictures_are_stored() -> None:
    samples = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    data = encode_png(samples)
    assert samples[5].tobytes() in data
    assert len(data) < samples.size + 32 + 80


DATA = encode_png(drawn((100, 900, 3), np.uint8))
WHOLE = _engine.png_samples(DATA)
ROWS = _engine.png_header(DATA)["strip_rows"]


def test_every_damaged_byte_is_found_or_lies_in_no_strip_that_is_read() -> None:
    """All checksums of chunks are compared, whatever part is read."""
    for at in range(8, len(DATA), 37):
        damaged = bytearray(DATA)
        damaged[at] ^= 0x10
        with pytest.raises(ValueError, match="PNG"):
            _engine.decode(bytes(damaged), (3, 50, 4, 1))


def test_strips_that_lie_under_true_checksums_are_named() -> None:
    """Strips in another order, and strips of other pixels: only the checksum of all pixels knows."""
    at = [(begin, end) for begin, end in chunks(DATA) if DATA[begin + 4 : begin + 8] == b"IDAT"]
    assert len(at) > 3
    (one, other), pieces = at[1:3], [DATA[begin:end] for begin, end in at]
    swapped = DATA[: one[0]] + pieces[2] + pieces[1] + DATA[other[1] :]
    with pytest.raises(ValueError, match="the checksum of its pixels is wrong"):
        _engine.decode(swapped)
    part = _engine.decode(swapped, (0, ROWS, 900, ROWS))
    assert np.array_equal(part, WHOLE[2 * ROWS : 3 * ROWS])


@pytest.mark.parametrize(
    ("strip", "words"),
    [
        (b"", r"cannot be decompressed|too soon"),
        (b"\xff" * 50, "cannot be decompressed"),
        (zlib.compress(bytes(10))[2:-4], "too soon"),
        (zlib.compress(bytes(2701 * ROWS + 1))[2:-4], "more pixels"),
        (
            zlib.compress(b"\2" + bytes(2701 * ROWS - 1))[2:-4],
            "the first row of strip 1 needs the one above",
        ),
    ],
    ids=["empty", "noise", "short", "long", "filter"],
)
def test_a_strip_that_is_none_is_named(strip: bytes, words: str) -> None:
    begin, end = [each for each in chunks(DATA) if DATA[each[0] + 4 : each[0] + 8] == b"IDAT"][1]
    crafted = DATA[:begin] + chunk(b"IDAT", strip) + DATA[end:]
    with pytest.raises(ValueError, match=words):
        _engine.decode(crafted, (0, ROWS, 900, 2))
    assert np.array_equal(_engine.decode(crafted, (0, 0, 900, ROWS)), WHOLE[:ROWS])


def test_another_number_of_rows_is_named() -> None:
    begin, _ = next(each for each in chunks(DATA) if DATA[each[0] + 4 : each[0] + 8] == b"fpST")
    for rows in (0, ROWS - 1, 2**31):
        crafted = with_true_checksums(
            DATA[: begin + 8] + struct.pack(">I", rows) + DATA[begin + 12 :]
        )
        with pytest.raises(ValueError, match=r"fpST|strips of|too soon|more pixels"):
            _engine.decode(crafted)
