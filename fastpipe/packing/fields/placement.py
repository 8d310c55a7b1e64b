"""Of which picture values are, as stored or as shown -> boxes, points and masks of the packed picture.

Note [frames]
EXIF may say that a picture is shown turned or mirrored (CIPA DC-008, orientations 2 to 8). Annotation tools show it so,
and their boxes are of the picture as shown; a program that reads pixels without EXIF has boxes of the picture as
stored. A size that annotations say tells which: for orientations 5 to 8 the sides change places. Where both have this
size, it is as the user says (--coordinates), or by the rule of the source's format. A mask's own size tells it for the
mask, whatever boxes are of.

The packed picture is one of the two: as stored, or with --exif apply as shown. So a value stays as it is, is turned
by the orientation, or back by its inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.sources.listing import SHOWN, STORED
from fastpipe.sources.picture.convert import EncodeOptions, Packed
from fastpipe.sources.picture.jpeg import ACROSS, DOWN, SWAPPED, apply_orientation

_INVERSE = {6: 8, 8: 6}  # all others are their own
MOVING = ("boxes", "keypoints", "mask", "image")  # kinds whose values move with the picture

Size = tuple[int, int]  # width and height


class Frame(NamedTuple):
    """Of which picture values are. Note [frames]"""

    coordinates: str  # SHOWN or STORED
    certain: bool = True  # the source or the user says it; else it is the rule of the format


@dataclass(frozen=True)
class Placement:
    """What values have to be moved by: turned by an EXIF orientation, 1: not at all; then scaled to the new size."""

    size: Size  # of the picture that they are of
    turn: int
    new_size: Size

    @classmethod
    def of(cls, frame: Frame, packed: Packed, how: EncodeOptions) -> Placement:
        """From the picture that values are of to the packed one."""
        shown = frame.coordinates == SHOWN
        turn = 1
        if how.apply_exif and not shown:
            turn = packed.orientation
        elif shown and not how.apply_exif:
            turn = inverse(packed.orientation)
        return cls(size_in(frame, packed), turn, (packed.width, packed.height))

    def boxes(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, 4) x0, y0, x1, y1 in pixels of the source -> in pixels of the packed picture."""
        corners = self._move(boxes.reshape(-1, 2, 2), edge=0)
        return np.sort(corners, axis=1, kind="stable").reshape(
            -1, 4
        )  # a mirrored box has them the other way round

    def points(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, K, 3) x, y, visibility, as `boxes`; they name pixels: mirrored, 0 becomes W - 1, as in torchvision."""
        return np.concatenate([self._move(points[..., :2], edge=1), points[..., 2:]], axis=-1)

    def mask(self, mask: NDArray[Any]) -> NDArray[Any]:
        """(H, W) values, turned and scaled by nearest neighbour."""
        turned = apply_orientation(mask, self.turn)
        if turned.shape == self.new_size[::-1]:
            return turned
        # The old pixel under the middle of each new one; in whole numbers, the same on every machine.
        for axis, new in enumerate(self.new_size[::-1]):
            turned = turned.take(
                (2 * np.arange(new, dtype=np.int64) + 1) * turned.shape[axis] // (2 * new), axis
            )
        return turned

    def _move(self, points: NDArray[np.float32], *, edge: int) -> NDArray[np.float32]:
        """(..., 2) x, y. `edge` is 1 where coordinates are numbers of pixels, 0 where they lie between pixels."""
        if (self.turn, self.size) == (1, self.new_size):
            return points
        moved = points.astype(np.float64)
        width, height = self.size
        if self.turn in SWAPPED:
            moved, width, height = moved[..., ::-1].copy(), height, width
        if self.turn in DOWN:
            moved[..., 1] = height - edge - moved[..., 1]
        if self.turn in ACROSS:
            moved[..., 0] = width - edge - moved[..., 0]
        moved *= np.divide(self.new_size, (width, height))
        return moved.astype(np.float32)


def turned_size(size: Size, orientation: int) -> Size:
    """A stored picture's size when it is shown."""
    return size[::-1] if orientation in SWAPPED else size


def size_in(frame: Frame, packed: Packed) -> Size:
    """The size of the picture that values are of."""
    shown = turned_size(packed.source_size, packed.orientation)
    return shown if frame.coordinates == SHOWN else packed.source_size


def frame_by_size(size: Size, packed: Packed, otherwise: Frame) -> Frame | None:
    """The frame in which the picture has this size, `otherwise` where it has it in both; None: in neither."""
    fitting = [name for name in (SHOWN, STORED) if size_in(Frame(name), packed) == size]
    if len(fitting) == 1:
        return Frame(fitting[0])
    return otherwise if fitting else None


def frame_of_file(size: Size, packed: Packed, otherwise: Frame) -> Frame:
    """The frame of a mask or a second picture by its size. ImageError: it is no size of the sample's image."""
    frame = frame_by_size(size, packed, otherwise)
    if frame is None:
        raise ImageError(
            f"expected {sizes_of(packed)} pixels, the size of the sample's image; got {size[0]} x {size[1]}"
        )
    return frame


def sizes_of(packed: Packed) -> str:
    """The size of a picture in words, as stored and as shown where these differ."""
    width, height = packed.source_size
    if packed.orientation in SWAPPED and width != height:
        return f"{height} x {width} (as shown) or {width} x {height} (as stored)"
    return f"{width} x {height}"


def inverse(orientation: int) -> int:
    """The EXIF orientation that turns back what this one has turned."""
    return _INVERSE.get(orientation, orientation)


@cache
def after(first: int, second: int) -> int:
    """The EXIF orientation that does what two do, one after the other."""
    probe = np.arange(6).reshape(2, 3)
    both = apply_orientation(apply_orientation(probe, first), second)
    return next(one for one in range(1, 9) if np.array_equal(apply_orientation(probe, one), both))
