"""Tests of reading PNGs: exact ids of every kind of mask, pixels as Pillow has them, and named errors for all else."""

from __future__ import annotations

import io
import itertools
import re
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.pictures.pngs import (
    GRAY,
    GRAY_ALPHA,
    PALETTE,
    RGB,
    RGB_ALPHA,
    SIGNATURE,
    chunk,
    chunks,
    header,
    png,
    with_true_checksums,
)

from fastpipe import _engine

KINDS = [
    (GRAY, 1),
    (GRAY, 2),
    (GRAY, 4),
    (GRAY, 8),
    (GRAY, 16),
    (PALETTE, 1),
    (PALETTE, 2),
    (PALETTE, 4),
    (PALETTE, 8),
]
ALL_FILTERS = [(0,), (1,), (2,), (3,), (4,), (4, 3, 2, 1, 0), (2, 4)]
COLOURS = bytes(np.random.default_rng(0).integers(0, 256, 768, dtype=np.uint8))


def ids(height: int, width: int, bits: int, seed: int = 0) -> NDArray[np.integer]:
    """Regions and noise, with the least and the largest id."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, 2**bits, (height, width))
    drawn[: height // 2, : width // 2] = 2**bits - 1
    drawn[height // 3 :, width // 3 :] = 0
    return drawn


def mask_png(
    height: int, width: int, color: int, bits: int, filters: tuple[int, ...], **more: int
) -> bytes:
    palette = COLOURS[: 3 * 2**bits] if color == PALETTE else None
    return png(
        ids(height, width, bits), bits=bits, color=color, filters=filters, palette=palette, **more
    )  # type: ignore[arg-type]


def test_ids_are_those_that_were_written() -> None:
    """Of any size, in IDAT chunks of any number of bytes."""
    forms = [((1, 1), 2**31 - 1), ((7, 3), 1), ((5, 17), 7), ((40, 33), 100), ((70, 64), 2**31 - 1)]
    for case in itertools.product(KINDS, ALL_FILTERS, forms):
        (color, bits), filters, (size, idat_bytes) = case
        found = _engine.decode_mask(mask_png(*size, color, bits, filters, idat_bytes=idat_bytes))
        assert found.dtype == (np.int32 if bits == 16 else np.uint8)
        assert np.array_equal(found, ids(*size, bits)), case


CHANNELS = {RGB: 3, GRAY_ALPHA: 2, RGB_ALPHA: 4}
PICTURES = [
    *KINDS,
    (RGB, 8),
    (GRAY_ALPHA, 8),
    (RGB_ALPHA, 8),
    (RGB, 16),
    (GRAY_ALPHA, 16),
    (RGB_ALPHA, 16),
]


def samples_of(color: int, bits: int, height: int, width: int) -> NDArray[np.integer]:
    return np.random.default_rng(1).integers(0, 2**bits, (height, width, CHANNELS.get(color, 1)))


def picture_png(color: int, bits: int, height: int, width: int, **more: Any) -> bytes:
    palette = COLOURS[: 3 * 2**bits] if color == PALETTE else None
    return png(
        samples_of(color, bits, height, width), bits=bits, color=color, palette=palette, **more
    )


def test_pictures_are_pillows() -> None:
    """Pillow clips gray of 16 bits; of colour it takes the higher byte, as we do of both."""
    for (color, bits), filters in itertools.product(PICTURES, ALL_FILTERS):
        data = picture_png(color, bits, 29, 23, filters=filters)
        if (color, bits) == (GRAY, 16):
            expected = np.repeat(samples_of(color, bits, 29, 23) >> 8, 3, axis=2)
        else:
            with Image.open(io.BytesIO(data)) as image:
                expected = np.asarray(image.convert("RGB"))
        assert np.array_equal(_engine.decode(data), expected), (color, bits, filters)
        interlaced = picture_png(color, bits, 29, 23, filters=filters, interlaced=True)
        assert np.array_equal(_engine.decode(interlaced), expected), (color, bits, filters)


def test_samples_are_those_that_were_written() -> None:
    """Some passes of a small interlaced picture have no pixels."""
    sizes = [(29, 23), (1, 1), (2, 1), (1, 5), (4, 4), (9, 2)]
    for (color, bits), size, interlaced in itertools.product(PICTURES, sizes, [False, True]):
        data = picture_png(color, bits, *size, filters=(4, 0, 1, 2, 3), interlaced=interlaced)
        expected = samples_of(color, bits, *size)
        if color == PALETTE:
            expected = np.frombuffer(COLOURS, np.uint8).reshape(-1, 3)[expected[..., 0]]
        elif bits < 8:
            expected = expected * (255 // (2**bits - 1))
        found = _engine.png_samples(data)
        assert found.dtype == (np.uint16 if bits == 16 else np.uint8)
        assert np.array_equal(found, expected), (color, bits, size, interlaced)


@pytest.mark.parametrize(
    ("color", "bits"), [(GRAY, 1), (GRAY, 8), (PALETTE, 4), (PALETTE, 8), (RGB, 8)]
)
def test_transparent_pixels_are_pillows(color: int, bits: int) -> None:
    """tRNS is the alpha of indices, or a colour that is clear."""
    clear = samples_of(color, bits, 19, 16)[7, 5]
    tokens = (
        bytes(range(0, 250, 17))[: 2**bits] if color == PALETTE else clear.astype(">u2").tobytes()
    )
    data = picture_png(color, bits, 19, 16, transparency=tokens)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        expected = np.asarray(image.convert("RGBA"))
    assert np.array_equal(_engine.decode(data), expected[..., :3])
    found = _engine.png_samples(data)
    assert found.shape[2] == (2 if color == GRAY else 4)
    assert found[..., -1].min() < 255
    assert np.array_equal(found if color != GRAY else found[..., [0, 0, 0, 1]], expected)


@pytest.mark.parametrize("bits", [2, 4])
def test_a_clear_gray_of_few_bits_is_that_of_the_file(bits: int) -> None:
    """Pillow compares it with the value that is stretched to 255 (PNG Specification, 11.3.2.1: with the sample)."""
    samples = samples_of(GRAY, bits, 9, 8)
    found = _engine.png_samples(picture_png(GRAY, bits, 9, 8, transparency=b"\0\2"))
    assert np.array_equal(found[..., 1] == 0, samples[..., 0] == 2)


def test_the_clear_colour_of_16_bits_has_16_bits() -> None:
    samples = samples_of(RGB, 16, 9, 8)
    samples[4, 3] = samples[0, 0] ^ (0, 0, 1)  # another colour, of the same higher bytes
    data = png(samples, bits=16, color=RGB, transparency=samples[0, 0].astype(">u2").tobytes())
    found = _engine.png_samples(data)
    assert np.array_equal(found[..., :3], samples)
    assert np.argwhere(found[..., 3] != 65535).tolist() == [[0, 0]]


def test_the_header_is_told() -> None:
    told = {
        "width": 7,
        "height": 5,
        "bits": 4,
        "color": "palette",
        "interlaced": False,
        "strip_rows": 0,
    }
    assert _engine.png_header(mask_png(5, 7, PALETTE, 4, (0,))) == told
    assert _engine.png_header(png(ids(3, 4, 16), bits=16))["bits"] == 16


MASK = mask_png(12, 9, GRAY, 8, (0, 1, 2, 3, 4))
WITH_PALETTE = mask_png(12, 9, PALETTE, 4, (4, 2))


@pytest.mark.parametrize("data", [MASK, WITH_PALETTE], ids=["gray", "palette"])
def test_every_truncation_is_named(data: bytes) -> None:
    for length in range(len(data)):
        no_signature = r"the bytes are not a (PNG|JPEG)|the JPEG is truncated"
        words = no_signature if length < len(SIGNATURE) else "the PNG is truncated"
        for read in (_engine.decode_mask, _engine.decode, _engine.png_samples, _engine.png_header):
            with pytest.raises(ValueError, match=words):
                read(data[:length])


@pytest.mark.parametrize("data", [MASK, WITH_PALETTE], ids=["gray", "palette"])
def test_every_flipped_bit_is_named(data: bytes) -> None:
    """All bytes of these files are covered by a checksum, or are one."""
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"PNG|larger than the size limit"):
            _engine.decode_mask(bytes(damaged))


def test_flipped_bits_under_true_checksums_end_in_ids_or_a_named_error() -> None:
    for data in (MASK, WITH_PALETTE):
        taken = refused = 0
        for begin, end in chunks(data):
            for bit in range(8 * (begin + 8), 8 * (end - 4)):
                damaged = bytearray(data)
                damaged[bit // 8] ^= 1 << bit % 8
                try:
                    _engine.decode_mask(with_true_checksums(bytes(damaged)))
                    taken += 1
                except ValueError as problem:
                    assert re.search("PNG|larger than the size limit", str(problem))  # noqa: PT017
                    refused += 1
        assert min(taken, refused) > 0


def test_damaged_rows_in_sound_chunks_are_read_alike_in_whole_and_in_part() -> None:
    """Whatever bytes the rows have, the compressed bytes and the checksums are true."""
    random = np.random.default_rng(3)
    taken = 0
    for number in range(1500):
        color, bits = PICTURES[number % len(PICTURES)]
        data = picture_png(color, bits, 13, 11, filters=(4, 3, 2, 1, 0), interlaced=number % 4 == 3)
        begin, end = next(
            each for each in chunks(data) if data[each[0] + 4 : each[0] + 8] == b"IDAT"
        )
        rows = bytearray(zlib.decompress(data[begin + 8 : end - 4]))
        for at in random.integers(0, len(rows), random.integers(1, 5)):
            rows[at] = random.integers(256)
        if number % 8 == 0:
            rows = rows[: random.integers(len(rows) + 1)]
        damaged = (
            data[:begin]
            + chunk(b"IDAT", zlib.compress(rows, int(random.integers(10))))
            + data[end:]
        )
        try:
            samples = _engine.png_samples(damaged)
        except ValueError as problem:
            assert re.search(r"has filter \d+|pixels end too soon|a palette of", str(problem))  # noqa: PT017
            with pytest.raises(ValueError, match="PNG"):
                _engine.decode(damaged)
            continue
        taken += 1
        high = samples >> 8 if bits == 16 else samples
        rgb = high[..., :3] if samples.shape[2] > 2 else high[..., :1].repeat(3, axis=2)
        assert np.array_equal(_engine.decode(damaged), rgb), (color, bits)
        top = int(random.integers(13))
        assert np.array_equal(_engine.decode(damaged, (2, top, 7, 13 - top)), rgb[top:, 2:9]), (
            color,
            bits,
        )
        if color in (GRAY, PALETTE):
            assert _engine.decode_mask(damaged).max() < 2**bits
    assert taken > 700


def raw(
    deflated: bytes, *, width: int = 4, height: int = 4, before: bytes = b"", after: bytes = b""
) -> bytes:
    return (
        SIGNATURE
        + header(width, height)
        + before
        + chunk(b"IDAT", deflated)
        + after
        + chunk(b"IEND")
    )


ROWS = zlib.compress(bytes(20))


# (a file, what is said of it)
WRONG = [
    (b"", "the bytes are not a PNG"),
    (b"\xff\xd8\xff", "the bytes are not a PNG"),
    (SIGNATURE + chunk(b"IDAT", ROWS), "its first chunk is IDAT"),
    (SIGNATURE + chunk(b"IHDR", bytes(12)) + chunk(b"IEND"), "its first chunk is IHDR of 12 bytes"),
    (SIGNATURE + header(0, 4) + chunk(b"IEND"), "0 x 4 pixels"),
    (SIGNATURE + header(4, 2**31) + chunk(b"IEND"), "4 x 2147483648 pixels"),
    (SIGNATURE + header(4, 4, bits=3) + chunk(b"IEND"), "colour type 0 with 3 bits"),
    (SIGNATURE + header(4, 4, bits=4, color=RGB) + chunk(b"IEND"), "colour type 2 with 4 bits"),
    (SIGNATURE + header(4, 4, color=5) + chunk(b"IEND"), "colour type 5"),
    (
        SIGNATURE + header(4, 4, bits=16, color=PALETTE) + chunk(b"IEND"),
        "colour type 3 with 16 bits",
    ),
    (
        SIGNATURE + header(4, 4, interlaced=2) + chunk(b"IDAT", ROWS) + chunk(b"IEND"),
        "interlacing 2",
    ),
    (raw(ROWS, before=chunk(b"tRNS", bytes(3))), "a tRNS chunk of 3 bytes"),
    (raw(ROWS, before=chunk(b"fpST", bytes(4))), "its fpST chunk names no number of rows"),
    (raw(ROWS, before=chunk(b"fpST", b"\0\0\0\2")), "1 IDAT chunks, and 2 strips of 2 rows"),
    (
        raw(ROWS, before=chunk(b"tRNS", bytes(2))[:-1] + b"x"),
        "the checksum of its tRNS chunk is wrong",
    ),
    (SIGNATURE + header(4, 4) + chunk(b"IEND"), "it has no pixels"),
    (
        SIGNATURE + header(4, 4, color=PALETTE) + chunk(b"IDAT", ROWS) + chunk(b"IEND"),
        "it has no palette",
    ),
    (raw(ROWS, before=chunk(b"PLTE", bytes(4))), "a palette of 4 bytes"),
    (raw(ROWS, before=chunk(b"CgBI", bytes(4))), "unsupported format: CgBI chunk"),
    (raw(ROWS, after=chunk(b"tEXt") + chunk(b"IDAT", b"")), "another chunk stands between"),
    (
        raw(ROWS)[:-12] + struct.pack(">I", 2**32 - 1) + b"tEXt" + bytes(8),
        "it ends inside its tEXt chunk",
    ),
    (raw(ROWS)[:-12] + struct.pack(">I", 0) + b"t\0Xt" + bytes(8), "a chunk's name is no name"),
    (raw(zlib.compress(bytes(19))), "its pixels end too soon"),
    (raw(zlib.compress(bytes(21))), "it has more pixels than it says"),
    (raw(ROWS[:-1]), "cannot be decompressed"),
    (raw(ROWS[:-4] + bytes(4)), "cannot be decompressed"),
    (raw(bytes(20)), "cannot be decompressed"),
    (raw(zlib.compress(bytes([0, 1, 2, 3, 4] * 3 + [5, 0, 0, 0, 0]))), "row 3 has filter 5"),
]


def test_what_is_wrong_is_named() -> None:
    for data, words in WRONG:
        with pytest.raises(ValueError, match=words):
            _engine.decode_mask(data)


def test_a_kind_that_does_not_serve_is_named() -> None:
    with pytest.raises(ValueError, match="a mask in colour"):
        _engine.decode_mask(png(np.zeros((2, 2, 3), int), color=RGB))
    short = png(ids(4, 4, 2), bits=2, color=PALETTE, palette=bytes(6))
    for read in (_engine.decode, _engine.png_samples):
        with pytest.raises(ValueError, match="index 3 of a palette of 2"):
            read(short)


def test_bytes_behind_the_end_and_chunks_of_others_are_passed_over() -> None:
    more = chunk(b"tEXt", b"Comment\0x") + chunk(b"prVt", bytes(70_000))
    data = png(ids(6, 6, 8), before=more) + b"stray"
    assert np.array_equal(_engine.decode_mask(data), ids(6, 6, 8))
