"""The bytes of a mask's file -> a PNG with the same numbers.

Carvana has masks in GIFs, other datasets in BMPs and TIFFs.
"""

from __future__ import annotations

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.sources.picture.pillow import read_mask_numbers
from fastpipe.sources.picture.png import encode_png
from fastpipe.sources.picture.probe import image_format


def as_png(data: bytes) -> bytes:
    """A PNG of one channel. The bytes stay if they are a PNG already, or hold no numbers.

    Raises:
        ImageError: the file is damaged.
    """
    name = image_format(data)
    if name == "PNG":
        return data
    numbers = read_mask_numbers(data, name, max_pixels=MAX_PIXELS)
    if numbers is None:
        return data
    return encode_png(numbers, filters=False)
