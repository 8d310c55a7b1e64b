"""Shapes of annotation tools -> their outlines, in the forms that COCO has for a segmentation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastpipe.sources.annotations.tools.annotated_image import (
    Bitmap,
    Box,
    Outline,
    PixelPolygon,
    RunsInBox,
    number,
    turn,
)

# So many points of an ellipse differ from it by less than a pixel, up to 3,000 pixels across.
_NUM_POINTS = 128


def polygon(points: Iterable[Sequence[object]]) -> Outline:
    """The outline of a polygon; none if it has less than three points."""
    coordinates: list[float] = []
    for x, y, *_ in points:
        coordinates += [number(x), number(y)]
    return [coordinates] if len(coordinates) >= 6 else []


def rectangle(
    box: Box, degrees: float = 0, pivot: tuple[float, float] = (0, 0)
) -> Outline:
    """The outline of a box that is turned clockwise around a point."""
    left, top, right, bottom = box
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    return polygon([turn(corner, degrees, pivot) for corner in corners])


def ellipse(
    centre: tuple[float, float], radii: tuple[float, float], degrees: float = 0
) -> Outline:
    """The outline of an ellipse that is turned clockwise around its centre."""
    x, y = centre
    radius_x, radius_y = radii
    points = []
    for index in range(_NUM_POINTS):
        angle = 2 * math.pi * index / _NUM_POINTS
        point = (x + radius_x * math.cos(angle), y + radius_y * math.sin(angle))
        points.append(turn(point, degrees, centre))
    return polygon(points)


def as_segmentation(outline: Outline) -> list[list[float]] | dict[str, Any]:
    """An outline as COCO writes a segmentation, or as a shape of `packing/fields/tool_shapes`.

    ValueError: runs are not those of their box, or it lies outside the image.
    """
    if isinstance(outline, Bitmap):
        return {
            "png": outline.png,
            "origin": list(outline.origin),
            "compressed": outline.is_compressed,
        }
    if isinstance(outline, PixelPolygon):
        return {"corners": outline.corners, "holes": outline.holes}
    if not isinstance(outline, RunsInBox):
        return outline
    width, height = outline.size
    left, top, right, bottom = map(int, outline.box)
    if min(left, top) < 0 or right > width or bottom > height:
        raise ValueError(
            f"expected a mask in the image of {width} x {height} pixels, got one in the box "
            f"{[left, top, right, bottom]}"
        )
    runs = [int(run) for run in outline.runs.split(",") if run.strip()]
    box_height = bottom - top
    box_width = right - left
    if min(runs, default=0) < 0 or sum(runs) != box_height * box_width:
        raise ValueError(
            f"expected runs of {box_height * box_width:,} pixels, got {sum(runs):,}"
        )
    is_inside_run = np.arange(len(runs)) % 2 == 1
    mask = np.zeros((height, width), dtype=bool)
    is_inside = np.repeat(is_inside_run, runs)
    mask[top:bottom, left:right] = is_inside.reshape(box_height, box_width)

    # COCO counts down the columns, and begins outside.
    pixels = np.concatenate(([False], mask.ravel(order="F")))
    starts = np.flatnonzero(pixels[1:] != pixels[:-1])
    edges = [0, *starts.tolist(), width * height]
    return {"size": [height, width], "counts": np.diff(edges).tolist()}
