"""A JPEG's bytes -> its size, its orientation and the metadata segments that packing keeps.

Sources of the layout: ITU-T T.81, B.1.1 (segments); ICC.1:2010, B.4 (profiles in APP2); CIPA DC-008 (Exif in APP1).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from fastpipe.errors import ImageError

Segment = tuple[int, bytes]  # marker byte (0xE0 to 0xEF, 0xFE) and payload

_APP0, _APP1, _APP2, _APP14, _LAST_APP, _COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
# All markers but those that stand alone: a stuffed zero, TEM, RST0..7, SOI and fill bytes.
_WITH_LENGTH = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0..15 without DHT, JPG, DAC
# JFIF's and Adobe's, which the encoder writes where the pixels need them.
_ENCODERS_OWN = {_APP0: (b"JFIF\0", b"JFXX\0"), _APP14: (b"Adobe",)}
_EXIF = b"Exif\0\0"
_ORIENTATION = 274
# The specification says SHORT; some cameras wrote BYTE or LONG and viewers read those too.
_READERS = {1: "B", 3: "H", 4: "I"}


class JpegHeader(NamedTuple):
    """What stands before the first scan."""

    size: tuple[int, int]  # width and height in pixels, as stored
    components: int  # 1: gray, 3: colours, 4: inks
    orientation: int  # of EXIF, 1..8; 1 where absent or invalid
    segments: list[Segment]  # application segments and comments, in order


def read_header(jpeg: bytes) -> JpegHeader:
    """Walks the segments up to the first scan, over bytes between them, as libjpeg does. ImageError: there is none."""
    frame: tuple[tuple[int, int], int] | None = None
    segments: list[Segment] = []
    end = 2
    while (found := _WITH_LENGTH.search(jpeg, end)) is not None:
        marker, start, end = found[1][0], found.start(), found.end()
        if marker == _END_OF_IMAGE:
            raise ImageError(f"damaged JPEG: end marker at byte {start} before any picture data")
        length = int.from_bytes(jpeg[end : end + 2], "big")
        payload, end = jpeg[end + 2 : end + length], end + max(length, 2)
        if end > len(jpeg):
            raise ImageError(
                f"truncated JPEG: ends inside the segment at byte {start} (needs {end} bytes, has {len(jpeg)})"
            )
        if length < 2:
            raise ImageError(f"damaged JPEG: segment at byte {start} has length {length}")
        if marker in _FRAMES and frame is None:
            frame = _frame(payload, start)
        elif _APP0 <= marker <= _LAST_APP or marker == _COMMENT:
            segments.append((marker, payload))
        elif marker == _START_OF_SCAN:
            if frame is None:
                raise ImageError("damaged JPEG: picture data without a frame header")
            exif = next((payload for marker, payload in segments if _is_exif(marker, payload)), b"")
            return JpegHeader(*frame, exif_orientation(exif), segments)
    raise ImageError(f"truncated JPEG: ends at byte {len(jpeg)} before the picture data")


def _frame(payload: bytes, start: int) -> tuple[tuple[int, int], int]:
    if len(payload) < 6:
        raise ImageError(f"damaged JPEG: frame header at byte {start} is too short")
    height, width = struct.unpack_from(">HH", payload, 1)
    if not width or not height:
        raise ImageError(
            f"JPEG of {width}x{height} pixels, or with its height after the scan (DNL), is not supported"
        )
    return (width, height), payload[5]


def kept_segments(
    segments: list[Segment], *, keep_metadata: bool, upright: bool, icc: bool = True
) -> list[Segment]:
    """The segments to write into the packed JPEG: the ICC profile, and all others but the encoder's own, as far as they
    are wanted. `upright`: the pixels have been turned, so an Exif orientation is set to 1.
    """
    kept = []
    for marker, payload in segments:
        is_icc = marker == _APP2 and payload.startswith(b"ICC_PROFILE\0")
        if (
            icc
            if is_icc
            else keep_metadata and not payload.startswith(_ENCODERS_OWN.get(marker, ()))
        ):
            kept.append(
                (
                    marker,
                    _set_upright(payload) if upright and _is_exif(marker, payload) else payload,
                )
            )
    return kept


def exif_orientation(block: bytes) -> int:
    """The orientation, 1..8, of an EXIF block with or without its prefix; 1 where it has none."""
    block = block.removeprefix(_EXIF)
    for at, reader, usual in _orientations(block):
        (value,) = struct.unpack_from(reader, block, at)
        return value if usual and 1 <= value <= 8 else 1
    return 1


def _orientations(block: bytes) -> Iterator[tuple[int, str, bool]]:
    """Offset, format, and whether viewers read it, of each orientation in a TIFF's first directory; no other."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(block[:4])
    if order is None or len(block) < 8:
        return
    (start,) = struct.unpack_from(order + "I", block, 4)
    if start + 2 > len(block):
        return
    (entries,) = struct.unpack_from(order + "H", block, start)
    for entry in range(start + 2, min(start + 2 + 12 * entries, len(block) - 11), 12):
        tag, kind, count = struct.unpack_from(order + "HHI", block, entry)
        if tag == _ORIENTATION:
            yield entry + 8, order + _READERS.get(kind, "I"), kind in _READERS and count == 1


def _set_upright(exif: bytes) -> bytes:
    """The Exif payload with its orientation, if it has one, set to 1 (as it is)."""
    changed = bytearray(exif)
    for at, reader, _ in _orientations(exif.removeprefix(_EXIF)):
        struct.pack_into(reader, changed, len(_EXIF) + at, 1)
    return bytes(changed)


def _is_exif(marker: int, payload: bytes) -> bool:
    return marker == _APP1 and payload.startswith(_EXIF)
