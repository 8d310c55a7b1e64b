"""A JPEG's bytes -> its size, its orientation and the metadata segments that packing keeps.

Sources of the layout: ITU-T T.81, B.1.1 (segments); ICC.1:2010, B.4 (profiles in APP2); CIPA
DC-008 (Exif in APP1).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from fastpipe.errors import ImageError

Segment = tuple[int, bytes]  # marker byte (0xE0 to 0xEF, 0xFE) and payload

_APP0 = 0xE0
_APP1 = 0xE1
_APP2 = 0xE2
_APP14 = 0xEE
_APP15 = 0xEF
_COMMENT = 0xFE
_START_OF_SCAN = 0xDA
_END_OF_IMAGE = 0xD9
# SOF0..15. DHT, JPG and DAC lie between them.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# All markers but those that stand alone: a stuffed zero, TEM, RST0..7, SOI and fill bytes.
_MARKER_WITH_LENGTH = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])")
# The encoder writes the segments of JFIF and Adobe itself, where the pixels need them.
_ENCODER_SEGMENTS = {_APP0: (b"JFIF\0", b"JFXX\0"), _APP14: (b"Adobe",)}
_EXIF = b"Exif\0\0"
_ICC_PROFILE = b"ICC_PROFILE\0"

_ORIENTATION_TAG = 274
_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
# The type of the orientation's value -> its format for `struct`. The specification says SHORT (3);
# some cameras wrote BYTE (1) or LONG (4), and viewers read those, too.
_ORIENTATION_FORMATS = {1: "B", 3: "H", 4: "I"}


class JpegHeader(NamedTuple):
    """The segments before the first scan."""

    size: tuple[int, int]  # width and height in pixels, as stored
    components: int  # 1: gray, 3: colours, 4: inks
    orientation: int  # of EXIF, 1..8; 1 where absent or invalid
    segments: list[Segment]  # application segments and comments, in order


def read_header(jpeg: bytes) -> JpegHeader:
    """Reads the segments up to the first scan, and skips bytes between them, as libjpeg does.

    Raises:
        ImageError: the JPEG is damaged, or ends before its first scan.
    """
    size = None
    components = 0
    orientation = None
    segments: list[Segment] = []
    end = 2  # where the last segment ended, at first SOI with its two bytes
    while True:
        match = _MARKER_WITH_LENGTH.search(jpeg, end)
        if match is None:
            raise ImageError(
                f"truncated JPEG: ends at byte {len(jpeg)} before the image data"
            )
        marker = match[1][0]
        start = match.start()
        if marker == _END_OF_IMAGE:
            raise ImageError(
                f"damaged JPEG: end marker at byte {start} before any image data"
            )

        # The length counts its own two bytes.
        length = int.from_bytes(jpeg[start + 2 : start + 4], "big")
        end = start + 2 + max(length, 2)
        if end > len(jpeg):
            raise ImageError(
                f"truncated JPEG: ends inside the segment at byte {start} (needs {end} bytes, has "
                f"{len(jpeg)})"
            )
        if length < 2:
            raise ImageError(
                f"damaged JPEG: segment at byte {start} has length {length}"
            )

        payload = jpeg[start + 4 : end]
        # A second frame header would be the size of another picture. libjpeg refuses it later.
        if marker in _FRAMES and size is None:
            size, components = _read_frame(payload, start)
        elif _APP0 <= marker <= _APP15 or marker == _COMMENT:
            segments.append((marker, payload))
            if orientation is None and _is_exif(marker, payload):
                orientation = exif_orientation(payload)
        elif marker == _START_OF_SCAN:
            if size is None:
                raise ImageError("damaged JPEG: image data without a frame header")
            return JpegHeader(size, components, orientation or 1, segments)


def _read_frame(payload: bytes, start: int) -> tuple[tuple[int, int], int]:
    """Width and height, and the number of components."""
    if len(payload) < 6:
        raise ImageError(f"damaged JPEG: frame header at byte {start} is too short")
    height, width = struct.unpack_from(">HH", payload, 1)
    if not width or not height:
        raise ImageError(
            f"JPEG of {width}x{height} pixels, or with its height after the scan (DNL), is not "
            "supported"
        )
    return (width, height), payload[5]


def select_segments(
    segments: list[Segment],
    *,
    keep_metadata: bool,
    upright: bool,
    keep_icc: bool = True,
) -> list[Segment]:
    """Chooses the segments that the packed JPEG gets, without those that its encoder writes.

    Args:
        segments: of the source.
        keep_metadata: keep all but the ICC profile, which `keep_icc` keeps.
        upright: the pixels have been turned, so an Exif orientation is set to 1.
        keep_icc: keep the ICC profile.
    """
    selected = []
    for marker, payload in segments:
        if marker == _APP2 and payload.startswith(_ICC_PROFILE):
            is_kept = keep_icc
        else:
            is_of_encoder = payload.startswith(_ENCODER_SEGMENTS.get(marker, ()))
            is_kept = keep_metadata and not is_of_encoder
        if not is_kept:
            continue
        # Else a viewer would turn pixels that are upright already.
        if upright and _is_exif(marker, payload):
            payload = _set_upright(payload)
        selected.append((marker, payload))
    return selected


def exif_orientation(block: bytes) -> int:
    """The orientation, 1..8, of an EXIF block with or without its prefix; 1 where it has none."""
    block = block.removeprefix(_EXIF)
    for entry in _orientation_entries(block):
        values = struct.unpack_from(entry.format, block, entry.offset)
        orientation: int = values[0]
        if entry.is_readable and 1 <= orientation <= 8:
            return orientation
        # Only the first entry counts.
        return 1
    return 1


class _OrientationEntry(NamedTuple):
    offset: int  # of the value, in the TIFF block
    format: str  # of the value, for `struct`
    is_readable: bool  # whether viewers read a value of its type and count


def _orientation_entries(block: bytes) -> Iterator[_OrientationEntry]:
    """The orientations in a TIFF's first directory; in a damaged block those before the damage."""
    order = _BYTE_ORDERS.get(block[:4])
    if order is None or len(block) < 8:
        return
    (start,) = struct.unpack_from(order + "I", block, 4)
    if start + 2 > len(block):
        return
    (entry_count,) = struct.unpack_from(order + "H", block, start)
    # An entry of 12 bytes has its tag, type, number of values, and the value.
    end_of_entries = start + 2 + 12 * entry_count
    end = min(end_of_entries, len(block) - 11)
    for offset in range(start + 2, end, 12):
        tag, kind, value_count = struct.unpack_from(order + "HHI", block, offset)
        if tag == _ORIENTATION_TAG:
            value_format = order + _ORIENTATION_FORMATS.get(kind, "I")
            is_readable = kind in _ORIENTATION_FORMATS and value_count == 1
            yield _OrientationEntry(offset + 8, value_format, is_readable)


def _set_upright(exif: bytes) -> bytes:
    """Sets all orientations of an Exif payload to 1, which means: shown as stored."""
    changed = bytearray(exif)
    for entry in _orientation_entries(exif.removeprefix(_EXIF)):
        offset = len(_EXIF) + entry.offset
        struct.pack_into(entry.format, changed, offset, 1)
    return bytes(changed)


def _is_exif(marker: int, payload: bytes) -> bool:
    return marker == _APP1 and payload.startswith(_EXIF)
