"""A source's bytes, and its path -> the numbers by which a sample is known however and wherever it is stored."""

from __future__ import annotations

from collections.abc import Callable

import xxhash

_PIECE_BYTES = 4096


def identity_of(size_bytes: int, read: Callable[[int, int], bytes | memoryview]) -> int:
    """XXH3-64 of the size of a picture's file, and of its first, middle and last 4,096 bytes (docs/format.md).

    An unpacked source need not be read as a whole for it. `read` gives bytes from an offset on: so many.
    """
    digest = xxhash.xxh3_64(size_bytes.to_bytes(8, "little"))
    last = max(size_bytes - _PIECE_BYTES, 0)
    for offset in (0, last // 2, last):
        digest.update(read(offset, min(size_bytes, _PIECE_BYTES)))
    return digest.intdigest()


def key_hash(path: str) -> int:
    """XXH3-64 of a sample's key: the path of its source, as `readable` gives it."""
    return xxhash.xxh3_64_intdigest(path.encode(errors="surrogatepass"))
