"""Boxes that end a little outside their image -> boxes inside; polygons and runs of COCO -> a mask.

Format of shapes: https://cocodataset.org/#format-data; pycocotools finds the pixels of polygons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.packing.fields.values import Boxes

TOLERANCE = 1.0  # pixels that a box may end outside: annotations are rounded, often to whole pixels


def clamped(value: Boxes, width: int, height: int) -> Boxes:
    """Boxes with each edge that is at most TOLERANCE outside the image moved to its border; all others as they are."""
    most = np.array([width, height, width, height], dtype=np.float32)
    near = (value.boxes >= -TOLERANCE) & (value.boxes <= most + TOLERANCE)
    return value._replace(boxes=np.where(near, np.clip(value.boxes, 0, most), value.boxes))


def draw_shapes(shapes: list[tuple[int, Any]], width: int, height: int) -> NDArray[Any]:
    """Draws shapes one over the other, as pycocotools' annToMask draws each.

    Args:
        shapes: id and segmentation of each: a list of polygons, or runs (RLE), packed or not.
        width, height: of the image.

    Returns:
        (height, width) uint8, or uint16 where an id is over 255; 0 where there is no shape.

    Raises:
        ImageError: a segmentation cannot be; the message is the reason.
    """
    most = max((number for number, _ in shapes), default=0)
    if most > 65535:
        raise ImageError(f"expected ids of at most 65,535 for a mask, got {most:,}")
    drawn = np.zeros((height, width), dtype=np.uint8 if most < 256 else np.uint16)
    for at, (number, shape) in enumerate(shapes):
        try:
            runs = _runs(shape, width, height)
        except (ValueError, TypeError, OverflowError) as problem:
            raise ImageError(f"segmentation {at}: {problem}") from None
        inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs)  # down the columns
        drawn[inside.reshape(width, height).T] = number
    return drawn


def _runs(shape: object, width: int, height: int) -> list[int]:
    """A segmentation -> how many pixels are outside, inside, outside, ... down the columns."""
    if shape == []:
        return [width * height]
    if isinstance(shape, list):
        from pycocotools import mask as coco  # an extra: the source has found that it is there

        for polygon in shape:
            _check_polygon(polygon, width, height)
        shape = coco.merge(coco.frPyObjects(shape, height, width))
    if not isinstance(shape, dict) or list(shape.get("size") or []) != [height, width]:
        size = shape.get("size") if isinstance(shape, dict) else None
        raise ValueError(f"expected polygons, or runs of size [{height}, {width}]; got {size or shape!r:.60}")
    counts = shape.get("counts")
    counts = counts.decode() if isinstance(counts, bytes) else counts
    runs = unpacked_counts(counts) if isinstance(counts, str) else counts
    if not isinstance(runs, list) or not all(type(run) is int and run >= 0 for run in runs):
        raise ValueError(f"expected counts of 0 or more, got {counts!r:.60}")
    if sum(runs) != width * height:
        raise ValueError(f"expected counts of {width * height:,} pixels in all, got {sum(runs):,}")
    return runs


def _check_polygon(polygon: object, width: int, height: int) -> None:
    """pycocotools needs memory for each pixel of an outline, however far outside the image."""
    points = np.array(polygon if isinstance(polygon, list) else [], dtype=np.float64)
    if points.ndim != 1 or len(points) < 6 or len(points) % 2:
        raise ValueError(f"expected polygons of three or more points x, y, ...; got {polygon!r:.60}")
    points = points.reshape(-1, 2) / (width, height)
    if not ((points >= -1) & (points <= 2)).all():
        raise ValueError(f"expected points in or near an image of {width} x {height}; got {polygon!r:.60}")


def unpacked_counts(text: str) -> list[int]:
    """Packed runs -> their lengths: six bits a character, lowest first, and from the fourth run on differences to the
    run two before.

    Raises:
        ValueError: they are damaged.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        six = ord(character) - 48
        if not 0 <= six < 64 or shift > 40:
            raise ValueError(f"expected packed counts, got {text[:40]!r}")
        value |= (six & 31) << shift
        shift += 5
        if six & 32:
            continue
        if six & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    if shift:
        raise ValueError("packed counts end in the middle of a number")
    return counts
