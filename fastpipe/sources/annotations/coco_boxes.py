"""The boxes of a COCO file -> whether they are in COCO's form, and how many are unusual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath

_MAX_CHECKED_BOXES = 1000
_AREA_TOLERANCE = 0.001  # relative: tools round areas
# COCO's own boxes end up to this far outside their image, so no message mentions it.
_ROUNDING_PIXELS = 0.1


class BoxCheck:
    """Looks at the first boxes of a source: are they x, y, width and height in pixels?

    Some tools write corners into bbox, which the area gives away, or shares of the image. Their
    boxes would be stored without an error, and wrong.
    """

    def __init__(self) -> None:
        self._box_count = 0
        self._corner_count = 0
        self._share_count = 0

    def add(self, box: Any, area: Any) -> None:
        """Looks at the bbox and the area of an annotation, as they stand in the file."""
        if self._box_count == _MAX_CHECKED_BOXES:
            return
        if not isinstance(box, list) or len(box) != 4:
            return
        if not all(map(_is_number, box)):
            return
        self._box_count += 1
        if 0 < max(box) <= 1:
            self._share_count += 1
        if _is_number(area) and area > 0:
            # Third and fourth are width and height (xywh), or right and bottom (xyxy).
            x, y, third, fourth = box
            area_as_corners = (third - x) * (fourth - y)
            area_as_sides = third * fourth
            tolerance = _AREA_TOLERANCE * area
            if abs(area - area_as_corners) <= tolerance < abs(area - area_as_sides):
                self._corner_count += 1

    def raise_if_not_coco(self, path: SourcePath) -> None:
        """PackError: all of the first boxes have another form."""
        if not self._box_count:
            return
        boxes = f"{readable(str(path))}: the bbox of the first {self._box_count:,} annotations"
        if self._corner_count == self._box_count:
            raise PackError(
                f"{boxes} looks like x0, y0, x1, y1, because the area is that of these corners; "
                "expected x, y, width, height, as COCO has them. Write them so"
            )
        if self._share_count == self._box_count:
            raise PackError(
                f"{boxes} has no number over 1, as shares of the image have; expected pixels, as "
                "COCO has them. Write them so"
            )


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


@dataclass
class BoxCounts:
    """How many boxes are not as they were written, or may be no objects."""

    around_segmentation: int = 0
    over_edge: int = 0  # of their image; packing cuts them off
    empty: int = 0  # without width or height

    def add(
        self, boxes_xyxy: Sequence[Sequence[float]], size: tuple[int, int] | None
    ) -> None:
        """Counts the boxes of an image.

        Args:
            boxes_xyxy: left, top, right and bottom of each box, in pixels.
            size: width and height of the image; None: the file does not say it.
        """
        # In an image of unknown size, no box ends outside.
        width, height = size or (math.inf, math.inf)
        for left, top, right, bottom in boxes_xyxy:
            if right == left or bottom == top:
                self.empty += 1
            outside_pixels = max(-left, -top, right - width, bottom - height)
            # Packing rejects an image with a box farther outside.
            if _ROUNDING_PIXELS < outside_pixels <= 1:
                self.over_edge += 1
