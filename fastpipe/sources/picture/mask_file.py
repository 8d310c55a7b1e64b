"""The bytes of a mask's file -> a PNG with the same numbers: Carvana has GIFs, other datasets BMPs and TIFFs."""

from __future__ import annotations

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.sources.picture.pillow import numbers_of
from fastpipe.sources.picture.png import encode_png
from fastpipe.sources.picture.probe import image_format


def as_png(data: bytes) -> bytes:
    """A PNG of one channel; what is a PNG already, or holds no numbers, stays. ImageError: it is damaged."""
    name = image_format(data)
    numbers = None if name == "PNG" else numbers_of(data, name, max_pixels=MAX_PIXELS)
    return data if numbers is None else encode_png(numbers, filters=False)
