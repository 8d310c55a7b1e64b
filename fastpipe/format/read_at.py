"""A range of an open file -> its bytes, in as many reads as the system needs for them."""

from __future__ import annotations

import os

# At once: a range whose length is a lie must not cost its memory.
_PIECE_BYTES = 64 << 20


def read_at(descriptor: int, size_bytes: int, offset_bytes: int) -> bytes:
    """Reads a range, however often the system gives less than was asked for.

    Returns:
        size_bytes bytes; fewer only where the file ends before.

    Raises:
        OSError: the disk refuses.
    """
    data = os.pread(descriptor, min(size_bytes, _PIECE_BYTES), offset_bytes)
    if len(data) == size_bytes or not data:
        return data
    pieces, read = [data], len(data)
    while read < size_bytes and (
        data := os.pread(descriptor, min(size_bytes - read, _PIECE_BYTES), offset_bytes + read)
    ):
        pieces.append(data)
        read += len(data)
    return b"".join(pieces)
