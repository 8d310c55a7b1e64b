"""Samples -> a PNG that holds exactly these, in strips that the engine inflates one by one (docs/format.md)."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.sample_layout import PNG_MAGIC
from fastpipe.native import _engine

_COLORS = {
    1: 0,
    2: 4,
    3: 2,
    4: 6,
}  # channels -> colour type: gray, gray and alpha, RGB, RGB and alpha
_STRIPS = b"fpST"
# Bytes of samples in a strip, about, and rows at least: a strip costs some 150 bytes, and is inflated as a whole.
_STRIP_BYTES, _LEAST_ROWS = 1 << 15, 16
_STORED_BYTES = 1 << 14  # up to so many samples are not compressed: reading them is a copy
# How samples are deflated: level, strategy, and with filters or without. Photos are smallest without matches, and five
# times as fast to write; drawings need them, and are often smaller without filters.
_WAYS = (
    (6, zlib.Z_RLE, True),
    (6, zlib.Z_DEFAULT_STRATEGY, True),
    (9, zlib.Z_DEFAULT_STRATEGY, False),
)
_TRIED = 8  # every so many strips are deflated in each way, to choose one


def encode_png(
    samples: NDArray[Any], *, filters: bool = True, strip_rows: int | None = None
) -> bytes:
    """Encodes (height, width, 1..4) or (height, width) uint8 or uint16, not empty; the same samples, the same bytes.

    Not `filters`: PNG's, which are no use for ids, are not tried. `strip_rows`: of a strip; None: as many as are fast.
    """
    height, width = samples.shape[:2]
    channels = samples.shape[2] if samples.ndim == 3 else 1
    bits = 8 * samples.itemsize
    wide = samples.astype(">u2") if bits == 16 else samples
    rows = np.ascontiguousarray(wide).reshape(height, -1).view(np.uint8)
    chunks = [
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, _COLORS[channels], 0, 0, 0))
    ]
    each = strip_rows or max(_LEAST_ROWS, _STRIP_BYTES // rows.shape[1])
    if each < height:
        chunks.append(_chunk(_STRIPS, struct.pack(">I", each)))
    chunks += [
        _chunk(b"IDAT", strip)
        for strip in _deflated(rows, channels * bits // 8, min(each, height), filters)
    ]
    return b"".join([PNG_MAGIC, *chunks, _chunk(b"IEND", b"")])


def is_ours(data: bytes) -> bool:
    """Whether a PNG is one that `encode_png` could have written of a large picture: it has strips."""
    return data[37:41] == _STRIPS


def _chunk(name: bytes, payload: bytes) -> bytes:
    checksum = zlib.crc32(payload, zlib.crc32(name))
    return struct.pack(">I", len(payload)) + name + payload + struct.pack(">I", checksum)


def _deflated(rows: NDArray[np.uint8], pixel_bytes: int, each: int, filters: bool) -> list[bytes]:
    """A zlib stream of rows, in pieces of `each` rows that can be inflated by themselves."""
    plain = np.zeros((len(rows), rows.shape[1] + 1), dtype=np.uint8)
    plain[:, 1:] = rows
    if rows.size <= _STORED_BYTES:
        return _stream(plain, each, (0, zlib.Z_DEFAULT_STRATEGY))
    ways = [(level, strategy, plain) for level, strategy, filtered in _WAYS if not filtered]
    if filters:
        filtered = _engine.filter_rows(rows, pixel_bytes, each)
        tried = np.concatenate(
            [np.arange(at, min(at + each, len(rows))) for at in range(0, len(rows), each * _TRIED)]
        )
        ways += [
            (level, strategy, filtered) for level, strategy, with_filters in _WAYS if with_filters
        ]
        sizes = [sum(map(len, _stream(made[tried], each, way))) for *way, made in ways]  # type: ignore[arg-type]
        ways = [ways[sizes.index(min(sizes))]]
    ((level, strategy, made),) = ways
    return _stream(made, each, (level, strategy))


def _stream(rows: NDArray[np.uint8], each: int, way: tuple[int, int]) -> list[bytes]:
    level, strategy = way
    deflate = zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    starts = range(0, len(rows), each)
    return [
        deflate.compress(rows[at : at + each].data)
        + deflate.flush(zlib.Z_FULL_FLUSH if at != starts[-1] else zlib.Z_FINISH)
        for at in starts
    ]
