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
    if not isinstance(shape, dict):
        return False
    return "png" in shape or "corners" in shape


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
        is_in_hole = _fill_polygon(hole, width, height)
        mask &= ~is_in_hole
    return mask


def _draw_bitmap(shape: Mapping[str, Any], width: int, height: int) -> Bools:
    max_pixels = width * height
    max_bytes = max_pixels * _MAX_PIXEL_BYTES + _MAX_CHUNK_BYTES
    try:
        png = base64.b64decode(shape["png"])
        if shape["compressed"]:
            decompressor = zlib.decompressobj()
            png = decompressor.decompress(png, max_bytes)
    except (binascii.Error, zlib.error) as problem:
        raise ValueError(f"its bitmap is damaged: {problem}") from None
    if image_format(png) != "PNG":
        raise ValueError("its bitmap is damaged: expected a PNG")

    bitmap = _read_bitmap(png, max_pixels)
    bitmap_height, bitmap_width = bitmap.shape
    left, top = shape["origin"]
    bottom = top + bitmap_height
    right = left + bitmap_width
    begins_outside = left < 0 or top < 0
    ends_outside = right > width or bottom > height
    if begins_outside or ends_outside:
        box_xyxy = [left, top, right, bottom]
        raise ValueError(
            f"expected a bitmap in the image of {width} x {height} pixels, got one in the box "
            f"{box_xyxy}"
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
    image = open_image(png, "PNG", max_pixels=max_pixels)
    samples = image.samples()
    num_channels = 1
    if samples.ndim == 3:
        num_channels = samples.shape[2]
    if num_channels not in (2, 4):
        raise ValueError("its bitmap has colours and no transparent pixels")
    alpha = samples[..., -1]  # the last channel
    return np.asarray(alpha != 0)


def _fill_polygon(corners: Sequence[Sequence[float]], width: int, height: int) -> Bools:
    """(height, width) the pixels inside of a polygon, with those of the line around it."""
    # (corners, 2) x, y
    coordinates = np.array(corners, dtype=np.float64)
    exact_points = coordinates.reshape(-1, 2)
    points = np.rint(exact_points)
    image_size = np.array((width, height))
    limits = image_size * _MAX_SIZES_AWAY
    is_too_far = np.abs(points) > limits
    if is_too_far.any():
        greatest = points.max(axis=0).tolist()
        raise ValueError(
            f"expected corners near the image of {width} x {height} pixels, got {greatest}"
        )
    # (corners, 2) of whole pixels: where each edge starts and where it ends. The last edge closes
    # the polygon.
    starts = points.astype(np.int64)
    ends = np.roll(starts, -1, axis=0)
    # Behind a crossing of the line, the pixels of a row are inside and outside by turns.
    num_columns = width + 1  # behind the last pixel, too
    crossings = np.zeros((height, num_columns), dtype=np.uint8)
    line = np.zeros((height, width), dtype=bool)
    for start, end in zip(starts, ends, strict=True):
        _add_crossings(crossings, start, end)
        _add_line(line, start, end)
    # 1 behind an odd number of crossings, else 0.
    crossings_of_pixels = crossings[:, :width]
    parity = np.bitwise_xor.accumulate(crossings_of_pixels, axis=1)
    is_inside = parity == 1
    return np.asarray(is_inside | line)


def _add_crossings(crossings: NDArray[np.uint8], start: Ints, end: Ints) -> None:
    """Toggles the first pixel behind an edge, in each row that the edge crosses."""
    # From above to below.
    x0, y0 = start.tolist()
    x1, y1 = end.tolist()
    if y1 < y0:
        x0, y0 = end.tolist()
        x1, y1 = start.tolist()
    height, num_columns = crossings.shape
    first_row = max(y0, 0)
    end_row = min(y1, height)
    rows = np.arange(first_row, end_row)
    if not len(rows):
        return
    # Whole numbers, so that a corner on a pixel is exact: x0 + (rows - y0) * dx / dy, rounded up.
    # Rounding the negated term down is rounding the term up.
    rows_below_start = rows - y0
    minus_dx = x0 - x1
    dy = y1 - y0
    columns = x0 - rows_below_start * minus_dx // dy
    last_column = num_columns - 1
    visible_columns = np.clip(columns, 0, last_column)
    crossings[rows, visible_columns] ^= 1


def _add_line(line: Bools, start: Ints, end: Ints) -> None:
    """Sets the pixels of a line that lie in the image."""
    lengths = np.abs(end - start)  # across and down
    num_steps = max(int(lengths.max()), 1)
    # (steps + 1, 2) x, y
    places = np.linspace(start, end, num_steps + 1)
    rounded_places = np.floor(places + 0.5)  # halves up
    pixels = rounded_places.astype(np.int64)
    columns, rows = pixels.T
    height, width = line.shape
    is_behind_begin = (columns >= 0) & (rows >= 0)
    is_before_end = (columns < width) & (rows < height)
    is_in_image = is_behind_begin & is_before_end
    visible_rows = rows[is_in_image]
    visible_columns = columns[is_in_image]
    line[visible_rows, visible_columns] = True
