"""Bitmaps and polygons of annotation tools whose corners are pixels -> the pixels that they cover.

Supervisely fills polygons as OpenCV's fillPoly does: the pixels under the line around a polygon are
inside. Formats: https://docs.supervisely.com/data-organization/00_ann_format_navi/05_annotation, and
the masks of labelme.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.native import _engine
from fastpipe.sources.picture.open_image import open_image
from fastpipe.sources.picture.probe import image_format, native

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

# A PNG is larger than its pixels by less than this.
_MAX_CHUNK_BYTES = 1 << 20
_MAX_PIXEL_BYTES = 8
# Corners may lie outside the image, but not so many sizes of the image away.
_MAX_SIZES_AWAY = 10


def is_tool_shape(shape: object) -> bool:
    """Whether a shape is one of those that `draw_tool_shape` draws."""
    return isinstance(shape, dict) and ("png" in shape or "corners" in shape)


def draw_tool_shape(shape: Mapping[str, Any], width: int, height: int) -> Bools:
    """(height, width) whether a pixel is inside of a shape.

    Args:
        shape: {"png": base64, "origin": [x, y], "compressed": whether zlib has compressed the PNG},
            or {"corners": [[x, y], ...], "holes": lists of corners}.
        width, height: of the image.

    Raises:
        ValueError, ImageError: the shape is damaged, or lies outside the image.
    """
    if "png" in shape:
        return _draw_bitmap(shape, width, height)
    mask = _fill_polygon(shape["corners"], width, height)
    for hole in shape["holes"]:
        mask &= ~_fill_polygon(hole, width, height)
    return mask


def _draw_bitmap(shape: Mapping[str, Any], width: int, height: int) -> Bools:
    max_bytes = width * height * _MAX_PIXEL_BYTES + _MAX_CHUNK_BYTES
    try:
        png = base64.b64decode(shape["png"])
        if shape["compressed"]:
            png = zlib.decompressobj().decompress(png, max_bytes)
    except (binascii.Error, zlib.error) as problem:
        raise ValueError(f"its bitmap is damaged: {problem}") from None
    if image_format(png) != "PNG":
        raise ValueError("its bitmap is damaged: expected a PNG")

    bitmap = _read_bitmap(png, width * height)
    left, top = shape["origin"]
    bottom = top + bitmap.shape[0]
    right = left + bitmap.shape[1]
    if min(left, top) < 0 or right > width or bottom > height:
        raise ValueError(
            f"expected a bitmap in the image of {width} x {height} pixels, got one in the box "
            f"{[left, top, right, bottom]}"
        )
    mask = np.zeros((height, width), dtype=bool)
    mask[top:bottom, left:right] = bitmap
    return mask


def _read_bitmap(png: bytes, max_pixels: int) -> Bools:
    """(height, width) whether a pixel of a PNG is opaque; without alpha, whether it is not 0."""
    header = native(_engine.png_header, png, max_pixels)
    if header["color"] in ("gray", "palette"):
        values: NDArray[Any] = native(_engine.decode_mask, png, max_pixels)
        return np.asarray(values != 0)
    samples = open_image(png, "PNG", max_pixels=max_pixels).samples()
    if samples.ndim != 3 or samples.shape[2] not in (2, 4):
        raise ValueError("its bitmap has colours and no transparent pixels")
    return np.asarray(samples[..., -1] != 0)


def _fill_polygon(corners: Sequence[Sequence[float]], width: int, height: int) -> Bools:
    """(height, width) the pixels inside of a polygon, with those of the line around it."""
    points = np.rint(np.array(corners, dtype=np.float64).reshape(-1, 2))
    limits = np.array((width, height)) * _MAX_SIZES_AWAY
    if (np.abs(points) > limits).any():
        raise ValueError(
            f"expected corners near the image of {width} x {height} pixels, got "
            f"{points.max(axis=0).tolist()}"
        )
    # (corners, 2) of whole pixels
    pixels = points.astype(np.int64)
    # Behind a crossing of the line, the pixels of a row are inside and outside by turns.
    crossings = np.zeros((height, width + 1), dtype=np.uint8)
    line = np.zeros((height, width), dtype=bool)
    for start, end in zip(pixels, np.roll(pixels, -1, axis=0), strict=True):
        _add_crossings(crossings, start, end)
        _add_line(line, start, end)
    is_inside = np.bitwise_xor.accumulate(crossings[:, :width], axis=1) == 1
    return np.asarray(is_inside | line)


def _add_crossings(crossings: NDArray[np.uint8], start: Ints, end: Ints) -> None:
    """Toggles the first pixel behind an edge, in each row that the edge crosses."""
    (x0, y0), (x1, y1) = sorted(
        [tuple(start.tolist()), tuple(end.tolist())], key=lambda corner: corner[1]
    )
    height, num_columns = crossings.shape
    rows = np.arange(max(y0, 0), min(y1, height))
    if not len(rows):
        return
    # Whole numbers, so that a corner on a pixel is exact: x0 + (rows - y0) * dx / dy, rounded up.
    columns = x0 - (rows - y0) * (x0 - x1) // (y1 - y0)
    crossings[rows, np.clip(columns, 0, num_columns - 1)] ^= 1


def _add_line(line: Bools, start: Ints, end: Ints) -> None:
    """Sets the pixels of a line that lie in the image."""
    num_steps = max(int(np.abs(end - start).max()), 1)
    steps = np.linspace(start, end, num_steps + 1)
    columns, rows = np.floor(steps + 0.5).astype(np.int64).T
    height, width = line.shape
    is_in_image = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    line[rows[is_in_image], columns[is_in_image]] = True
