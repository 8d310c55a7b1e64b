"""The bytes of a mask with a colour for each class -> the numbers of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Uint8s
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ImageError
from fastpipe.sources.picture.background import has_alpha
from fastpipe.sources.picture.open_image import open_image
from fastpipe.sources.picture.pillow import to_rgb
from fastpipe.sources.picture.probe import image_format

_OPAQUE = 255


def numbers_of_colours(
    data: bytes,
    colours: Sequence[tuple[int, int, int]],
    numbers: Sequence[int],
    place: str = "the list of colours; add it there",
) -> NDArray[Any]:
    """Reads a picture without loss, whose pixels have these colours.

    Args:
        data: of a PNG, GIF, BMP or the like.
        colours: red, green and blue of each class.
        numbers: of the classes, in the same order.
        place: where the colours are listed, for a message.

    Returns:
        (height, width) uint8 or uint16: the numbers of the classes.

    Raises:
        ImageError: the picture has loss, or a pixel another colour.
    """
    name = image_format(data)
    if name == "JPEG":
        raise ImageError(
            "a JPEG, whose colours are not exact; expected a mask as a PNG"
        )
    image = open_image(data, name, max_pixels=MAX_PIXELS)
    samples = image.samples()
    if not image.lossless or samples.dtype != np.uint8:
        raise ImageError(
            f"a {name} with loss or with 16 bits; expected colours of 8 bits as a PNG"
        )
    if has_alpha(samples):
        is_transparent = samples[:, :, -1] != _OPAQUE
        if is_transparent.any():
            raise ImageError(
                f"a pixel that is not opaque, at {_first_place(is_transparent)}; expected the "
                "colour of a class"
            )

    # (classes,) and (height, width): a number for each colour.
    codes = _codes(np.array(colours, dtype=np.uint8))
    rgb = to_rgb(samples)
    pixels = _codes(rgb)
    order = np.argsort(codes)
    # (height, width): the place of each pixel's colour among the sorted ones, then among `colours`.
    sorted_places = np.searchsorted(codes[order], pixels)
    places = order[np.minimum(sorted_places, len(codes) - 1)]
    is_unknown = codes[places] != pixels
    if is_unknown.any():
        colour = tuple(rgb[is_unknown][0].tolist())
        raise ImageError(
            f"the colour {colour} at {_first_place(is_unknown)} is none of the {len(codes)} in "
            f"{place}"
        )
    dtype = np.uint8 if max(numbers) < 256 else np.uint16
    return np.array(numbers, dtype=dtype)[places]


def _codes(rgb: Uint8s) -> NDArray[np.int32]:
    """(...) a number for each colour of (..., 3)."""
    wide = rgb.astype(np.int32)
    codes: NDArray[np.int32] = wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]
    return codes


def _first_place(is_wrong: Bools) -> str:
    """The place of the first pixel, for a message."""
    y, x = np.argwhere(is_wrong)[0].tolist()
    return f"x {x}, y {y}"


def classes_of_segments(
    data: bytes, segments: Sequence[tuple[int, int]]
) -> NDArray[Any]:
    """Reads a mask of COCO's panoptic format: red + 256 green + 65536 blue is the id of a segment.

    Args:
        data: of a PNG.
        segments: id and class of each.

    Returns:
        (height, width) uint8 or uint16: the classes, and 0 for the id 0.

    Raises:
        ImageError: as of `numbers_of_colours`; a pixel has an id that is no segment.
    """
    colours = [(0, 0, 0)]
    numbers = [0]
    for segment_id, number in segments:
        colours.append((segment_id & 0xFF, segment_id >> 8 & 0xFF, segment_id >> 16))
        numbers.append(number)
    return numbers_of_colours(data, colours, numbers, "segments_info")
