"""Boxes, masks and points, and a picture -> the picture with them drawn into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# RGB; a label, an id and the number of a point have the colour at this place, over again beyond the last.
_COLOURS = (
    *((230, 60, 60), (60, 190, 75), (70, 110, 255), (255, 150, 30), (170, 70, 220)),
    *((40, 200, 210), (245, 90, 190), (150, 200, 30), (150, 100, 60), (0, 140, 130)),
)
_MASK_SHARE = 0.5
_DARK, _LIGHT = (20, 20, 20), (255, 255, 255)
_BRIGHT = 140  # luma of a tag from which its text is dark
_FONT, _FONT_SCALE, _TAG_HEIGHT = cv2.FONT_HERSHEY_SIMPLEX, 0.4, 13
_RADIUS = 3


@dataclass(frozen=True)
class Marks:
    """What is drawn on one picture, in pixels of a canvas that it fills.

    Attributes:
        size: (width, height) of the canvas.
        boxes: (M, 4) x0, y0, x1, y1, and (M,) labels or None, of each field.
        masks: (height, width) ids of each field; 0 is not drawn.
        points: (M, K, 3) x, y, visibility of each field; a visibility of 0 is not drawn, of 1 is drawn hollow.
    """

    size: tuple[int, int]
    boxes: list[tuple[NDArray[np.float32], NDArray[np.int64] | None]] = field(default_factory=list)
    masks: list[NDArray[Any]] = field(default_factory=list)
    points: list[NDArray[np.float32]] = field(default_factory=list)


def with_marks(image: NDArray[np.uint8], marks: Marks) -> NDArray[np.uint8]:
    """A copy of a picture (h, w, 3) RGB with masks, boxes and points drawn into it, scaled to its size."""
    drawn = image.copy()
    height, width, _ = image.shape
    scale = np.array([width / marks.size[0], height / marks.size[1]])
    for ids in marks.masks:
        _draw_mask(drawn, ids)
    for boxes, labels in marks.boxes:
        for number, box in enumerate(boxes.reshape(-1, 2, 2) * scale):
            _draw_box(drawn, box, number, None if labels is None else int(labels[number]))
    for points in marks.points:
        for thing in points:
            _draw_points(drawn, thing[:, :2] * scale, thing[:, 2])
    return drawn


def colour_of(number: int) -> tuple[int, int, int]:
    """The RGB colour of a label, an id or a point's number."""
    return _COLOURS[number % len(_COLOURS)]


def _draw_mask(image: NDArray[np.uint8], ids: NDArray[Any]) -> None:
    height, width, _ = image.shape
    small = cv2.resize(ids.astype(np.int32), (width, height), interpolation=cv2.INTER_NEAREST)
    there = small != 0
    colours = np.array(_COLOURS, dtype=np.float32)[small[there] % len(_COLOURS)]
    image[there] = np.rint(image[there] * (1 - _MASK_SHARE) + colours * _MASK_SHARE)


def _draw_box(image: NDArray[np.uint8], box: NDArray[np.float64], number: int, label: int | None) -> None:
    last_pixel = np.array([image.shape[1] - 1, image.shape[0] - 1])
    first = np.clip(np.rint(box[0]).astype(int), 0, last_pixel)
    last = np.clip(np.rint(box[1]).astype(int) - 1, first, last_pixel)
    colour = colour_of(number if label is None else label)
    left, top, right, bottom = *map(int, first), *map(int, last)
    cv2.rectangle(image, (left, top), (right, bottom), colour, 2 if min(right - left, bottom - top) > 4 else 1)
    if label is None:
        return
    text = str(label)
    wide = cv2.getTextSize(text, _FONT, _FONT_SCALE, 1)[0][0] + 3
    # Above the box, or in it if there is no room above.
    tag_top = top - _TAG_HEIGHT if top >= _TAG_HEIGHT else top
    tag_left = max(0, min(left, image.shape[1] - wide))
    cv2.rectangle(image, (tag_left, tag_top), (tag_left + wide - 1, tag_top + _TAG_HEIGHT - 1), colour, cv2.FILLED)
    luma = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    ink = _DARK if luma > _BRIGHT else _LIGHT
    cv2.putText(image, text, (tag_left + 1, tag_top + _TAG_HEIGHT - 3), _FONT, _FONT_SCALE, ink, 1, cv2.LINE_AA)


def _draw_points(image: NDArray[np.uint8], places: NDArray[np.float64], visibility: NDArray[np.float32]) -> None:
    for number, (place, seen) in enumerate(zip(places, visibility.tolist(), strict=True)):
        if seen <= 0 or not (place >= 0).all() or not (place < image.shape[1::-1]).all():
            continue
        x, y = (int(value) for value in place)
        cv2.circle(image, (x, y), _RADIUS + 1, _LIGHT, cv2.FILLED, cv2.LINE_AA)
        cv2.circle(image, (x, y), _RADIUS, colour_of(number), 1 if seen == 1 else cv2.FILLED, cv2.LINE_AA)
