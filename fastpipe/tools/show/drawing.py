"""A picture, and boxes, masks and points on it -> the picture with these drawn into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Float32s, Float64s, Int64s
from fastpipe.tools.show.sheet import FONT, FONT_SCALE, Pixels, shortened

# RGB. A label, an id and the number of a point have the colour at this position, and start again
# beyond the last.
_COLOURS = (
    (230, 60, 60),
    (60, 190, 75),
    (70, 110, 255),
    (255, 150, 30),
    (170, 70, 220),
    (40, 200, 210),
    (245, 90, 190),
    (150, 200, 30),
    (150, 100, 60),
    (0, 140, 130),
)
_MASK_SHARE = 0.5
_DARK = (20, 20, 20)
_LIGHT = (255, 255, 255)
_BRIGHT_LUMA = 140  # from which on the text of a tag is dark
_TAG_HEIGHT = 13
_TAG_MARGIN = 3  # by which a tag is wider than its text
_RADIUS = 3

Colour = tuple[int, int, int]


class BoxMarks(NamedTuple):
    """The boxes of a field."""

    corners: Float32s  # (M, 4) x0, y0, x1, y1
    labels: Int64s | None = None  # (M,)
    names: tuple[str, ...] = ()  # by label, "" in a gap


@dataclass(frozen=True)
class Marks:
    """The marks on one picture, in pixels of a canvas that it fills.

    Each list has an entry for each field.
    """

    size: tuple[int, int]  # (width, height) of the canvas
    boxes: list[BoxMarks] = field(default_factory=list)
    # (height, width) of ids; 0 is not drawn.
    masks: list[NDArray[Any]] = field(default_factory=list)
    # (M, K, 3) x, y, visibility; 0 is not drawn, and 1 is drawn hollow.
    points: list[Float32s] = field(default_factory=list)


def with_marks(image: Pixels, marks: Marks) -> Pixels:
    """A copy of a picture with marks drawn into it, scaled to its size."""
    drawn = image.copy()
    height, width, _ = image.shape
    image_size = np.array([width, height])
    scale = image_size / marks.size
    for ids in marks.masks:
        _draw_mask(drawn, ids)
    for boxes in marks.boxes:
        # (M, 2, 2) x, y of the left top and of the right bottom
        corners_on_canvas = boxes.corners.reshape(-1, 2, 2)
        scaled_corners = corners_on_canvas * scale
        for number, corners in enumerate(scaled_corners):
            colour_number = number
            name = ""
            if boxes.labels is not None:
                colour_number = int(boxes.labels[number])
                name = name_of(colour_number, boxes.names)
            colour = colour_of(colour_number)
            _draw_box(drawn, corners, colour, name)
    for points in marks.points:
        for object_points in points:
            places_on_canvas = object_points[:, :2]
            places = places_on_canvas * scale
            visibility = object_points[:, 2]
            _draw_points(drawn, places, visibility)
    return drawn


def colour_of(number: int) -> Colour:
    """The RGB colour of a label, an id or a point's number."""
    colour_index = number % len(_COLOURS)
    return _COLOURS[colour_index]


def name_of(label: int, names: Sequence[str]) -> str:
    """The name of a label; its number if it has none."""
    name = ""
    if 0 <= label < len(names):
        name = names[label]
    return name or str(label)


def _draw_mask(image: Pixels, ids: NDArray[Any]) -> None:
    height, width, _ = image.shape
    # Nearest: ids between two ids would be other objects.
    int32_ids = ids.astype(np.int32)
    size = (width, height)
    small = cv2.resize(int32_ids, size, interpolation=cv2.INTER_NEAREST)
    is_drawn = small != 0
    # (pixels, 3)
    all_colours = np.array(_COLOURS, dtype=np.float32)
    ids_of_pixels = small[is_drawn]
    colour_indices = ids_of_pixels % len(_COLOURS)
    colours = all_colours[colour_indices]
    behind = image[is_drawn]
    image_share = 1 - _MASK_SHARE
    weighted_image = behind * image_share
    weighted_colours = colours * _MASK_SHARE
    mixed = weighted_image + weighted_colours
    image[is_drawn] = np.rint(mixed)


def _draw_box(image: Pixels, corners: Float64s, colour: Colour, name: str = "") -> None:
    """Draws a box: (2, 2) x, y of its corners; with a name, on a tag above it."""
    height, width, _ = image.shape
    last_pixel = (width - 1, height - 1)
    # The corners as pixels, both within the box. Of an empty box they are the same pixel.
    rounded_corners = np.rint(corners)
    first_corner, end_corner = rounded_corners.astype(int)
    visible_first = np.clip(first_corner, 0, last_pixel)
    x0, y0 = visible_first.tolist()
    last_corner = end_corner - 1
    visible_last = np.clip(last_corner, (x0, y0), last_pixel)
    x1, y1 = visible_last.tolist()
    box_width = x1 - x0
    box_height = y1 - y0
    thickness = 1
    if min(box_width, box_height) > 4:
        thickness = 2
    cv2.rectangle(image, (x0, y0), (x1, y1), colour, thickness)
    if name:
        _draw_tag(image, name, x0, y0, colour)


def _draw_tag(image: Pixels, text: str, box_x: int, box_y: int, colour: Colour) -> None:
    """Writes a name above a box, or into it if there is no room above."""
    image_width = image.shape[1]
    most_text_width = image_width - _TAG_MARGIN
    text = shortened(text, most_text_width)
    text_size, _ = cv2.getTextSize(text, FONT, FONT_SCALE, thickness=1)
    text_width, _ = text_size
    width = text_width + _TAG_MARGIN
    last_x = image_width - width
    x = max(0, min(box_x, last_x))
    y = box_y
    if box_y >= _TAG_HEIGHT:
        y = box_y - _TAG_HEIGHT
    left_top = (x, y)
    last_x_of_tag = x + width - 1
    last_y_of_tag = y + _TAG_HEIGHT - 1
    last_pixel = (last_x_of_tag, last_y_of_tag)
    cv2.rectangle(image, left_top, last_pixel, colour, cv2.FILLED)
    red, green, blue = colour
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    ink = _LIGHT
    if luma > _BRIGHT_LUMA:
        ink = _DARK
    text_x = x + 1
    text_bottom = y + _TAG_HEIGHT - 3
    baseline = (text_x, text_bottom)
    cv2.putText(
        image,
        text,
        baseline,
        FONT,
        FONT_SCALE,
        ink,
        thickness=1,
        lineType=cv2.LINE_AA,
    )


def _draw_points(image: Pixels, points: Float64s, visibility: Float32s) -> None:
    """Draws the points (K, 2) x, y of one object."""
    height, width, _ = image.shape
    for number, (x, y) in enumerate(points.tolist()):
        visible = float(visibility[number])
        is_in_width = 0 <= x < width
        is_in_height = 0 <= y < height
        if visible <= 0 or not is_in_width or not is_in_height:
            continue
        center = (int(x), int(y))
        colour = colour_of(number)
        thickness = cv2.FILLED
        if visible == 1:
            thickness = 1
        # On a light disc, so that it is seen on any picture.
        disc_radius = _RADIUS + 1
        cv2.circle(image, center, disc_radius, _LIGHT, cv2.FILLED, cv2.LINE_AA)
        cv2.circle(image, center, _RADIUS, colour, thickness, cv2.LINE_AA)
