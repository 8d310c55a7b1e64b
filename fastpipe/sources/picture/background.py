"""A transparent picture and a colour -> the picture on it: its hidden colours are gone, as programs show it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError

_ROWS = 256  # that are worked on at once


def background_color(value: object) -> str | None:
    """A colour as users give it, as "#rrggbb": a name or code as CSS has them, or three numbers of 0 to 255."""
    if value is None:
        return None
    numbers: Any = value
    if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*,\s*\d+\s*,\s*\d+\s*", value):
        numbers = [int(each) for each in value.split(",")]
    if isinstance(numbers, str):
        from PIL import ImageColor  # most programs name no colour

        try:
            numbers = ImageColor.getrgb(numbers)[:3]
        except ValueError:
            numbers = None
    try:
        found = [int(each) for each in numbers if int(each) == each and 0 <= each <= 255]
    except (TypeError, ValueError):
        found = []
    if len(found) != 3 or len(numbers) != 3:
        expected = 'a colour such as "white" or "#ffffff", or three numbers of 0 to 255'
        raise ConfigError(f"--background: expected {expected}, got {value!r}")
    return "#{:02x}{:02x}{:02x}".format(*found)


def is_transparent(samples: NDArray[Any]) -> bool:
    """Whether a picture has alpha, and a pixel of it is not opaque; (height, width, channels)."""
    return samples.shape[2] % 2 == 0 and bool(samples[:, :, -1].min() < np.iinfo(samples.dtype).max)


def on_background(samples: NDArray[Any], color: str) -> NDArray[Any]:
    """(height, width, 2 or 4) of 8 or 16 bits -> RGB of the same bits, rounded as Pillow's `paste` with a mask does."""
    most = int(np.iinfo(samples.dtype).max)
    behind = np.array([int(color[at : at + 2], 16) * (most // 255) for at in (1, 3, 5)], np.uint64)
    out = np.empty((*samples.shape[:2], 3), samples.dtype)
    for first in range(0, len(samples), _ROWS):
        rows = samples[first : first + _ROWS].astype(np.uint64)
        alpha = rows[:, :, -1:]
        mixed = rows[:, :, :-1] * alpha + behind * (most - alpha)
        out[first : first + _ROWS] = (mixed + most // 2) // most
    return out
