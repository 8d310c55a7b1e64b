"""Tests of fastpipe.packing.picture.probe: what it recognises, and what it refuses in which words."""

from __future__ import annotations

import io
import struct
import time
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastpipe.errors import ImageError
from fastpipe.packing.picture.exif import exif_orientation
from fastpipe.packing.picture.probe import Probe, probe

WIDTH, HEIGHT = 13, 7


def saved(image_format: str, **options: Any) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, image_format, **options)
    return file.getvalue()


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[274] = orientation
    return exif


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


FILES = {
    "jpeg": saved("JPEG"),
    "jpeg progressive": saved("JPEG", progressive=True),
    "png": saved("PNG"),
    "webp lossy": saved("WEBP", quality=80),
    "webp lossless": saved("WEBP", lossless=True),
    "webp extended": saved("WEBP", lossless=True, exif=exif_of(1)),
    "bmp": saved("BMP"),
    "tiff": saved("TIFF"),
    "tiff lzw": saved("TIFF", compression="tiff_lzw"),
    "tiff big": saved("TIFF", big_tiff=True),
}


def accepted(data: bytes) -> Probe | None:
    """What the probe says, or None where it refuses with a reason; anything else it raises fails the test."""
    try:
        found = probe(data)
    except ImageError as error:
        if not str(error):
            raise
        return None
    assert found.width > 0
    assert found.height > 0
    assert found.orientation in range(1, 9)
    return found


def reason(data: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        probe(data)
    return str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_recognises_format_and_size(name: str) -> None:
    assert probe(FILES[name]) == Probe(name.split()[0], WIDTH, HEIGHT, 1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_reads_orientation_and_stored_size(image_format: str, orientation: int) -> None:
    data = saved(image_format, exif=exif_of(orientation))
    assert probe(data) == Probe(image_format.lower(), WIDTH, HEIGHT, orientation)


@pytest.mark.parametrize("orientation", [0, 9, 300])
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_invalid_orientation_counts_as_upright(image_format: str, orientation: int) -> None:
    assert probe(saved(image_format, exif=exif_of(orientation))).orientation == 1


def test_png_orientation_after_the_pixels() -> None:
    block = b"MM\x00*" + struct.pack(">IHHHIHHI", 8, 1, 274, 3, 1, 6, 0, 0)
    data = FILES["png"]
    assert probe(data[:-12] + chunk(b"eXIf", block) + data[-12:]).orientation == 6


def test_exif_with_cyclic_directory() -> None:
    block = b"II*\x00" + struct.pack("<IHHHII", 8, 1, 34665, 4, 1, 8) + struct.pack("<I", 8)
    assert exif_orientation(block) == 1
    assert exif_orientation(b"Exif\x00\x00" + block) == 1


def test_empty() -> None:
    assert reason(b"") == "empty file"


def test_not_an_image() -> None:
    assert reason(b"hello world") == ("not an image: starts with b'hello world'; expected JPEG, PNG, WebP, BMP or TIFF")
    assert reason(b"BMW is a maker of cars, and this is a text").startswith("not an image")
    assert reason(b"\x00" * 100).startswith("not an image")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GIF89a" + bytes(20), "GIF"),
        (b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00mif1avif", "AVIF"),
        (b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1avif", "AVIF"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "HEIF"),
        (b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00isommp42", "ISO media file"),
        (b"\xff\x0a" + bytes(20), "JPEG XL"),
        (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"\xff\x4f\xff\x51" + bytes(20), "JPEG 2000"),
        (b"8BPS\x00\x01", "PSD"),
        (b"<?xml version='1.0'?>\n<svg xmlns='x'></svg>", "SVG"),
    ],
)
def test_names_what_is_not_supported(data: bytes, name: str) -> None:
    message = reason(data)
    assert message.startswith(name)
    assert "is not supported; expected JPEG, PNG, WebP, BMP or TIFF" in message


def test_truncated_png_says_where() -> None:
    data = FILES["png"]
    start = data.index(b"IDAT") - 4
    needs = start + 12 + struct.unpack_from(">I", data, start)[0]
    cut = start + 100
    assert reason(data[:cut]) == (
        f"truncated PNG: ends inside chunk IDAT at byte {start} (needs {needs} bytes, has {cut})"
    )


def test_png_checksums() -> None:
    data = FILES["png"]
    wrong = bytearray(data)
    wrong[data.index(b"IDAT") + 20] ^= 1
    assert "chunk IDAT" in reason(bytes(wrong))
    assert "wrong checksum" in reason(bytes(wrong))
    # A comment with a wrong checksum costs no pixel.
    comment = bytearray(chunk(b"tEXt", b"a\x00b"))
    comment[-1] ^= 1
    assert probe(data[:33] + comment + data[33:]).width == WIDTH


def test_png_without_pixels() -> None:
    assert "no picture data" in reason(FILES["png"][:33] + chunk(b"IEND", b""))


def test_webp_cut_by_one_byte() -> None:
    data = FILES["webp lossy"]
    assert reason(data[:-1]) == f"truncated WebP: RIFF needs {len(data)} bytes, has {len(data) - 1}"


def test_bmp_cut_by_one_byte() -> None:
    data = FILES["bmp"]
    assert reason(data[:-1]) == f"truncated BMP: needs {len(data)} bytes, has {len(data) - 1}"


def test_tiff_strip_outside_the_file() -> None:
    assert reason(FILES["tiff"][:-1]).startswith("truncated TIFF: strip 0 of 1")


def test_tiff_hostile_counts_cost_nothing() -> None:
    def tiff(*entries: tuple[int, int, int, int]) -> bytes:
        body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
        return b"II*\x00" + struct.pack("<IH", 8, len(entries)) + body + bytes(4)

    huge = 2**32 - 1
    sized = [(256, 4, 1, huge), (257, 4, 1, huge)]
    started = time.perf_counter()
    assert "truncated TIFF" in reason(tiff(*sized, (258, 3, huge, 8), (273, 4, 1, 8), (279, 4, 1, 1)))
    assert "truncated TIFF" in reason(tiff(*sized, (273, 4, huge, 8), (278, 3, 1, 1), (279, 4, huge, 8)))
    assert "damaged TIFF" in reason(tiff(*sized, (273, 4, 1, 8), (278, 3, 1, 1), (279, 4, 1, 8)))
    assert "damaged TIFF" in reason(tiff(*sized, (322, 3, 1, 1), (323, 3, 1, 1), (324, 4, 1, 8)))
    big = b"II+\x00" + struct.pack("<HHQQ", 8, 0, 16, 2**64 - 1)
    assert "truncated TIFF" in reason(big)
    assert time.perf_counter() - started < 1


def test_tiff_overlapping_strips() -> None:
    rows = 2000
    entries = [(256, 3, 1, 1), (257, 3, 1, rows), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)]
    start = 8 + 2 + 12 * 8 + 4
    entries += [(273, 4, rows, start), (278, 3, 1, 1), (279, 4, rows, start + 4 * rows)]
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    arrays = struct.pack(f"<{rows}I", *[8] * rows) + struct.pack(f"<{rows}I", *[16000] * rows)
    data = b"II*\x00" + struct.pack("<IH", 8, len(entries)) + body + bytes(4) + arrays
    assert "overlap" in reason(data)


def test_camera_raw_thumbnail_is_refused() -> None:
    data = saved("TIFF", tiffinfo={254: 1})
    assert "thumbnail" in reason(data)


def test_jpeg_problems() -> None:
    data = FILES["jpeg"]
    frame = data.index(b"\xff\xc0")
    scan = data.index(b"\xff\xda")
    assert "before the picture data" in reason(data[:2])
    assert "ends inside the segment" in reason(data[: frame + 6])
    assert "before the picture data" in reason(data[:scan])
    no_height = data[: frame + 5] + b"\x00\x00" + data[frame + 7 :]
    assert "DNL" in reason(no_height)
    assert "without a frame header" in reason(data[:2] + data[scan:])
    # What follows the scan is for the native validation.
    assert probe(data[: scan + 20]).width == WIDTH


def test_jpeg_exif_behind_other_segments() -> None:
    data = saved("JPEG", exif=exif_of(8))
    with_comment = data[:2] + b"\xff\xfe\x00\x06abcd" + b"\xff" * 3 + data[2:]
    assert probe(with_comment).orientation == 8


@pytest.mark.parametrize("name", [n for n in FILES if not n.startswith("jpeg")])
def test_every_truncation_of_the_container_is_found(name: str) -> None:
    data = FILES[name]
    whole = probe(data)
    for size in range(len(data)):
        try:
            assert probe(data[:size]) == whole
        except ImageError:
            continue
        # Only what no pixel needs may be missing: the pointer to a second TIFF directory.
        assert name.startswith("tiff")
        assert size >= len(data) - 8


@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    accepted(data)


SIGNATURES = [
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"RIFF\xff\x00\x00\x00WEBP",
    b"BM",
    b"II*\x00",
    b"MM\x00+",
]


@given(st.sampled_from(SIGNATURES), st.binary(max_size=300))
def test_random_bytes_behind_a_signature(signature: bytes, data: bytes) -> None:
    accepted(signature + data)


@given(
    st.sampled_from(sorted(FILES)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    st.floats(0, 1),
)
def test_mutated_files(name: str, changes: list[tuple[float, int]], kept: float) -> None:
    data = bytearray(FILES[name])
    for where, value in changes:
        data[int(where * min(len(data), 400))] = value
    accepted(bytes(data[: int(kept * len(data)) + 1]))


@given(st.sampled_from([b"II*\x00", b"MM\x00*", b"Exif\x00\x00II*\x00", b""]), st.binary(max_size=100))
def test_random_exif(head: bytes, rest: bytes) -> None:
    assert exif_orientation(head + rest) in range(1, 9)
