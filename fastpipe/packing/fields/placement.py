"""A picture's EXIF turn and its new size -> boxes, points and masks that are moved as the picture was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
