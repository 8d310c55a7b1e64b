"""A JPEG's bytes -> the metadata segments that packing keeps.

Sources of the layout: ITU-T T.81, B.1.1 (segments); ICC.1:2010, B.4 (profiles in APP2); CIPA DC-008 (Exif in APP1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from fastpipe.packing.picture.exif import EXIF_PREFIX, ORIENTATION_TAG

Segment = tuple[int, bytes]  # marker byte (0xE0 to 0xEF, 0xFE) and payload

_APP0, _APP1, _APP2, _APP14, _COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xFE
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_ICC_PREFIX = b"ICC_PROFILE\0"


def kept_segments(jpeg: bytes, *, keep_metadata: bool, upright: bool) -> list[Segment]:
    """The segments to write into the packed JPEG.

    Args:
        jpeg: a JPEG whose structure has been validated.
        keep_metadata: keep every application segment and comment; else only the ICC profile. JFIF's and Adobe's
            own segments are never among them: the encoder writes those that the pixels need.
        upright: the pixels have been turned upright, so an Exif orientation is set to 1.
    """
    kept = []
    for marker, payload in _segments(jpeg):
        if is_icc((marker, payload)):
            kept.append((marker, payload))
        elif keep_metadata and not _encoders_own(marker, payload):
            if upright and marker == _APP1 and payload.startswith(EXIF_PREFIX):
                payload = _set_upright(payload)
            kept.append((marker, payload))
    return kept


def is_icc(segment: Segment) -> bool:
    """Whether a segment is a piece of an ICC profile."""
    marker, payload = segment
    return marker == _APP2 and payload.startswith(_ICC_PREFIX)


def _encoders_own(marker: int, payload: bytes) -> bool:
    return (marker == _APP0 and payload.startswith((b"JFIF\0", b"JFXX\0"))) or (
        marker == _APP14 and payload.startswith(b"Adobe")
    )


def _segments(jpeg: bytes) -> Iterator[Segment]:
    """Application segments and comments before the first scan."""
    at = 2
    while at + 4 <= len(jpeg):
        if jpeg[at] != 0xFF or jpeg[at + 1] in (0xFF, 0x00):  # fill or stray bytes
            at += 1
            continue
        marker = jpeg[at + 1]
        if marker in (_START_OF_SCAN, _END_OF_IMAGE):
            return
        (length,) = struct.unpack_from(">H", jpeg, at + 2)
        if _APP0 <= marker <= 0xEF or marker == _COMMENT:
            yield marker, jpeg[at + 4 : at + 2 + length]
        at += 2 + max(length, 2)


def _set_upright(exif: bytes) -> bytes:
    """The Exif payload with its orientation, if it has one, set to 1 (as it is)."""
    start = len(EXIF_PREFIX)
    order = ">" if exif[start : start + 2] == b"MM" else "<"
    changed = bytearray(exif)
    try:
        (directory,) = struct.unpack_from(order + "I", exif, start + 4)
        (entries,) = struct.unpack_from(order + "H", exif, start + directory)
        for entry in range(entries):
            at = start + directory + 2 + 12 * entry
            tag, kind = struct.unpack_from(order + "HH", exif, at)
            if tag == ORIENTATION_TAG:
                struct.pack_into(order + {1: "B", 3: "H"}.get(kind, "I"), changed, at + 8, 1)
    except struct.error:  # a directory that ends early has no orientation that a reader could see
        pass
    return bytes(changed)
