"""Boxes, points and masks of a picture as stored or as shown -> those of the packed picture.

Note [frames]
EXIF may say that a picture is shown turned or mirrored (CIPA DC-008, orientations 2 to 8).
Annotation tools show it so, and their boxes are of the picture as shown. A program that reads
pixels without EXIF has boxes of the picture as stored. If annotations say the size of the picture,
the size tells which: orientations 5 to 8 exchange width and height. But some programs write the
size as stored beside boxes as shown, as Label Studio's export to COCO does. So this is said where
the boxes lie inside both pictures. If both pictures have the size, it is as the user says
(--coordinates), or by the rule of the source's format. A mask is of the picture that has the mask's
own size, whatever boxes are of.

The packed picture is one of the two: as stored, or as shown with --exif apply. So a value stays as
it is, or is turned by the orientation, or back by its inverse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Float32s
from fastpipe.errors import ImageError
from fastpipe.sources.listing import SHOWN, STORED
from fastpipe.sources.picture.convert import EncodeOptions, Packed
from fastpipe.sources.picture.jpeg import ACROSS, DOWN, SWAPPED, turn_upright

# Orientations that turn by a quarter. Every other one is its own inverse.
_INVERSE = {6: 8, 8: 6}
# A picture has another size if its sides differ by more than this share; and the same ratio of its
# sides if both are scaled by factors that differ by less, as sides are rounded.
_SAME_SIZE = 0.02
_SAME_RATIO = 0.01

Size = tuple[int, int]  # width and height


class Frame(NamedTuple):
    """The coordinates of values: of the picture as it is shown, or as it is stored. Note [frames]

    Attributes:
        coordinates: SHOWN or STORED.
        certain: the source or the user says it; else it is the rule of the format.
        is_by_size: the size in the annotations is that of the picture as stored, and nothing else
            says that the values are of it.
        has_shares: points were shares of the image's sides, as YOLO's are. So they lie between
            pixels, as the corners of boxes do, and are no numbers of pixels.
    """

    coordinates: str
    certain: bool = True
    has_shares: bool = False
    is_by_size: bool = False


@dataclass(frozen=True)
class Placement:
    """How values move: they are turned, then scaled.

    Attributes:
        size: of the picture that they are of.
        turn: an EXIF orientation; 1: they are not turned.
        new_size: of the packed picture.
    """

    size: Size
    turn: int
    new_size: Size

    @classmethod
    def of(cls, frame: Frame, packed: Packed, encode: EncodeOptions) -> Placement:
        """From the picture that values are of to the packed one."""
        is_shown = frame.coordinates == SHOWN
        turn = 1
        if encode.apply_exif and not is_shown:
            turn = packed.orientation
        elif is_shown and not encode.apply_exif:
            turn = _INVERSE.get(packed.orientation, packed.orientation)
        size = size_in(frame, packed)
        packed_size = (packed.width, packed.height)
        return cls(size, turn, packed_size)

    def boxes(self, boxes: Float32s) -> Float32s:
        """(M, 4) x0, y0, x1, y1 in pixels of the source -> in pixels of the packed picture."""
        # (M, 2, 2): left top and right bottom, x and y.
        corners = self._move(boxes.reshape(-1, 2, 2), edge=0)
        # The corners of a mirrored box have changed places.
        corners = np.sort(corners, axis=1, kind="stable")
        return corners.reshape(-1, 4)

    def points(self, points: Float32s, *, has_shares: bool = False) -> Float32s:
        """(M, K, 3) x, y, visibility, as `boxes`.

        Coordinates are numbers of pixels: mirrored, 0 becomes W - 1, as in torchvision. Where they
        were shares, 0 becomes W, so that a point at the side of a box stays there. A point that
        is not labelled has zeros, as COCO writes it, and keeps them.
        """
        moved = self._move(points[..., :2], edge=0 if has_shares else 1)
        is_labelled = points.any(axis=-1, keepdims=True)
        visibility = points[..., 2:]
        places = np.where(is_labelled, moved, points[..., :2])
        return np.concatenate([places, visibility], axis=-1)

    def mask(self, mask: NDArray[Any]) -> NDArray[Any]:
        """(H, W) values, turned and scaled by nearest neighbour."""
        turned = turn_upright(mask, self.turn)
        new_shape = self.new_size[::-1]
        if turned.shape == new_shape:
            return turned
        # The old pixel under the middle of each new one, in whole numbers, so that it is the same
        # one on every machine.
        # The middle of new pixel i is at (2 i + 1) / (2 new_length) of the side.
        for axis, new_length in enumerate(new_shape):
            old_length = turned.shape[axis]
            numerators = 2 * np.arange(new_length, dtype=np.int64) + 1
            old_pixels = numerators * old_length // (2 * new_length)
            turned = turned.take(old_pixels, axis)
        return turned

    def _move(self, points: Float32s, *, edge: int) -> Float32s:
        """(..., 2) x, y.

        `edge` is 1 if coordinates are numbers of pixels, 0 if they lie between pixels.
        """
        if self.turn == 1 and self.size == self.new_size:
            return points
        moved = points.astype(np.float64)
        width, height = self.size
        if self.turn in SWAPPED:
            moved = moved[..., ::-1].copy()
            width, height = height, width
        if self.turn in DOWN:
            moved[..., 1] = height - edge - moved[..., 1]
        if self.turn in ACROSS:
            moved[..., 0] = width - edge - moved[..., 0]
        moved *= np.divide(self.new_size, (width, height))
        return moved.astype(np.float32)


def turned_size(size: Size, orientation: int) -> Size:
    """The size at which a stored picture is shown."""
    return size[::-1] if orientation in SWAPPED else size


def size_in(frame: Frame, packed: Packed) -> Size:
    """The size of the picture that values are of."""
    if frame.coordinates == SHOWN:
        return turned_size(packed.source_size, packed.orientation)
    return packed.source_size


def other_frame(frame: Frame) -> Frame:
    """The picture as stored for that as shown, and the other way round."""
    return Frame(STORED if frame.coordinates == SHOWN else SHOWN)


def frame_by_size(
    size: Size,
    packed: Packed,
    otherwise: Frame,
    fits: Callable[[Size, Size], bool] = operator.eq,
) -> Frame | None:
    """The frame in which the picture has this size.

    `otherwise` if it has the size in both frames, None if in neither. `fits`: whether this size is
    that of a picture.
    """
    shown = Frame(SHOWN)
    stored = Frame(STORED)
    fits_shown = fits(size, size_in(shown, packed))
    fits_stored = fits(size, size_in(stored, packed))
    if fits_shown and fits_stored:
        return otherwise
    if fits_shown:
        return shown
    if fits_stored:
        return stored
    return None


def frame_of_file(size: Size, packed: Packed, otherwise: Frame) -> Frame:
    """The frame of a mask or a second picture by its size.

    ImageError: the sample's image has another size.
    """
    frame = frame_by_size(size, packed, otherwise)
    if frame is None:
        raise ImageError(
            f"expected {sizes_of(packed)} pixels, the size of the sample's image; got "
            f"{size[0]} x {size[1]}"
        )
    return frame


def frame_of_map(size: Size, packed: Packed, otherwise: Frame) -> Frame:
    """The frame of a map, which has the shape of the image and any scale, by this shape.

    ImageError: the sample's image has another shape.
    """
    frame = frame_by_size(size, packed, otherwise, _have_one_shape)
    if frame is None:
        raise ImageError(
            f"expected a map in the shape of the sample's image, {sizes_of(packed)} pixels or these "
            f"times one factor; got {size[0]} x {size[1]}. Channels come last: (height, width, "
            "channels)"
        )
    return frame


def _have_one_shape(size: Size, image_size: Size) -> bool:
    """Whether a map's sides are those of an image times one factor, rounded up or down."""
    width, height = size
    image_width, image_height = image_size
    # As far as a pixel of the map makes the difference.
    difference = abs(width * image_height - height * image_width)
    return difference < max(image_width, image_height)


def sizes_of(packed: Packed) -> str:
    """The size of a picture for a message, as stored and as shown if these differ."""
    width, height = packed.source_size
    if packed.orientation in SWAPPED and width != height:
        return f"{height} x {width} (as shown) or {width} x {height} (as stored)"
    return f"{width} x {height}"


def describe_scale(size: Size, packed: Packed) -> str:
    """What to do with a picture whose values are of the same picture in this other size; "" if its
    sides are in another ratio.
    """
    for frame in (Frame(SHOWN), Frame(STORED)):
        width, height = size_in(frame, packed)
        factor = width / size[0] if size[0] else 0.0
        other_factor = height / size[1] if size[1] else 0.0
        is_resized = abs(factor - 1) > _SAME_SIZE
        if is_resized and abs(factor - other_factor) <= _SAME_RATIO * factor:
            limit = ""
            if factor < 1:
                limit = f" with --max-size {max(width, height)}"
            return (
                "; if it was resized after it was annotated, pack the original image"
                f"{limit}, or multiply the boxes and points by {factor:.4g} and write its width and "
                "height into the annotations"
            )
    return ""


@cache
def combine_orientations(first: int, second: int) -> int:
    """The EXIF orientation that does the same as two, one after the other."""
    # An image without symmetry: each orientation gives another one.
    probe = np.arange(6).reshape(2, 3)
    both = turn_upright(turn_upright(probe, first), second)
    for orientation in range(1, 9):
        if np.array_equal(turn_upright(probe, orientation), both):
            return orientation
    raise AssertionError("the orientations are a group: two of them are one of them")
