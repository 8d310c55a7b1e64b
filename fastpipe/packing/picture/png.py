"""A PNG -> the chunks that hold its picture, checked to be whole.

Format: W3C PNG 3rd edition, chapters 5 and 11. Pillow stops at the last row that it needs; a file that is cut short or
changed behind it, or in bytes that happen to decode, is found here.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from fastpipe.errors import ImageError

__all__ = ["END", "PngChunks", "header_of", "read_png"]


def _chunk(kind: bytes) -> bytes:
    """Without content."""
    return bytes(4) + kind + zlib.crc32(kind).to_bytes(4, "big")


END = _chunk(b"IEND")  # the last bytes of a PNG


class PngChunks(NamedTuple):
    """What a PNG is made of.

    Attributes:
        picture: the file with its critical chunks only (their names begin with a capital letter). Without the others
            there is no animation, so the picture is IDAT's, which every reader shows; and no text, profile or
            transparency that could be damaged.
        exif: of chunk eXIf, which may stand behind the picture; empty where there is none.
        animated: there are more frames than IDAT's.
    """

    picture: bytes
    exif: bytes
    animated: bool


def header_of(start: bytes) -> bytes:
    """The start of a PNG, up to its picture data, as a PNG without them; as it is if they are not in it."""
    position = 8
    while position + 8 <= len(start):
        (length,) = struct.unpack_from(">I", start, position)
        if start[position + 4 : position + 8] == b"IDAT":
            return start[:position] + _chunk(b"IDAT") + END
        position += 12 + length
    return start


def read_png(data: bytes) -> PngChunks:
    """Walk the chunks of a PNG up to IEND and check the CRC-32 of the critical ones and of eXIf.

    Raises:
        ImageError: the file ends before IEND, a checksum is wrong, or IHDR or IDAT is missing.
    """
    view = memoryview(data)
    kept, exif = [view[:8]], b""
    names: set[bytes] = set()
    position = 8
    while b"IEND" not in names:
        if position + 8 > len(data):
            raise ImageError(f"truncated PNG: ends at byte {len(data)} before chunk IEND")
        (length,) = struct.unpack_from(">I", data, position)
        kind = data[position + 4 : position + 8]
        end = position + 12 + length
        if not kind.isalpha():
            raise ImageError(f"damaged PNG: no chunk name at byte {position + 4}, got {kind!r}")
        name = kind.decode("ascii")
        if end > len(data):
            raise ImageError(
                f"truncated PNG: ends inside chunk {name} at byte {position} (needs {end} bytes, has {len(data)})"
            )
        if not names and (kind != b"IHDR" or length != 13):
            raise ImageError(f"damaged PNG: first chunk is {name} of {length} bytes, expected IHDR of 13")
        critical = kind[:1].isupper()
        if critical or kind == b"eXIf":
            (crc,) = struct.unpack_from(">I", data, end - 4)
            if zlib.crc32(view[position + 4 : end - 4]) != crc:
                raise ImageError(f"damaged PNG: chunk {name} at byte {position} has a wrong checksum")
        if critical:
            kept.append(view[position:end])
        elif kind == b"eXIf":
            exif = data[position + 8 : end - 4]
        names.add(kind)
        position = end
    if b"IDAT" not in names:
        raise ImageError("damaged PNG: no picture data (chunk IDAT)")
    return PngChunks(b"".join(kept), exif, b"fdAT" in names)
