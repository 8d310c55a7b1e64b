"""Turns pixels upright and scales them down, through OpenCV on the calling thread only."""

from __future__ import annotations

import functools

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError

__all__ = ["apply_orientation", "shrink"]


def apply_orientation(image: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn and mirror a picture upright (CIPA DC-008, tag Orientation).

    Args:
        image: (height, width, channels) or (height, width).
        orientation: 1..8.

    Returns:
        The same object for 1; else a C-contiguous copy, its sides swapped for 5..8.

    Raises:
        ConfigError: the orientation is not 1..8.
    """
    if not 1 <= orientation <= 8:
        raise ConfigError(f"orientation must be 1..8, got {orientation}")
    if orientation == 1:
        return image
    turned = image.swapaxes(0, 1) if orientation >= 5 else image
    if orientation in (3, 4, 7, 8):
        turned = turned[::-1]
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    return np.ascontiguousarray(turned)


def shrink(image_rgb: NDArray[np.uint8], max_size: int) -> NDArray[np.uint8]:
    """Scale a picture down so that its longest side is at most ``max_size``, by area averaging.

    Args:
        image_rgb: (height, width, 3) uint8.
        max_size: pixels, at least 1.

    Returns:
        The same object if it is small enough already; else a new array with the proportions kept to the
        nearest pixel, each side at least 1.

    Raises:
        ConfigError: max_size is below 1.
    """
    if max_size < 1:
        raise ConfigError(f"max_size must be at least 1 pixel, got {max_size}")
    height, width = image_rgb.shape[:2]
    longest = max(height, width)
    if longest <= max_size:
        return image_rgb
    # Round half up in whole numbers: the same on every machine.
    new_width = max(1, (2 * width * max_size + longest) // (2 * longest))
    new_height = max(1, (2 * height * max_size + longest) // (2 * longest))
    _quiet_cv2()
    small = cv2.resize(image_rgb, (new_width, new_height), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.uint8)


@functools.cache
def _quiet_cv2() -> None:
    """Make OpenCV use only the calling thread; once a process.

    Packing runs one Python thread a core. OpenCV would start a pool of as many threads for each call, which then fight
    over the same cores; 0 means that it works in the calling thread.
    """
    cv2.setNumThreads(0)
