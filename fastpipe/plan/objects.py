"""The boxes of samples -> the parts of images that are cut at them, or around them.

Boxes of samples are x0, y0, x1, y1, those of crops x, y, width, height. All are in pixels of the
stored image.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Float64s, Int64s
from fastpipe.dataset.format.columns import Ragged
from fastpipe.plan.crops import CropAt
from fastpipe.plan.draws import up_to

# Of a pixel: an edge that is so near to a whole number is one, but for rounding.
_ROUNDING = 1e-7
_LEAST_SIDE = 1.0  # of a part, in pixels


def boxes_of_rows(objects: Ragged, numbers: Int64s) -> Float64s:
    """(n, 4) one box of each of n samples: the one with the number, (n,), in its sample."""
    boxes = objects.values[objects.offsets[:-1] + numbers]
    return np.asarray(boxes, dtype=np.float64)


def labels_of_rows(objects: Ragged, numbers: Int64s) -> Int64s | None:
    """(n,) the labels of the same boxes; None: boxes have no labels."""
    if objects.labels is None:
        return None
    return np.asarray(objects.labels[objects.offsets[:-1] + numbers], dtype=np.int64)


def cut_boxes(crop: CropAt, boxes_xyxy: Float64s, pictures: Int64s) -> Float64s:
    """The parts of images, (n, 2) widths and heights, at these boxes, (n, 4).

    Returns:
        (n, 4) x, y, width, height.
    """
    left_top = boxes_xyxy[:, :2]
    right_bottom = boxes_xyxy[:, 2:]
    middles = (left_top + right_bottom) / 2
    sides = right_bottom - left_top
    if crop.square:
        longer_sides = sides.max(axis=1, keepdims=True)
        sides = np.repeat(longer_sides, 2, axis=1)
    sides = np.maximum(sides * crop.scale, _LEAST_SIDE)
    sides = np.minimum(sides, pictures)
    left_top = np.clip(middles - sides / 2, 0, pictures - sides)
    return np.concatenate([left_top, sides], axis=1)


def pixels_around(boxes_xywh: Float64s) -> NDArray[np.int32]:
    """(n, 4) x, y, width, height of all pixels that a box, (n, 4), touches."""
    left_top = boxes_xywh[:, :2]
    right_bottom = left_top + boxes_xywh[:, 2:]
    starts = np.floor(left_top + _ROUNDING)
    ends = np.ceil(right_bottom - _ROUNDING)
    return np.concatenate([starts, ends - starts], axis=1).astype(np.int32)


def draw_middles(objects: Ragged, draws: Float64s) -> tuple[Int64s, Float64s]:
    """Draws a box for each row of n samples, k rows each, of those that have boxes.

    Args:
        objects: the boxes of the samples.
        draws: (n * k,) in [0, 1).

    Returns:
        (m,) the rows of samples with boxes, and (m, 2) x and y of the middle of the box of each.
    """
    counts = np.diff(objects.offsets)
    rows_per_sample = len(draws) // max(len(counts), 1)
    counts_of_rows = np.repeat(counts, rows_per_sample)
    begins_of_rows = np.repeat(objects.offsets[:-1], rows_per_sample)
    rows = np.flatnonzero(counts_of_rows)
    numbers = up_to(draws[rows], counts_of_rows[rows] - 1)
    boxes = objects.values[begins_of_rows[rows] + numbers]
    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 2, 2)
    return rows, corners.mean(axis=1)
