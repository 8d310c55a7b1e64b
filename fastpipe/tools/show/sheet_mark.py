"""The PNG of a sheet -> the PNG with a mark, which says that fastpipe may write over the file."""

from __future__ import annotations

import os
import struct
import zlib

# A chunk of text, as the PNG specification has it: keyword, 0, text.
_TEXT = b"Software\0fastpipe sheet"
_CHUNK = b"tEXt" + _TEXT
_HEADER_BYTES = 33  # the signature and the IHDR chunk, which every PNG begins with


def with_mark(png: bytes) -> bytes:
    """A PNG with the mark behind its header."""
    checksum = struct.pack(">I", zlib.crc32(_CHUNK))
    chunk = struct.pack(">I", len(_TEXT)) + _CHUNK + checksum
    return png[:_HEADER_BYTES] + chunk + png[_HEADER_BYTES:]


def may_replace(file: str | os.PathLike[str]) -> bool:
    """Whether there is no such file, or it is a sheet that fastpipe drew."""
    if not os.path.lexists(file):
        return True
    try:
        with open(file, "rb") as stream:
            start = stream.read(_HEADER_BYTES + 4 + len(_CHUNK))
    except OSError:
        return False
    return start.endswith(_CHUNK)
