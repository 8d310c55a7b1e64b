"""Tests of sources.picture.probe, jpeg_segments and PNG's chunks: what is recognised and read, and what is refused."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.pictures.pngs import chunk
from support.sources.pack_sources import exif, saved

from fastpipe.errors import ImageError
from fastpipe.sources.jpeg_segments import exif_orientation, read_header, select_segments
from fastpipe.sources.picture.open_image import open_image
from fastpipe.sources.picture.pillow import to_rgb
from fastpipe.sources.picture.probe import EXPECTED, image_format

SIZE = (13, 7)
FILES = {
    "JPEG": saved("JPEG", size=SIZE),
    "PNG": saved("PNG", size=SIZE),
    "WebP": saved("WEBP"),
    "TIFF": saved("TIFF"),
    "BMP": saved("BMP"),
    "GIF": saved("GIF"),
    "AVIF": saved("AVIF"),
    "JPEG 2000": saved("JPEG2000"),
    "PPM": saved("PPM"),
    "TGA": saved("TGA"),
    "ICO": saved("ICO", sizes=[(7, 7)]),
    "HEIC": b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic",
}


def reason(read: Callable[[bytes], object], data: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        read(data)
    return str(caught.value)


def test_every_format_is_recognised_and_named() -> None:
    assert {name: image_format(data) for name, data in FILES.items()} == {
        name: name for name in FILES
    }
    assert re.split(", | or ", EXPECTED.removeprefix("expected ")) == list(FILES)


def test_other_beginnings() -> None:
    for data, name in {
        saved("TIFF", big_tiff=True): "TIFF",
        saved("JPEG2000", no_jp2=True): "JPEG 2000",
        b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1avif": "AVIF",
        b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1heix": "HEIC",
        b"P5\r1 1 255\n\0": "PPM",
        b"\xff\xd8": "JPEG",
    }.items():
        assert image_format(data) == name


def test_what_is_no_image() -> None:
    assert reason(image_format, b"") == "empty file"
    others = [
        b"hello world",
        b"BMW is a maker of cars, and this is a text",
        b"\x00" * 100,
        b"P7\n",
        b"P5",
    ]
    only_a_beginning = [FILES[name][:3] for name in ("PNG", "WebP", "TIFF")]
    for data in others + only_a_beginning:
        expected = f"not an image of a known format: starts with {data[:16]!r}; {EXPECTED}"
        assert reason(image_format, data) == expected


NOT_SUPPORTED = {
    b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00isommp42": "ISO media file (brand b'mp42')",
    b"\x00\x00\x00\x18ftypcrx \x00\x00\x00\x01crx isom": "Canon raw (CR3)",
    b"II*\x00\x10\x00\x00\x00CR\x02\x00": "Canon raw (CR2)",
    b"\xff\x0a" + bytes(20): "JPEG XL",
    b"\x00\x00\x00\x0cJXL \r\n\x87\n": "JPEG XL",
    b"8BPS\x00\x01": "PSD (Photoshop)",
    b"%!PS-Adobe-3.0 EPSF-3.0": "PostScript",
    b"%PDF-1.7": "PDF",
    b"<?xml version='1.0'?>\n<svg xmlns='x'></svg>": "SVG",
}


def test_names_what_is_not_supported() -> None:
    for data, name in NOT_SUPPORTED.items():
        assert reason(image_format, data) == f"{name} is not supported; {EXPECTED}"


def read_png(data: bytes) -> NDArray[np.uint8]:
    return to_rgb(open_image(data, "PNG", max_pixels=10**6).samples())


def test_png_checksums() -> None:
    data = FILES["PNG"]
    wrong = bytearray(data)
    wrong[data.index(b"IDAT") + 20] ^= 1
    assert (
        reason(read_png, bytes(wrong))
        == "the PNG is corrupt: the checksum of its IDAT chunk is wrong"
    )
    # A comment with a wrong checksum costs no pixel.
    comment = bytearray(chunk(b"tEXt", b"a\x00b"))
    comment[-1] ^= 1
    np.testing.assert_array_equal(read_png(data[:33] + comment + data[33:]), read_png(data))


def test_jpeg_size_and_orientation() -> None:
    for orientation in (*range(1, 9), 0, 9, 300):
        header = read_header(saved("JPEG", size=SIZE, exif=exif(orientation)))
        assert header.size == SIZE
        assert header.orientation == (orientation if 1 <= orientation <= 8 else 1)


def test_jpeg_problems() -> None:
    data = FILES["JPEG"]
    frame = data.index(b"\xff\xc0")
    scan = data.index(b"\xff\xda")
    assert "before the image data" in reason(read_header, data[:2])
    assert "ends inside the segment" in reason(read_header, data[: frame + 6])
    assert "before the image data" in reason(read_header, data[:scan])
    no_height = data[: frame + 5] + b"\x00\x00" + data[frame + 7 :]
    assert "DNL" in reason(read_header, no_height)
    assert "without a frame header" in reason(read_header, data[:2] + data[scan:])
    # What follows the scan is for the native validation.
    assert read_header(data[: scan + 20]).size == SIZE


def test_jpeg_exif_behind_other_segments() -> None:
    data = saved("JPEG", size=SIZE, exif=exif(8))
    with_comment = data[:2] + b"\xff\xfe\x00\x06abcd" + b"\xff" * 3 + data[2:]
    assert read_header(with_comment).orientation == 8


def test_no_marker_that_stands_alone_hides_a_segment() -> None:
    profile = b"\xff\xe2\x00\x11ICC_PROFILE\0\1\1a"
    oriented = saved("JPEG", size=SIZE, exif=exif(6))[20:]  # behind SOI and JFIF's APP0
    for between in (b"", b"\xff\xd0", b"\xff\x01", b"\xff\x00", b"\xff\xff", b"stray"):
        header = read_header(b"\xff\xd8" + between + profile + between + oriented)
        assert header.segments[0] == (0xE2, b"ICC_PROFILE\0\1\1a"), between
        assert header.orientation == 6
        assert (
            select_segments(header.segments, keep_metadata=False, upright=False)
            == header.segments[:1]
        )


def test_exif_with_cyclic_directory() -> None:
    block = b"II*\x00" + struct.pack("<IHHHII", 8, 1, 34665, 4, 1, 8) + struct.pack("<I", 8)
    assert exif_orientation(block) == 1
    assert exif_orientation(b"Exif\x00\x00" + block) == 1


@given(
    st.sampled_from([b"", b"\xff\xd8\xff", *(data[:12] for data in FILES.values())]),
    st.binary(max_size=300),
)
def test_random_bytes_behind_a_signature(signature: bytes, data: bytes) -> None:
    for read in (image_format, read_header, read_png):
        try:
            read(signature + data)
        except ImageError as problem:
            assert str(problem)  # noqa: PT017


@given(
    st.sampled_from([b"II*\x00", b"MM\x00*", b"Exif\x00\x00II*\x00", b""]), st.binary(max_size=100)
)
def test_random_exif(head: bytes, rest: bytes) -> None:
    assert exif_orientation(head + rest) in range(1, 9)
