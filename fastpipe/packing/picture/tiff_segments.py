"""Turns the compressed strips or tiles of a TIFF into a verdict: all there, or where one is damaged.

OpenCV decodes 8-bit TIFFs through libtiff's RGBA interface without stopping at errors: what cannot be
decompressed comes back black and counts as success. So the streams are checked here first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from fastpipe.errors import ImageError
from fastpipe.packing.picture.jpeg import UnnamedSamplingError, decode_jpeg
from fastpipe.packing.picture.lzw import lzw_length
from fastpipe.packing.picture.tiff import RAW, TiffPage

__all__ = ["COMPRESSIONS", "check_segments"]


def check_segments(data: bytes, page: TiffPage) -> None:
    """Decompress every strip or tile of a page far enough to know that it is whole.

    CCITT fax has no check: its decoders mend what they can by design, Pillow's too.

    Args:
        data: the whole file.
        page: its layout, known to lie in the file, with a compression of `COMPRESSIONS`.

    Raises:
        ImageError: a strip or tile is damaged or too short.
    """
    check = _CHECKS.get(page.compression)
    if check is None:
        return
    view = memoryview(data)
    tables = b""
    if page.jpeg_tables is not None:
        offset, size = page.jpeg_tables
        tables = data[offset : offset + size]
    for index, (offset, size) in enumerate(zip(page.segment_offsets, page.segment_sizes, strict=True)):
        expected = page.segments.decompressed_bytes(index)
        problem = check(view[offset : offset + size], expected, tables)
        if problem:
            kind = "tile" if page.segments.tiled else "strip"
            raise ImageError(
                f"damaged TIFF: {kind} {index} of {page.segments.count} ({COMPRESSIONS[page.compression]}, "
                f"{size} bytes at byte {offset}): {problem}"
            )


def _short(got: int, expected: int) -> str | None:
    return None if got >= expected else f"decompresses to {got} bytes, expected {expected}"


def _check_raw(stream: memoryview, expected: int, _tables: bytes) -> str | None:
    return None if len(stream) >= expected else f"needs {expected} bytes"


def _check_deflate(stream: memoryview, expected: int, _tables: bytes) -> str | None:
    unpacker = zlib.decompressobj()
    try:
        got = len(unpacker.decompress(stream, expected))
        if got == expected and not unpacker.eof:
            # Read on to the checksum, which stands after the last byte. A last strip may hold
            # padding rows; those we do not need to look at.
            unpacker.decompress(unpacker.unconsumed_tail, 1)
    except zlib.error as error:
        return str(error)
    return _short(got, expected)


def _check_lzw(stream: memoryview, expected: int, _tables: bytes) -> str | None:
    if len(stream) >= 2 and stream[0] == 0 and stream[1] & 1:
        return "LZW of before TIFF 6.0 is not supported; save it as PNG"
    got = lzw_length(np.frombuffer(stream, np.uint8), expected)
    return "uses a code that does not exist yet" if got is None else _short(got, expected)


def _check_packbits(stream: memoryview, expected: int, _tables: bytes) -> str | None:
    got = position = 0
    while got < expected and position < len(stream):
        head = stream[position]
        if head < 128:
            got += min(head + 1, len(stream) - position - 1)
            position += head + 2
        else:
            got += 257 - head if head > 128 and position + 1 < len(stream) else 0
            position += 1 if head == 128 else 2
    return _short(got, expected)


def _check_jpeg(stream: memoryview, _expected: int, tables: bytes) -> str | None:
    whole = bytes(stream)
    if len(tables) > 4:  # SOI, tables, EOI: the tables go between the strip's own SOI and its frame
        whole = whole[:2] + tables[2:-2] + whole[2:]
    try:
        decode_jpeg(whole, allow_stray_bytes=False)
    except UnnamedSamplingError:
        return None
    except ImageError as error:
        return str(error)
    return None


_CHECKS: dict[int, Callable[[memoryview, int, bytes], str | None]] = {
    RAW: _check_raw,
    5: _check_lzw,
    7: _check_jpeg,
    8: _check_deflate,
    32946: _check_deflate,
    32773: _check_packbits,
}
# The compressions that we read, by number of tag 259.
COMPRESSIONS = {
    RAW: "raw",
    2: "CCITT",
    3: "CCITT G3",
    4: "CCITT G4",
    5: "LZW",
    7: "JPEG",
    8: "deflate",
    32946: "deflate",
    32773: "PackBits",
}
