"""Turns a TIFF LZW stream into the number of bytes that it decompresses to, or finds where it is damaged.

Format: TIFF 6.0, section 13. Only lengths are computed, whole tables at a time in numpy, because the
decoder that makes the pixels (OpenCV) does not say when it met damage.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["lzw_length"]

_CLEAR, _END, _FIRST_FREE = 256, 257, 258
# libtiff goes on with 12-bit codes for a while after its table is full; so do the codes looked at here.
_MOST_CODES = 5119 - _FIRST_FREE
# Code number k after a clear is read when 257 + k entries are taken; one bit more from 511, 1023, 2047 on.
_WIDTHS = 9 + np.searchsorted([511, 1023, 2047], 257 + np.arange(_MOST_CODES), side="right")
_STARTS = np.concatenate([[0], np.cumsum(_WIDTHS)])


def lzw_length(stream: NDArray[np.uint8], most: int) -> int | None:
    """Count the bytes that a TIFF LZW stream decompresses to.

    Args:
        stream: the compressed bytes, (size,) uint8.
        most: bytes that are wanted; counting stops once it is reached.

    Returns:
        The count, at least ``most`` where the stream is long enough; None if it uses a code
        that does not exist yet.
    """
    # Three bytes past the end, so that a code can be cut from any position.
    padded = np.concatenate([stream, np.zeros(3, np.uint8)])
    bits_in_all = stream.size * 8
    position = length = 0
    while length < most:
        count = int(np.searchsorted(_STARTS, bits_in_all - position, side="right")) - 1
        codes = _cut(padded, position + _STARTS[:count], _WIDTHS[:count])
        stops = np.flatnonzero((codes == _CLEAR) | (codes == _END))
        used = int(stops[0]) if stops.size else count
        # Damage after the last wanted byte does not matter: the decoder never reads it.
        known = _first_wrong(codes[:used])
        length += int(_lengths(codes[:known]).sum())
        if known < used and length < most:
            return None
        if not stops.size or codes[used] == _END:
            break
        position += int(_STARTS[used + 1])
    return length


def _cut(padded: NDArray[np.uint8], at_bits: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut the codes of these widths out of the stream, most significant bit first."""
    byte = at_bits >> 3
    window = (
        (padded[byte].astype(np.int64) << 16)
        | (padded[byte + 1].astype(np.int64) << 8)
        | padded[byte + 2].astype(np.int64)
    )
    codes: NDArray[np.int64] = (window >> (24 - (at_bits & 7) - widths)) & ((1 << widths) - 1)
    return codes


def _first_wrong(codes: NDArray[np.int64]) -> int:
    """Number of the first code that is not in the table yet when it is read."""
    # Code k may be a byte or an entry up to 257 + k: the newest is the one that is being made.
    wrong = np.flatnonzero((codes >= _FIRST_FREE) & (codes > 257 + np.arange(codes.size)))
    return int(wrong[0]) if wrong.size else codes.size


def _lengths(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Length of the string of each code of one table, all of which exist when they are read."""
    # Entry 258 + j is the string of code j and one byte more, so a code is as long as the chain of
    # entries behind it. All chains are followed at once, in steps that double (pointer jumping).
    is_entry = codes >= _FIRST_FREE
    behind = np.where(is_entry, codes - _FIRST_FREE, np.arange(codes.size))
    depth = is_entry.astype(np.int64)
    while (further := depth[behind]).any():
        depth += further
        behind = behind[behind]
    return depth + 1
