"""Turns an object's class, colours and mask into a caption."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["caption_of"]

_PLACES = (
    ("at the top left", "at the top", "at the top right"),
    ("on the left", "in the middle", "on the right"),
    ("at the bottom left", "at the bottom", "at the bottom right"),
)
# Hues up to these degrees; red again beyond the last.
_HUES = ((18, "red"), (48, "orange"), (70, "yellow"), (165, "green"), (260, "blue"), (335, "purple"), (360, "red"))
_GRAYS = ((40, "black"), (100, "dark gray"), (165, "gray"), (225, "light gray"), (256, "white"))
# Difference of the largest and the smallest channel below which a colour looks gray: of 255, and of the largest.
_LEAST_CHROMA, _LEAST_SATURATION, _BEIGE = 20.0, 0.14, 0.4
_DARK = 125.0  # largest channel, of 255
_BROWN, _LIGHT = 135.0, 175.0  # luma, of 255


def caption_of(name: str, colours: Sequence[NDArray[np.float64]], mask: NDArray[np.bool_], *, gray: bool) -> str:
    """Describe an object.

    Args:
        name: its class.
        colours: one or two BGR colours, about 0..255.
        mask: (height, width), True where the object is.
        gray: the photo has no colours.

    Returns:
        Such as "a dark blue disc on the left", "a pebble with red and light gray stripes at the top".
    """
    words = [_colour_word(colour, gray=gray) for colour in colours]
    if name in ("checks", "stripes"):
        said = " and ".join(words) if len(set(words)) == len(words) else words[0]
        thing = f"pebble with {said} {name}"
    else:
        thing = f"{words[0]} {name}"
    return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing} {_place(mask)}"


def _colour_word(colour: NDArray[np.float64], *, gray: bool) -> str:
    blue, green, red = np.clip(colour, 0.0, 255.0).tolist()
    luma = 0.114 * blue + 0.587 * green + 0.299 * red
    hue, saturation, most = colorsys.rgb_to_hsv(red, green, blue)
    if gray or saturation * most < _LEAST_CHROMA or saturation < _LEAST_SATURATION:
        return next(word for limit, word in _GRAYS if luma < limit)
    word = next(word for limit, word in _HUES if 360.0 * hue <= limit)
    if word == "orange" and luma < _BROWN:
        word = "brown"
    elif word == "orange" and saturation < _BEIGE:
        return "beige"
    elif word == "red" and luma > _LIGHT:
        return "pink"
    return f"dark {word}" if most < _DARK else f"light {word}" if luma > _LIGHT else word


def _place(mask: NDArray[np.bool_]) -> str:
    """Which of nine fields of the photo the middle of the object is in."""
    rows, columns = np.nonzero(mask)
    height, width = mask.shape
    return _PLACES[int(3 * rows.mean() / height)][int(3 * columns.mean() / width)]
