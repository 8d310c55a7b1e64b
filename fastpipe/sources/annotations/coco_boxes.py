"""The boxes of a COCO file -> whether they are in COCO's form, and how many are unusual."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.coco_shapes import find_box_around
from fastpipe.sources.files import SourcePath

_MAX_CHECKED_BOXES = 1000
_AREA_TOLERANCE = 0.001  # relative: tools round areas
# COCO's own boxes end up to this far outside their image, so no message mentions it.
_ROUNDING_PIXELS = 0.1
# Boxes whose area or polygon is that of two corners are corners, if there are more than this share.
_MIN_CORNER_SHARE = 0.5
# Boxes over the edge of their image are not rare. But few datasets have so many of them, and in no
# box a width or height that is less than its x or y.
_MAX_OUTSIDE_SHARE = 0.25
# Fewer boxes over the edge leave it open what all are, and the user is told if there are so many.
_MIN_DOUBTFUL_BOXES = 20
# Annotators draw boxes a little over the edge.
_EDGE_PIXELS = 1
_CORNERS = "xyxy (x0, y0, x1, y1)"


class _CheckedBox(NamedTuple):
    """The bbox of an annotation, as it stands in the file, and the id of its image."""

    numbers: Sequence[float]
    image_id: Any


class BoxCheck:
    """Looks at the first boxes of a source: are they x, y, width and height in pixels?

    Some tools write corners into bbox, which the area or the size of the image gives away, or
    shares of the image. Their boxes would be stored without an error, and wrong.
    """

    def __init__(self) -> None:
        self._boxes: list[_CheckedBox] = []
        self._share_count = 0
        # Boxes whose area or polygon is that of two corners, or of a width and a height.
        self._corner_count = 0
        self._side_count = 0

    def add(self, box: Any, area: Any, segmentation: Any, image_id: object) -> None:
        """Looks at an annotation.

        Args:
            box, area, segmentation: as they stand in the file.
            image_id: of its image, which may stand below the annotation in the file.
        """
        if len(self._boxes) == _MAX_CHECKED_BOXES:
            return
        if not isinstance(box, list) or len(box) != 4:
            return
        if not all(map(_is_number, box)):
            return
        self._boxes.append(_CheckedBox(box, image_id))
        if 0 < max(box) <= 1:
            self._share_count += 1
        form = _find_form_by_polygons(box, segmentation) or _find_form_by_area(
            box, area
        )
        self._corner_count += form == "corners"
        self._side_count += form == "sides"

    @property
    def image_ids(self) -> set[Any]:
        """The ids of the images of the boxes."""
        return {box.image_id for box in self._boxes}

    def raise_if_not_coco(
        self, path: SourcePath, sizes: Mapping[Any, tuple[int, int]]
    ) -> None:
        """PackError: the first boxes have another form.

        Args:
            path: of the file.
            sizes: width and height of images, by their ids, where the file says them.
        """
        if not self._boxes:
            return
        box_count = len(self._boxes)
        boxes = (
            f"{readable(str(path))}: the bbox of the first {box_count:,} annotations"
        )
        expected = "expected x, y, width, height, as COCO has them"
        options = "--box-format xyxy reads them as corners, --box-format xywh as COCO has them"
        if self._corner_count > _MIN_CORNER_SHARE * box_count and not self._side_count:
            raise PackError(
                f"{boxes} looks like {_CORNERS}, because the area or the polygon is that of these "
                f"corners; {expected}. {options}"
            )
        if self._share_count == box_count:
            raise PackError(
                f"{boxes} has no number above 1, so they look like normalised coordinates (0 to 1); "
                "expected pixels, as COCO has them. Multiply them by width and height of the image"
            )
        outside_count = self._count_outside(sizes)
        if outside_count > _MAX_OUTSIDE_SHARE * box_count and self._fit_as_corners(
            sizes
        ):
            raise PackError(
                f"{boxes} looks like {_CORNERS}, because all lie inside their images as corners, "
                f"and {outside_count:,} end outside as x, y, width, height; {expected}. {options}"
            )

    def describe_doubt(self, sizes: Mapping[Any, tuple[int, int]]) -> str:
        """Says that boxes may be corners; "" if nothing hints at it.

        `sizes`: as of `raise_if_not_coco`.
        """
        box_count = len(self._boxes)
        outside_count = self._count_outside(sizes)
        is_open = box_count >= _MIN_DOUBTFUL_BOXES and outside_count > 0
        if not is_open or self._side_count or not self._fit_as_corners(sizes):
            return ""
        return (
            f"bbox: x, y, width, height, as COCO has them, though {outside_count:,} of the first "
            f"{box_count:,} end outside their image so, and as {_CORNERS} all lie inside"
        )

    def _count_outside(self, sizes: Mapping[Any, tuple[int, int]]) -> int:
        """How many boxes end outside their image if they are x, y, width and height."""
        count = 0
        for box in self._boxes:
            if box.image_id not in sizes:
                continue
            width, height = sizes[box.image_id]
            x, y, box_width, box_height = box.numbers
            ends_right = x + box_width > width + _EDGE_PIXELS
            ends_below = y + box_height > height + _EDGE_PIXELS
            if ends_right or ends_below:
                count += 1
        return count

    def _fit_as_corners(self, sizes: Mapping[Any, tuple[int, int]]) -> bool:
        """Whether all boxes lie inside their image if they are two corners."""
        for box in self._boxes:
            left, top, right, bottom = box.numbers
            width, height = sizes.get(box.image_id, (math.inf, math.inf))
            is_ordered = (
                -_EDGE_PIXELS <= left <= right and -_EDGE_PIXELS <= top <= bottom
            )
            is_inside = (
                right <= width + _EDGE_PIXELS and bottom <= height + _EDGE_PIXELS
            )
            if not is_ordered or not is_inside:
                return False
        return True


def _find_form_by_polygons(box: Sequence[float], segmentation: Any) -> str:
    """The form, "corners" or "sides", in which a box is that around its polygons; "" if unclear."""
    if not isinstance(segmentation, list) or not segmentation:
        return ""
    try:
        around = find_box_around(segmentation)
    except ImageError:
        return ""
    x, y, third, fourth = box
    fits_corners = _are_near(around, (x, y, third, fourth))
    fits_sides = _are_near(around, (x, y, x + third, y + fourth))
    return _choose_form(fits_corners, fits_sides)


def _find_form_by_area(box: Sequence[float], area: Any) -> str:
    """The form, "corners" or "sides", in which a box has this area; "" if unclear."""
    if not _is_number(area) or area <= 0:
        return ""
    # Third and fourth are width and height (xywh), or right and bottom (xyxy).
    x, y, third, fourth = box
    tolerance = _AREA_TOLERANCE * area
    fits_corners = abs(area - (third - x) * (fourth - y)) <= tolerance
    fits_sides = abs(area - third * fourth) <= tolerance
    return _choose_form(fits_corners, fits_sides)


def _choose_form(fits_corners: bool, fits_sides: bool) -> str:
    if fits_corners == fits_sides:
        return ""
    return "corners" if fits_corners else "sides"


def _are_near(first: Sequence[float], second: Sequence[float]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(abs(number - other) <= _EDGE_PIXELS for number, other in pairs)


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
