"""A checked value and the place of its picture -> the value as a shard holds it: an entry of KEY.json, or a member."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.format.layout import JPEG_STORAGE
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.mask import encode_mask, mask_of_png, refuse_other_size
from fastpipe.packing.fields.values import Boxes
from fastpipe.packing.picture.convert import EncodeOptions, Packed, convert, convert_pixels
from fastpipe.packing.picture.pixels import apply_orientation

_SWAPPED = (5, 6, 7, 8)
_DOWN = (3, 4, 7, 8)
_ACROSS = (2, 3, 6, 7)


@dataclass(frozen=True)
class Placement:
    """What became of a picture: first turned, then scaled.

    Attributes:
        width, height: of the source's picture, as it is stored.
        turn: the EXIF orientation that was applied, 1..8; 1: none.
        new_width, new_height: of the packed picture.
    """

    width: int
    height: int
    turn: int
    new_width: int
    new_height: int

    @property
    def stays(self) -> bool:
        """Whether nothing moves."""
        return self.turn == 1 and (self.width, self.height) == (self.new_width, self.new_height)

    def boxes(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, 4) x0, y0, x1, y1 in pixels of the source -> in pixels of the packed picture."""
        if self.stays:
            return boxes
        corners = self._move(boxes.reshape(-1, 2, 2), edge=0)
        low, high = corners.min(axis=1), corners.max(axis=1)  # a mirrored box has its corners the other way round
        return np.concatenate([low, high], axis=1)

    def points(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, K, 3) x, y, visibility in pixels of the source -> in pixels of the packed picture.

        A point names a pixel: mirrored, pixel 0 becomes pixel W - 1, as torchvision's v2 has it.
        """
        if self.stays:
            return points
        return np.concatenate([self._move(points[..., :2], edge=1), points[..., 2:]], axis=-1)

    def mask(self, mask: NDArray[Any]) -> NDArray[Any]:
        """(H, W) values, turned and scaled by nearest neighbour."""
        turned = apply_orientation(mask, self.turn)
        height, width = turned.shape
        if (width, height) == (self.new_width, self.new_height):
            return turned
        return turned[_nearest(height, self.new_height)[:, None], _nearest(width, self.new_width)]

    def _move(self, points: NDArray[np.float32], *, edge: int) -> NDArray[np.float32]:
        """(..., 2) x, y. `edge` is 1 where coordinates are numbers of pixels, 0 where they lie between pixels."""
        moved = points.astype(np.float64)
        width, height = self.width, self.height
        if self.turn in _SWAPPED:
            moved, width, height = moved[..., ::-1].copy(), height, width
        if self.turn in _DOWN:
            moved[..., 1] = height - edge - moved[..., 1]
        if self.turn in _ACROSS:
            moved[..., 0] = width - edge - moved[..., 0]
        moved *= (self.new_width / width, self.new_height / height)
        return moved.astype(np.float32)


def _nearest(old: int, new: int) -> NDArray[np.int64]:
    """(new,) the old pixel under the middle of each new one; in whole numbers, the same on every machine."""
    return (2 * np.arange(new, dtype=np.int64) + 1) * old // (2 * new)


def placement(packed: Packed, how: EncodeOptions) -> Placement:
    """Where the pixels of a picture went."""
    turn = packed.orientation if how.apply_exif else 1
    return Placement(*packed.source_size, turn, packed.width, packed.height)


def store(kind: str, value: Any, packed: Packed, how: EncodeOptions) -> Stored:
    """Moves a value as the picture was moved, and lays it out.

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
