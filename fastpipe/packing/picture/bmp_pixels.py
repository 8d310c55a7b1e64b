"""Turns a BMP into 8-bit RGB, through OpenCV except for pixels of 16 bits or with color masks.

OpenCV leaves the low bits of 5-bit samples empty (white becomes 248) and ignores the masks that follow
a 40-byte header, so those pixels, which are not compressed, are read here.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.packing.picture.bmp import BmpLayout, read_bmp
from fastpipe.packing.picture.opencv import decode_bgr

__all__ = ["decode_bmp_rgb"]


def decode_bmp_rgb(data: bytes) -> NDArray[np.uint8]:
    """Decode a BMP.

    Args:
        data: the whole file, which `probe` has accepted.

    Returns:
        (height, width, 3) uint8 RGB; the fourth byte of 32-bit pixels dropped; a sample of n < 8 bits is
        floor(255 * sample / (2**n - 1)), as in Pillow.

    Raises:
        ImageError: the rows are damaged, or the color masks make no sense.
    """
    layout = read_bmp(data)
    if layout.bits not in (16, 32):
        bgr = decode_bgr(data)
        cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr)
        return bgr
    rows = np.frombuffer(data, np.uint8, layout.stride_bytes * layout.height, layout.offset_bytes)
    code = "<u2" if layout.bits == 16 else "<u4"
    # (rows as stored, width)
    pixels = rows.reshape(layout.height, layout.stride_bytes).view(code)[:, : layout.width]
    if not layout.top_down:
        pixels = pixels[::-1]
    return _samples(pixels, layout)


def _samples(pixels: NDArray[np.unsignedinteger], layout: BmpLayout) -> NDArray[np.uint8]:
    rgb = np.empty((layout.height, layout.width, 3), np.uint8)
    for channel, mask in enumerate(layout.masks):
        shift = (mask & -mask).bit_length() - 1
        top = mask >> shift if mask else 0
        if mask == 0 or top & (top + 1) or mask >> layout.bits:
            raise ImageError(f"damaged BMP: color mask {mask:#x} in {layout.bits}-bit pixels")
        sample = (pixels >> np.array(shift, pixels.dtype)) & np.array(top, pixels.dtype)
        rgb[:, :, channel] = sample if top == 255 else sample.astype(np.uint64) * 255 // top
    return rgb
