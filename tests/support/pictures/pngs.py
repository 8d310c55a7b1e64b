"""Arrays -> PNGs of every kind and filter, made here; and damaged ones with checksums that are right."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, RGB, PALETTE, GRAY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
# First column and row of each pass, and the steps across and down (PNG Specification, 8.2).
ADAM7 = [
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
]
CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGB_ALPHA: 4}


def chunk(name: bytes, payload: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(payload))
        + name
        + payload
        + struct.pack(">I", zlib.crc32(name + payload))
    )


def header(width: int, height: int, bits: int = 8, color: int = GRAY, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced))


def packed_rows(samples: NDArray[np.integer], bits: int) -> NDArray[np.uint8]:
    """(height, samples a row) -> (height, bytes a row), as they stand in a PNG."""
    if bits == 16:
        return samples.astype(">u2").view(np.uint8)
    each = 8 // bits
    wide = np.pad(samples.astype(np.uint8), ((0, 0), (0, -samples.shape[1] % each)))
    parts = wide.reshape(len(wide), -1, each) << np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=2).astype(np.uint8)


def filtered(rows: NDArray[np.uint8], filters: Sequence[int], step: int) -> bytes:
    """Rows with the filters that are named, again and again."""
    out = []
    above = np.zeros(rows.shape[1], dtype=np.int64)
    for kind, row in zip(cycle(filters), rows.astype(np.int64), strict=False):
        left = np.concatenate([np.zeros(step, dtype=np.int64), row])[: len(row)]
        corner = np.concatenate([np.zeros(step, dtype=np.int64), above])[: len(row)]
        guess = left + above - corner
        distances = np.stack([abs(guess - left), abs(guess - above), abs(guess - corner)])
        paeth = np.choose(distances.argmin(axis=0), [left, above, corner])
        predicted = [np.zeros_like(row), left, above, (left + above) // 2, paeth][kind]
        out.append(bytes([kind]) + (row - predicted).astype(np.uint8).tobytes())
        above = row
    return b"".join(out)


def png(
    pixels: NDArray[np.integer],
    *,
    bits: int = 8,
    color: int = GRAY,
    filters: Sequence[int] = (0,),
    palette: bytes | None = None,
    idat_bytes: int = 2**31 - 1,
    before: bytes = b"",
    interlaced: bool = False,
    transparency: bytes | None = None,
) -> bytes:
    """A PNG of (height, width) or (height, width, channels).

    Args:
        pixels: samples below 2**bits.
        bits, color: of the header.
        filters: of the rows, in turn.
        palette: RGB of each index.
        idat_bytes: of each IDAT chunk.
        before: chunks that stand before the pixels.
        interlaced: in the seven passes of Adam7.
        transparency: payload of the tRNS chunk.
    """
    height, width = pixels.shape[:2]
    step = max(1, CHANNELS[color] * bits // 8)
    parts_of = ADAM7 if interlaced else [(0, 0, 1, 1)]
    passes = [pixels[y::down, x::across] for x, y, across, down in parts_of]
    rows = [packed_rows(part.reshape(len(part), -1), bits) for part in passes if part.size]
    deflated = zlib.compress(b"".join(filtered(part, filters, step) for part in rows))
    parts = [deflated[at : at + idat_bytes] for at in range(0, len(deflated), idat_bytes)]
    middle = b"" if palette is None else chunk(b"PLTE", palette)
    middle += b"" if transparency is None else chunk(b"tRNS", transparency)
    idat = b"".join(chunk(b"IDAT", part) for part in parts)
    return (
        SIGNATURE
        + header(width, height, bits, color, int(interlaced))
        + before
        + middle
        + idat
        + chunk(b"IEND")
    )


def chunks(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each chunk begins and ends."""
    at = len(SIGNATURE)
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        yield at, end
        at = end


def with_surplus(data: bytes) -> bytes:
    """A PNG of one IDAT with data behind its rows, compressed with them."""
    begin, end = next(
        (begin, end) for begin, end in chunks(data) if data[begin + 4 : begin + 8] == b"IDAT"
    )
    rows = zlib.decompress(data[begin + 8 : end - 4])
    return data[:begin] + chunk(b"IDAT", zlib.compress(rows + b"surplus")) + data[end:]


def with_true_checksums(data: bytes) -> bytes:
    """A PNG whose chunks still have their lengths, and whose checksums are made anew."""
    out = bytearray(data[: len(SIGNATURE)])
    for begin, end in chunks(data):
        out += data[begin : end - 4] + struct.pack(">I", zlib.crc32(data[begin + 4 : end - 4]))
    return bytes(out)
