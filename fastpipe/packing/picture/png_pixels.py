"""Turns a PNG into 8-bit RGB through OpenCV, of an animated one the still picture (its IDAT).

OpenCV is given the critical chunks only, because of the others

- the animation (acTL, fcTL, fdAT) would make it return the first animated frame, where Pillow, and every
  reader without animation, shows the still picture;
- color profiles and texts make libpng write warnings to stderr, past OpenCV's log level;
- tRNS makes it compute an alpha that is then dropped.
"""

from __future__ import annotations

import struct

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.packing.picture.opencv import decode_bgr

__all__ = ["decode_png_rgb"]


def decode_png_rgb(data: bytes) -> NDArray[np.uint8]:
    """Decode a PNG.

    Args:
        data: the whole file, which `probe` has accepted.

    Returns:
        (height, width, 3) uint8 RGB; the high byte of 16-bit samples; alpha dropped.

    Raises:
        ImageError: the compressed rows are damaged or too few. libpng then also writes one line to stderr.
    """
    bgr = decode_bgr(_critical(data))
    cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr)
    return bgr


def _critical(data: bytes) -> bytes:
    """The file with its critical chunks only (PNG 3rd edition, 5.4: their names begin with a capital)."""
    view = memoryview(data)
    kept = [view[:8]]
    position = 8
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, position)
        end = position + 12 + length
        if data[position + 4 : position + 5].isupper():
            kept.append(view[position:end])
        position = end
    return b"".join(kept)
