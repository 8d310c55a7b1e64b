"""Masks: a file, an array, or COCO's polygons and runs -> ids of pixels -> a PNG that holds exactly these.

Formats: W3C PNG 3rd edition, chapters 7, 9, 10 and 11; https://cocodataset.org/#format-data, where pycocotools finds
the pixels of polygons.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.native import _engine
from fastpipe.sources.coco_shapes import unpacked_counts
from fastpipe.sources.picture.probe import image_format, native

_EXPECTED = (
    "expected a mask as a PNG (gray or palette, 1 to 16 bit), or as (H, W) of uint8 or uint16"
)


def mask_size(data: bytes) -> tuple[int, int]:
    """Width and height of a gray PNG, or one with a palette; nothing is decoded. ImageError: it is none."""
    name = image_format(data)
    if name != "PNG":
        raise ImageError(f"{name}, which may change ids; {_EXPECTED}")
    head = native(_engine.png_header, data, sys.maxsize)
    if head["color"] not in ("gray", "palette"):
        raise ImageError(f"a PNG with colours ({head['color']}); {_EXPECTED}")
    return head["width"], head["height"]


def mask_of_png(data: bytes) -> NDArray[Any]:
    """(H, W) uint8 or uint16: values of a gray PNG, or the palette's numbers."""
    ids: NDArray[Any] = native(_engine.decode_mask, data, sys.maxsize)
    return ids if ids.dtype == np.uint8 else ids.astype(np.uint16)


def mask_of_array(mask: NDArray[Any]) -> NDArray[Any]:
    """(H, W) uint8 or uint16, a copy; of bool, or of any integers that fit."""
    if mask.ndim != 2 or not mask.size or mask.dtype.kind not in "biu":
        raise ImageError(f"{_EXPECTED}; got an array of {mask.shape} {mask.dtype}")
    if mask.dtype.kind == "b" or mask.dtype == np.uint8:
        return mask.astype(np.uint8)
    if mask.min() < 0 or mask.max() > 65535:
        raise ImageError(f"{_EXPECTED}; got values from {mask.min()} to {mask.max()}")
    return mask.astype(np.uint16)


def draw_shapes(shapes: list[tuple[int, Any]], width: int, height: int) -> NDArray[Any]:
    """(height, width) uint8 or uint16: shapes, each an id and a segmentation, drawn as pycocotools' annToMask does.

    Later ones cover earlier ones; 0 is where there is none. ImageError: a segmentation cannot be.
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
        raise ValueError(
            f"expected polygons, or runs of size [{height}, {width}]; got {size or shape!r:.60}"
        )
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
        raise ValueError(
            f"expected polygons of three or more points x, y, ...; got {polygon!r:.60}"
        )
    points = points.reshape(-1, 2) / (width, height)
    if not ((points >= -1) & (points <= 2)).all():
        raise ValueError(
            f"expected points in or near an image of {width} x {height}; got {polygon!r:.60}"
        )
