"""Turns the first directory of a TIFF file into numbers by tag, reading nothing outside the file.

Formats: TIFF 6.0 (Adobe, 1992), section 2, and BigTIFF (libtiff, 2007), both byte orders.
No directory is followed to the next one, so a chain of them that never ends costs nothing.
"""

from __future__ import annotations

import struct
import sys
from array import array

from fastpipe.errors import ImageError

__all__ = ["TIFF_SIGNATURES", "TiffDirectory"]

TIFF_SIGNATURES = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")

_TYPES = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q"}  # BYTE, SHORT, LONG, IFD, LONG8
# Bytes of one value of every type; those that we do not read must be in the file too.
_SIZES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_FIRST_PRIVATE_TAG = 32768
_BYTES = {"B": 1, "H": 2, "I": 4, "Q": 8}


class TiffDirectory:
    """The entries of the first image file directory, by tag.

    Args:
        data: the whole file, which begins with one of `TIFF_SIGNATURES`.

    Raises:
        ImageError: from here and every method, where the file ends too early or an entry makes no sense.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.endian = "<" if data[:2] == b"II" else ">"
        self.big = data[2:4] in (b"+\x00", b"\x00+")
        word, entry_bytes, start_at = ("Q", 20, 8) if self.big else ("I", 12, 4)
        self._word = word
        if self.big and data[4:8] != struct.pack(self.endian + "HH", 8, 0) and len(data) >= 8:
            raise ImageError("damaged TIFF: BigTIFF with offsets that are not 8 bytes")
        start = self._number(word, start_at)
        count_code = "Q" if self.big else "H"
        entries = self._number(count_code, start)
        first = start + _BYTES[count_code]
        self._need(first + entries * entry_bytes, "inside its directory")
        # tag -> (type, count, offset of the entry, offset of the value or of the pointer to it)
        self.entries: dict[int, tuple[int, int, int]] = {}
        for entry in range(first, first + entries * entry_bytes, entry_bytes):
            tag, kind, count = struct.unpack_from(f"{self.endian}HH{word}", data, entry)
            if self.entries.setdefault(tag, (kind, count, entry))[2] != entry:
                raise ImageError(f"damaged TIFF: tag {tag} stands twice in the first directory")
            # libtiff only warns about a value outside the file and goes on without it: a palette
            # picture whose color map is cut off turns gray. Private tags do not touch the pixels.
            if tag < _FIRST_PRIVATE_TAG and kind in _SIZES:
                self.where(tag, count * _SIZES[kind])

    def _need(self, end: int, where: str) -> None:
        if end > len(self.data):
            raise ImageError(f"truncated TIFF: ends {where} (needs {end} bytes, has {len(self.data)})")

    def _number(self, code: str, offset: int) -> int:
        self._need(offset + _BYTES[code], "inside its header")
        value: int = struct.unpack_from(self.endian + code, self.data, offset)[0]
        return value

    def entry(self, tag: int) -> int | None:
        """Byte offset of a tag's entry, or None where the tag is absent."""
        return self.entries[tag][2] if tag in self.entries else None

    def where(self, tag: int, size_bytes: int) -> int:
        """Offset of a value of that many bytes: in the entry where it fits, else where the entry points."""
        entry = self.entries[tag][2]
        inline, value = (8, entry + 12) if self.big else (4, entry + 8)
        offset = value if size_bytes <= inline else self._number(self._word, value)
        self._need(offset + size_bytes, f"inside the values of tag {tag}")
        return offset

    def values(self, tag: int, default: tuple[int, ...], most: int) -> tuple[int, ...]:
        """The first ``most`` numbers of a tag."""
        if tag not in self.entries:
            return default
        kind, count, _ = self.entries[tag]
        if kind not in _TYPES or count < 1:
            raise ImageError(f"damaged TIFF: tag {tag} has {count} values of type {kind}")
        code = _TYPES[kind]
        offset = self.where(tag, count * _BYTES[code])
        return struct.unpack_from(f"{self.endian}{min(count, most)}{code}", self.data, offset)

    def numbers(self, tag: int, least: int) -> array[int]:
        """The first ``least`` numbers of a tag that must have that many; as compact as in the file."""
        if tag not in self.entries:
            raise ImageError(f"damaged TIFF: tag {tag} is missing")
        kind, count, _ = self.entries[tag]
        if kind not in _TYPES or count < least:
            raise ImageError(f"damaged TIFF: tag {tag} has {count} values of type {kind}, expected {least}")
        code = _TYPES[kind]
        offset = self.where(tag, count * _BYTES[code])
        values: array[int] = array(code, self.data[offset : offset + least * _BYTES[code]])
        if (self.endian == "<") != (sys.byteorder == "little"):
            values.byteswap()
        return values

    def one(self, tag: int, default: int) -> int:
        """The first number of a tag."""
        return self.values(tag, (default,), 1)[0]
