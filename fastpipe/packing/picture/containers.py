"""Turns the bytes of a JPEG, PNG or WebP file into its stored size and orientation, checking it is whole.

Formats: ITU-T T.81 Annex B (JPEG); W3C PNG 3rd edition, chapters 5 and 11; RFC 9649 (WebP).
Nothing is decoded. Each walk moves forward only, so its time is at most linear in the file's size.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from fastpipe.errors import ImageError
from fastpipe.packing.picture.exif import EXIF_PREFIX, exif_orientation

__all__ = ["Stored", "read_jpeg", "read_png", "read_webp"]

_JPEG_NO_LENGTH = frozenset([0x01, *range(0xD0, 0xD9)])  # TEM, RST0..7, SOI
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0..15 without DHT, JPG, DAC
_PNG_MAX_SIDE = 2**31 - 1
_PNG_CHECKED = frozenset([b"eXIf"])  # ancillary, but we act on it; the critical ones are always checked


class Stored(NamedTuple):
    """What a container's header says: pixels as stored, and the EXIF orientation (1..8)."""

    width: int
    height: int
    orientation: int


def read_jpeg(data: bytes) -> Stored:
    """Walk the segments of a JPEG up to its first scan.

    Bytes between segments are skipped, as libjpeg does: what they mean is for the validation of the
    whole file to say, which is not done here.

    Raises:
        ImageError: the file ends before its first scan, or has no usable frame header.
    """
    size: tuple[int, int] | None = None
    orientation: int | None = None
    position = 2
    while True:
        position = data.find(b"\xff", position)
        while 0 <= position < len(data) and data[position] == 0xFF:  # fill bytes
            position += 1
        if position < 0 or position >= len(data):
            raise ImageError(f"truncated JPEG: ends at byte {len(data)} before the picture data")
        marker = data[position]
        position += 1
        if marker == 0x00 or marker in _JPEG_NO_LENGTH:
            continue
        if marker == 0xD9:
            raise ImageError(f"damaged JPEG: end marker at byte {position - 2} before any picture data")
        if position + 2 > len(data):
            raise ImageError(f"truncated JPEG: ends at byte {len(data)} before the picture data")
        (length,) = struct.unpack_from(">H", data, position)
        if length < 2:
            raise ImageError(f"damaged JPEG: segment at byte {position - 2} has length {length}")
        end = position + length
        if end > len(data):
            raise ImageError(
                f"truncated JPEG: ends inside the segment at byte {position - 2} (needs {end} bytes, has {len(data)})"
            )
        if marker in _JPEG_FRAMES and size is None:
            if length < 8:
                raise ImageError(f"damaged JPEG: frame header at byte {position - 2} is too short")
            height, width = struct.unpack_from(">HH", data, position + 3)
            if height == 0:
                raise ImageError("JPEG with its height after the scan (DNL) is not supported")
            size = (_positive("JPEG", width, height), height)
        elif marker == 0xE1 and orientation is None and data.startswith(EXIF_PREFIX, position + 2):
            orientation = exif_orientation(data[position + 2 : end])
        elif marker == 0xDA:
            if size is None:
                raise ImageError("damaged JPEG: picture data without a frame header")
            return Stored(*size, orientation or 1)
        position = end


def read_png(data: bytes) -> Stored:
    """Walk the chunks of a PNG up to IEND and check the CRC-32 of the critical ones and of eXIf.

    Raises:
        ImageError: the file ends before IEND, a checksum is wrong, or IHDR or IDAT is missing.
    """
    view = memoryview(data)
    size: tuple[int, int] | None = None
    orientation = 1
    has_pixels = False
    position = 8
    while True:
        if position + 8 > len(data):
            raise ImageError(f"truncated PNG: ends at byte {len(data)} before chunk IEND")
        (length,) = struct.unpack_from(">I", data, position)
        kind = data[position + 4 : position + 8]
        name = kind.decode("ascii", "backslashreplace")
        body, end = position + 8, position + 12 + length
        if not kind.isalpha():
            raise ImageError(f"damaged PNG: no chunk name at byte {position + 4}, got {kind!r}")
        if end > len(data):
            raise ImageError(
                f"truncated PNG: ends inside chunk {name} at byte {position} (needs {end} bytes, has {len(data)})"
            )
        critical = kind[:1].isupper()
        if critical or kind in _PNG_CHECKED:
            (crc,) = struct.unpack_from(">I", data, end - 4)
            if zlib.crc32(view[position + 4 : end - 4]) != crc:
                raise ImageError(f"damaged PNG: chunk {name} at byte {position} has a wrong checksum")
        if size is None:
            if kind != b"IHDR" or length != 13:
                raise ImageError(f"damaged PNG: first chunk is {name} of {length} bytes, expected IHDR of 13")
            width, height = struct.unpack_from(">II", data, body)
            if max(width, height) > _PNG_MAX_SIDE:
                raise ImageError(f"damaged PNG: impossible size {width}x{height}")
            size = (_positive("PNG", width, height), height)
        elif kind == b"IDAT":
            has_pixels = True
        elif kind == b"eXIf":
            orientation = exif_orientation(data[body : end - 4])
        elif kind == b"IEND":
            if not has_pixels:
                raise ImageError("damaged PNG: no picture data (chunk IDAT)")
            return Stored(*size, orientation)
        position = end


def read_webp(data: bytes) -> Stored:
    """Walk the RIFF chunks of a WebP and check that all of them lie in the file.

    Raises:
        ImageError: the file is shorter than RIFF says, or holds no picture.
    """
    if len(data) < 20:
        raise ImageError(f"truncated WebP: ends at byte {len(data)} inside its header")
    (riff_size,) = struct.unpack_from("<I", data, 4)
    end_of_riff = 8 + riff_size
    if end_of_riff > len(data):
        raise ImageError(f"truncated WebP: RIFF needs {end_of_riff} bytes, has {len(data)}")
    canvas: tuple[int, int] | None = None
    picture: tuple[int, int] | None = None
    orientation = 1
    position = 12
    while position + 8 <= end_of_riff:
        kind = data[position : position + 4]
        (length,) = struct.unpack_from("<I", data, position + 4)
        body = position + 8
        if body + length > end_of_riff:
            raise ImageError(
                f"damaged WebP: chunk {kind!r} at byte {position} needs {body + length} bytes, RIFF has {end_of_riff}"
            )
        if kind == b"VP8X" and canvas is None and length >= 10:
            canvas = (1 + _u24(data, body + 4), 1 + _u24(data, body + 7))
        elif kind in (b"VP8 ", b"VP8L") and picture is None:
            picture = _webp_frame(kind, data[body : body + min(length, 10)])
        elif kind == b"ANMF" and picture is None and length >= 16:
            # A frame may be smaller than the canvas; what is decoded is the canvas.
            picture = canvas
        elif kind == b"EXIF":
            orientation = exif_orientation(data[body : body + length])
        position = body + length + (length & 1)
    if picture is None:
        raise ImageError("damaged WebP: no picture in it (chunk VP8, VP8L or ANMF)")
    width, height = canvas or picture
    return Stored(_positive("WebP", width, height), height, orientation)


def _webp_frame(kind: bytes, head: bytes) -> tuple[int, int]:
    """Size in a VP8 key frame header (RFC 6386, 9.1) or a VP8L header (RFC 9649, 3.4)."""
    if kind == b"VP8L":
        if len(head) < 5 or head[0] != 0x2F:
            raise ImageError("damaged WebP: chunk VP8L does not start with a lossless picture")
        (bits,) = struct.unpack_from("<I", head, 1)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if len(head) < 10 or head[0] & 1 or head[3:6] != b"\x9d\x01\x2a":
        raise ImageError("damaged WebP: chunk VP8 does not start with a key frame")
    width, height = struct.unpack_from("<HH", head, 6)
    return width & 0x3FFF, height & 0x3FFF


def _u24(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 3], "little")


def _positive(name: str, width: int, height: int) -> int:
    """Return width once both sides are known to be above zero."""
    if width < 1 or height < 1:
        raise ImageError(f"damaged {name}: impossible size {width}x{height}")
    return width
