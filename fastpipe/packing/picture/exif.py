"""Turns an EXIF block into the orientation that a viewer must apply.

Formats: CIPA DC-008 (Exif 2.32), which wraps a TIFF 6.0 header and its first directory.
"""

from __future__ import annotations

import struct

__all__ = ["EXIF_PREFIX", "ORIENTATION_TAG", "exif_orientation"]

EXIF_PREFIX = b"Exif\x00\x00"
ORIENTATION_TAG = 274

# The specification says SHORT; some cameras wrote BYTE or LONG and viewers read those too.
_READERS = {1: "B", 3: "H", 4: "I"}


def exif_orientation(block: bytes) -> int:
    """Read the orientation from the first directory of an EXIF block.

    Only that directory is read, each entry once, and no pointer is followed to another: cyclic or
    overlapping directories cost nothing.

    Args:
        block: TIFF header and what follows, with or without the ``Exif\\0\\0`` in front.

    Returns:
        1..8 as in EXIF; 1 where the tag is absent, or the block is too damaged to hold one.
    """
    if block[: len(EXIF_PREFIX)] == EXIF_PREFIX:
        block = block[len(EXIF_PREFIX) :]
    endian = {b"II*\x00": "<", b"MM\x00*": ">"}.get(bytes(block[:4]))
    if endian is None or len(block) < 8:
        return 1
    (start,) = struct.unpack_from(endian + "I", block, 4)
    if start + 2 > len(block):
        return 1
    (entries,) = struct.unpack_from(endian + "H", block, start)
    for entry in range(start + 2, min(start + 2 + 12 * entries, len(block) - 11), 12):
        tag, kind, count = struct.unpack_from(endian + "HHI", block, entry)
        if tag == ORIENTATION_TAG:
            if kind not in _READERS or count != 1:
                return 1
            value: int = struct.unpack_from(endian + _READERS[kind], block, entry + 8)[0]
            return value if 1 <= value <= 8 else 1
    return 1
