"""A checked value and the place of its picture -> the value as a shard holds it: an entry of KEY.json, or a member."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.format.layout import JPEG_STORAGE
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.mask import encode_mask, mask_of_png, refuse_other_size
from fastpipe.packing.fields.placement import Placement
from fastpipe.packing.fields.values import Boxes
from fastpipe.packing.picture.convert import EncodeOptions, Packed, convert, convert_pixels


def placement(packed: Packed, how: EncodeOptions) -> Placement:
    """Where the pixels of a picture went."""
    turn = packed.orientation if how.apply_exif else 1
    return Placement(*packed.source_size, turn, packed.width, packed.height)


def store(kind: str, value: Any, packed: Packed, how: EncodeOptions) -> Stored:
    """Moves a value as the picture was moved, and lays it out.

    Args:
        kind: of the field.
        value: what `take` or `take_picture` gave.
        packed: the sample's picture.
        how: the options that it was packed with.

    Raises:
        ImageError: the value does not fit the picture; the message is the reason.
    """
    if value is None:
        return Stored()
    if kind == "mask":
        return Stored(member=_mask(value, packed, how))
    if kind == "image":
        return Stored(member=_image(value, packed, how))
    if kind == "text":
        return Stored(member=value.encode())
    if kind == "bytes":
        return Stored(member=value)
    if kind == "boxes":
        return Stored(_boxes(value, placement(packed, how)))
    if kind == "keypoints":
        return Stored(short(placement(packed, how).points(value)))
    return Stored(short(value) if kind == "floats" else value)


def short(numbers: NDArray[np.float32]) -> Any:
    """Nested lists of floats that are written with few digits, and are the same float32 when they are read."""
    if not numbers.size:
        return [] if not len(numbers) else numbers.tolist()
    flat = list(map(float, numbers.ravel().astype(str)))
    return np.array(flat).reshape(numbers.shape).tolist()


def _boxes(value: Boxes, place: Placement) -> dict[str, Any]:
    x0, y0, x1, y1 = value.boxes.T
    wrong = (x0 < 0) | (y0 < 0) | (x1 < x0) | (y1 < y0) | (x1 > place.width) | (y1 > place.height)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ImageError(
            f"expected boxes x0, y0, x1, y1 inside the image, x0 <= x1 <= {place.width} and y0 <= y1 <= "
            f"{place.height}; got {', '.join(map(str, value.boxes[at]))} (box {at})"
        )
    found = {"boxes": short(place.boxes(value.boxes))}
    return found if value.labels is None else {**found, "labels": value.labels.tolist()}


def _mask(value: bytes | NDArray[Any], packed: Packed, how: EncodeOptions) -> bytes:
    if isinstance(value, bytes):
        value = mask_of_png(value, packed.source_size)
    refuse_other_size((value.shape[1], value.shape[0]), packed.source_size)
    return encode_mask(placement(packed, how).mask(value))


def _image(value: bytes | NDArray[np.uint8], packed: Packed, how: EncodeOptions) -> bytes:
    """A second picture, a JPEG: packed as the first, and turned by the first one's orientation."""
    how = replace(how, storage=JPEG_STORAGE)
    if isinstance(value, bytes):
        second = convert(value, how, packed.orientation)
    else:
        second = convert_pixels(value, how, packed.orientation)
    refuse_other_size(second.source_size, packed.source_size)
    return second.jpeg
