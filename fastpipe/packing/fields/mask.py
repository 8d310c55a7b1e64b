"""Masks: a file, an image or an array -> ids of pixels -> a PNG that holds exactly these; and its header.

Format: W3C PNG 3rd edition, chapters 7, 9, 10 and 11.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.native import _engine
from fastpipe.packing.picture.pillow import open_image
from fastpipe.packing.picture.probe import image_format

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _PALETTE = 0, 3
_EXPECTED = "expected a mask as a PNG (gray or palette, 1 to 16 bit), or as (H, W) of uint8 or uint16"
# Of a gray PNG with fewer bits Pillow scales the values, so that the greatest is 255: these are the factors.
_SCALES = {2: 85, 4: 17}


class PngHeader(NamedTuple):
    """Of a PNG: size in pixels, bits of a value, and the colour type (0: gray, 3: palette)."""

    width: int
    height: int
    bits: int
    colour: int


def png_header(data: bytes) -> PngHeader:
    """The header of a PNG.

    Raises:
        ImageError: it has none.
    """
    if not data.startswith(_SIGNATURE) or data[12:16] != b"IHDR" or len(data) < 33:
        raise ImageError(f"not a PNG: starts with {data[:16]!r}; {_EXPECTED}")
    return PngHeader(*struct.unpack_from(">IIBB", data, 16))


def mask_of_png(data: bytes, size: tuple[int, int]) -> NDArray[Any]:
    """(H, W) uint8 or uint16: the values of a gray PNG, or the palette's numbers.

    Args:
        data: the file.
        size: width and height that it has to have; nothing is decoded of a mask of another size.

    Raises:
        ImageError: it is no such PNG, damaged, or of another size.
    """
    name = image_format(data)
    if name != "PNG":
        raise ImageError(f"{name}, which may change ids; {_EXPECTED}")
    header = png_header(data)
    if header.colour not in (_GRAY, _PALETTE):
        raise ImageError(f"a PNG with colours (type {header.colour}); {_EXPECTED}")
    refuse_other_size((header.width, header.height), size)
    opened = open_image(data, name, max_pixels=size[0] * size[1])
    return opened.values() // _SCALES.get(header.bits if header.colour == _GRAY else 0, 1)


def mask_of_array(mask: NDArray[Any]) -> NDArray[Any]:
    """(H, W) uint8 or uint16, a copy.

    Raises:
        ImageError: it has another shape or type, or values that do not fit.
    """
    if mask.ndim != 2 or not mask.size or mask.dtype.kind not in "biu":
        raise ImageError(f"{_EXPECTED}; got an array of {mask.shape} {mask.dtype}")
    if mask.dtype.kind == "b" or mask.dtype == np.uint8:
        return mask.astype(np.uint8)
    if mask.min() < 0 or mask.max() > 65535:
        raise ImageError(f"{_EXPECTED}; got values from {mask.min()} to {mask.max()}")
    return mask.astype(np.uint16)


def encode_mask(mask: NDArray[Any]) -> bytes:
    """A gray PNG of 8 or 16 bits: no filter, no interlacing. Masks repeat themselves: deflate finds that alone."""
    return _engine.encode_mask(np.ascontiguousarray(mask))


def refuse_other_size(found: tuple[int, int], expected: tuple[int, int]) -> None:
    """Raises ImageError if a picture's size, width and height, is not that of the sample's image."""
    if found != expected:
        raise ImageError(
            f"expected {expected[0]} x {expected[1]} pixels, the size of the sample's image; got {found[0]} x "
            f"{found[1]}"
        )
