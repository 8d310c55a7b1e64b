"""A transparent picture and a background colour -> the picture blended with the colour."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError

# Rows that are blended at once. They are computed in 64 bits, so they take 8 times the memory of
# 8-bit samples.
_CHUNK_ROWS = 256


def parse_background(value: object) -> str | None:
    """Parses a colour of a user: "#rrggbb", or None for None.

    Args:
        value: a CSS name or code, three numbers of 0 to 255, or a text such as "255, 0, 0".

    Raises:
        ConfigError: it is no colour.
    """
    if value is None:
        return None
    channels: Any = value
    if isinstance(value, str):
        channels = _channels_of_text(value)
    try:
        if len(channels) == 3:
            rgb = [int(channel) for channel in channels]
            is_whole = rgb == list(channels)
            if is_whole and min(rgb) >= 0 and max(rgb) <= 255:
                return f"#{bytes(rgb).hex()}"
    except (TypeError, ValueError):
        pass  # not three numbers
    raise ConfigError(
        'expected a colour such as "white" or "#ffffff", or three numbers of 0 to 255, got '
        f"{value!r}",
        option="background",
    )


def _channels_of_text(text: str) -> tuple[int, ...]:
    """Red, green and blue; () if the text is no colour."""
    if re.fullmatch(r"\s*\d+\s*,\s*\d+\s*,\s*\d+\s*", text):
        return tuple(map(int, text.split(",")))
    # Most programs name no colour, so Pillow is imported only here.
    from PIL import ImageColor

    try:
        return ImageColor.getrgb(text)[:3]
    except ValueError:
        return ()


def is_transparent(samples: NDArray[Any]) -> bool:
    """Whether a picture has a pixel that is not opaque.

    Args:
        samples: (height, width, 1..4) uint8 or uint16.
    """
    opaque = np.iinfo(samples.dtype).max
    if not has_alpha(samples):
        return False
    alpha = samples[:, :, -1]
    return bool(alpha.min() < opaque)


def has_alpha(samples: NDArray[Any]) -> bool:
    """Whether a picture is gray and alpha, or RGB and alpha: (height, width, 2 or 4)."""
    return samples.shape[2] in (2, 4)


def blend_with_background(samples: NDArray[Any], color: str) -> NDArray[Any]:
    """Blends a picture with a colour, rounded as Pillow's `paste` with a mask rounds.

    Args:
        samples: (height, width, 2 or 4) uint8 or uint16.
        color: "#rrggbb".

    Returns:
        (height, width, 3) of the same dtype.
    """
    max_value = int(np.iinfo(samples.dtype).max)
    rgb = bytes.fromhex(color[1:])
    color_u8 = np.frombuffer(rgb, np.uint8)
    # 65,535 is 257 * 255, so 8 bits become 16 without a remainder.
    scale = max_value // 255
    background = color_u8.astype(np.uint64) * scale
    height, width, _ = samples.shape
    blended = np.empty((height, width, 3), samples.dtype)
    for start in range(0, len(samples), _CHUNK_ROWS):
        stop = start + _CHUNK_ROWS
        rows = samples[start:stop].astype(np.uint64)
        alpha = rows[:, :, -1:]
        colour = rows[:, :, :-1]
        mixed = colour * alpha + background * (max_value - alpha)
        half = max_value // 2  # rounds to the nearest value
        blended[start:stop] = (mixed + half) // max_value
    return blended
