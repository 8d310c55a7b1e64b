"""The numbers of a map -> colours, to look at."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Uint8s

_NOTHING = (128, 128, 128)  # where a map has no number
_TINY = float(np.finfo(np.float32).tiny)
_HUES = 180  # of OpenCV's HSV with 8 bits


def range_of_map(values: NDArray[np.floating]) -> tuple[float, float]:
    """The least and the greatest number of a map; 0 and 0 if it has none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 0.0
    return float(finite.min()), float(finite.max())


def colours_of_map(
    values: NDArray[np.floating], least: float, greatest: float
) -> Uint8s:
    """A map as a picture.

    One channel goes from dark blue to yellow. Two are a direction: its hue, and its length as the
    brightness. Of three or more, the first three are red, green and blue. NaN is gray.

    Args:
        values: (height, width), or (channels, height, width), of floats.
        least, greatest: the numbers that have the first and the last colour.

    Returns:
        (height, width, 3) RGB.
    """
    channels = values[None] if values.ndim == 2 else values
    first_channels = channels[:3]
    is_nothing = ~np.isfinite(first_channels).all(axis=0)
    channels = first_channels.astype(np.float32)
    channels = np.nan_to_num(channels, posinf=0, neginf=0)
    if len(channels) == 2:
        pixels = _colours_of_directions(channels, max(-least, greatest))
    else:
        span = max(greatest - least, _TINY)
        shares = np.clip((channels - least) / span, 0, 1)
        bytes_of_channels = np.rint(255 * shares).astype(np.uint8)
        if len(channels) == 1:
            bgr = cv2.applyColorMap(bytes_of_channels[0], cv2.COLORMAP_VIRIDIS)
            pixels = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)
        else:
            pixels = np.ascontiguousarray(bytes_of_channels.transpose(1, 2, 0))
    pixels[is_nothing] = _NOTHING
    return np.asarray(pixels, np.uint8)


def _colours_of_directions(channels: NDArray[np.float32], longest: float) -> Uint8s:
    """(2, height, width) x and y -> RGB."""
    x, y = channels
    angles = np.arctan2(y, x)
    lengths = np.hypot(x, y) / max(longest, _TINY)
    hues = (angles / np.pi * (_HUES / 2)) % _HUES
    brightness = np.clip(lengths, 0, 1)
    hsv = np.empty((*x.shape, 3), np.uint8)
    hsv[..., 0] = hues
    hsv[..., 1] = 255
    hsv[..., 2] = np.rint(255 * brightness)
    rgb = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
    return np.asarray(rgb, np.uint8)
