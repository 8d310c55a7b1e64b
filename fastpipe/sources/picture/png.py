"""Samples -> a PNG that holds exactly these, in strips that can be inflated one by one.

See docs/explanation/format.md.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Uint8s
from fastpipe.dataset.format.sample_layout import PNG_MAGIC
from fastpipe.native import _engine

# Channels -> PNG's colour type: gray; gray and alpha; RGB; RGB and alpha.
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_STRIPS_CHUNK = b"fpST"
# A strip has about this many bytes of samples, and at least this many rows. A loader inflates whole
# strips, so small ones save work; but each costs some 150 bytes.
_STRIP_BYTES = 1 << 15
_MIN_STRIP_ROWS = 16
# Samples up to this size are stored without compression, so that reading them is a copy.
_UNCOMPRESSED_BYTES = 1 << 14
# To choose a way to deflate, one strip of this many is deflated in all ways.
_TRIED_STRIDE = 8

# Ways to deflate: level and strategy of zlib.
_STORE = (0, zlib.Z_DEFAULT_STRATEGY)
# Photos are smallest with PNG's filters and without matches, and five times as fast to write.
_RUNS_ONLY = (6, zlib.Z_RLE)
_USUAL = (6, zlib.Z_DEFAULT_STRATEGY)
# Drawings need matches, and are often smaller without filters.
_BEST = (9, zlib.Z_DEFAULT_STRATEGY)


def encode_png(
    samples: NDArray[Any], *, filters: bool = True, strip_rows: int | None = None
) -> bytes:
    """Encodes samples; the same samples give the same bytes.

    Args:
        samples: (height, width, 1..4) or (height, width) uint8 or uint16, not empty.
        filters: try PNG's filters, which only waste time on numbers of classes or objects.
        strip_rows: rows of a strip; None: as many as are fast.
    """
    height, width = samples.shape[:2]
    channels = 1
    if samples.ndim == 3:
        channels = samples.shape[2]
    bits = 8 * samples.itemsize
    if bits == 16:
        # PNG has the high byte first.
        samples = samples.astype(">u2")
    # (height, bytes of a row)
    rows = np.ascontiguousarray(samples).reshape(height, -1).view(np.uint8)
    if strip_rows is None:
        strip_rows = max(_MIN_STRIP_ROWS, _STRIP_BYTES // rows.shape[1])

    header = struct.pack(
        ">IIBBBBB", width, height, bits, _COLOR_TYPES[channels], 0, 0, 0
    )
    parts = [PNG_MAGIC, _chunk(b"IHDR", header)]
    if strip_rows < height:
        parts.append(_chunk(_STRIPS_CHUNK, struct.pack(">I", strip_rows)))
    strip_rows = min(strip_rows, height)
    for strip in _deflate_smallest(rows, channels * bits // 8, strip_rows, filters):
        parts.append(_chunk(b"IDAT", strip))
    parts.append(_chunk(b"IEND", b""))
    return b"".join(parts)


def has_strips(data: bytes) -> bool:
    """Whether a PNG is one that `encode_png` could have written of a large picture."""
    return data[37:41] == _STRIPS_CHUNK


def _chunk(name: bytes, payload: bytes) -> bytes:
    length = struct.pack(">I", len(payload))
    crc = zlib.crc32(payload, zlib.crc32(name))
    checksum = struct.pack(">I", crc)
    return length + name + payload + checksum


def _deflate_smallest(
    rows: Uint8s, pixel_bytes: int, strip_rows: int, use_filters: bool
) -> list[bytes]:
    """Deflates rows in the way that makes them smallest."""
    # (height, 1 + bytes of a row): before each row stands the number of its filter, 0: none.
    row_bytes = rows.shape[1]
    unfiltered = np.zeros((len(rows), row_bytes + 1), dtype=np.uint8)
    unfiltered[:, 1:] = rows
    if rows.size <= _UNCOMPRESSED_BYTES:
        return _deflate(unfiltered, strip_rows, _STORE)
    if not use_filters:
        return _deflate(unfiltered, strip_rows, _BEST)

    filtered = _engine.filter_rows(rows, pixel_bytes, strip_rows)
    strip_numbers = np.arange(len(rows)) // strip_rows
    is_tried = strip_numbers % _TRIED_STRIDE == 0
    best_size = None
    for candidate, way in (
        (unfiltered, _BEST),
        (filtered, _RUNS_ONLY),
        (filtered, _USUAL),
    ):
        deflated = _deflate(candidate[is_tried], strip_rows, way)
        size = sum(map(len, deflated))
        if best_size is None or size < best_size:
            best_size = size
            best_rows = candidate
            best_way = way
    return _deflate(best_rows, strip_rows, best_way)


def _deflate(rows: Uint8s, strip_rows: int, way: tuple[int, int]) -> list[bytes]:
    """A zlib stream of rows, in one piece per strip. Each piece can be inflated by itself."""
    level, strategy = way
    deflate = zlib.compressobj(
        level, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy
    )
    pieces = []
    for start in range(0, len(rows), strip_rows):
        is_last = start + strip_rows >= len(rows)
        # A full flush forgets the window, so that no strip refers to one before it.
        flush = zlib.Z_FINISH if is_last else zlib.Z_FULL_FLUSH
        strip = rows[start : start + strip_rows].data
        compressed = deflate.compress(strip)
        pieces.append(compressed + deflate.flush(flush))
    return pieces
