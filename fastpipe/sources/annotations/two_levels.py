"""A mask of black and white that was stored as a JPEG -> its pixels of 0 and 255.

Kvasir-SEG has such masks. The loss of the JPEG changes pixels at the edges of objects by some
levels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.native import _engine

JPEG_START = b"\xff\xd8\xff"
_WHITE = 255
_THRESHOLD = 128
# So near to 0 or 255 are nearly all pixels of a mask that was black and white before the JPEG.
_MAX_ERROR = 40
_MIN_SHARE = 0.98


def read_two_levels(jpeg: bytes) -> NDArray[np.uint8]:
    """(height, width): 0 or 255.

    Raises:
        ImageError: the JPEG is damaged, or was not black and white.
    """
    try:
        pixels = _engine.decode(jpeg)
    except _engine.StatusError as problem:
        raise ImageError(f"a JPEG that cannot be decoded: {problem}") from None
    # (height, width): the brightest channel of each pixel.
    levels = pixels.max(axis=2)
    is_near = (levels <= _MAX_ERROR) | (levels >= _WHITE - _MAX_ERROR)
    if is_near.mean() < _MIN_SHARE:
        raise ImageError(
            "a JPEG whose values are not near 0 and 255; expected a mask of numbers as a PNG"
        )
    is_white = levels >= _THRESHOLD
    two_levels: NDArray[np.uint8] = is_white.astype(np.uint8) * np.uint8(_WHITE)
    return two_levels
