"""A mask as a file, an array, or COCO's polygons, runs or run lengths -> ids of pixels.

Formats: W3C PNG 3rd edition, chapters 7, 9, 10 and 11; https://cocodataset.org/#format-data, where
pycocotools finds the pixels of polygons.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.native import _engine
from fastpipe.packing.fields.tool_shapes import draw_tool_shape, is_tool_shape
from fastpipe.sources.annotations.coco_shapes import decode_counts
from fastpipe.sources.annotations.run_lengths import COLUMNS, count_alternately
from fastpipe.sources.picture.probe import image_format, native

_EXPECTED = "expected a mask as a PNG (gray or palette, 1 to 16 bit), or as (H, W) of uint8 or uint16"
_MAX_ID = 65_535


def mask_size(data: bytes) -> tuple[int, int]:
    """Width and height of a gray PNG, or one with a palette, read from its header.

    ImageError: it is another image.
    """
    name = image_format(data)
    if name != "PNG":
        raise ImageError(f"{name}, which may change ids; {_EXPECTED}")
    header = native(_engine.png_header, data, sys.maxsize)
    colour = header["color"]
    if colour not in ("gray", "palette"):
        raise ImageError(f"a PNG with colours ({colour}); {_EXPECTED}")
    return header["width"], header["height"]


def mask_of_png(data: bytes) -> NDArray[Any]:
    """(H, W) uint8 or uint16: values of a gray PNG, or the palette's numbers."""
    ids: NDArray[Any] = native(_engine.decode_mask, data, sys.maxsize)
    if ids.dtype == np.uint8:
        return ids
    return ids.astype(np.uint16)


def mask_of_array(mask: NDArray[Any]) -> NDArray[Any]:
    """(H, W) uint8 or uint16, a copy; of bool, or of any integers that fit."""
    has_pixels = mask.ndim == 2 and mask.size > 0
    has_whole_numbers = mask.dtype.kind in "biu"  # bool, signed and unsigned integers
    if not has_pixels or not has_whole_numbers:
        raise ImageError(f"{_EXPECTED}; got an array of {mask.shape} {mask.dtype}")
    if mask.dtype in (np.bool_, np.uint8):
        return mask.astype(np.uint8)
    least = mask.min()
    most = mask.max()
    if least < 0 or most > _MAX_ID:
        raise ImageError(f"{_EXPECTED}; got values from {least} to {most}")
    return mask.astype(np.uint16)


def unite_masks(masks: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """(H, W): the value of the last mask that is not 0 at a pixel.

    Raises:
        ImageError: there is no mask, or masks have several sizes.
    """
    united: NDArray[Any] | None = None
    for count, mask in enumerate(masks, 1):
        if united is None:
            united = mask.copy()
            continue
        _check_same_size(mask, united, count)
        is_covered = mask != 0
        united = np.where(is_covered, mask, united)
    if united is None:
        raise ImageError("expected masks of an image, got none")
    return united


def _check_same_size(mask: NDArray[Any], first: NDArray[Any], count: int) -> None:
    """ImageError: a mask, the `count`-th one of an image, has another size than the first."""
    if mask.shape != first.shape:
        height, width = mask.shape
        first_height, first_width = first.shape
        raise ImageError(
            f"mask {count} of an object has {width} x {height} pixels, and the first has "
            f"{first_width} x {first_height}"
        )


def number_objects(masks: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """(H, W) uint8 or uint16: i + 1 where mask i is not 0; later masks cover earlier ones.

    Raises:
        ImageError: there is no mask, or masks have several sizes.
    """
    numbers: NDArray[Any] | None = None
    count = 0
    for count, mask in enumerate(masks, 1):
        if numbers is None:
            numbers = np.zeros(mask.shape, dtype=np.uint16)
        _check_same_size(mask, numbers, count)
        is_covered = mask != 0
        numbers[is_covered] = count
    if numbers is None:
        raise ImageError("expected masks of objects, got none")
    if count < 256:
        return numbers.astype(np.uint8)
    return numbers


def draw_shapes(
    shapes: list[tuple[int, Any]], width: int, height: int, run_order: str = COLUMNS
) -> NDArray[Any]:
    """Draws shapes as pycocotools' annToMask does; later ones cover earlier ones.

    Args:
        shapes: an id and a segmentation each, of COCO, or of `draw_tool_shape`.
        width, height: of the mask in pixels.
        run_order: of pixels in the run lengths of tables, one of RUN_ORDERS.

    Returns:
        (height, width) uint8 or uint16; 0 where no shape is.

    Raises:
        ImageError: a segmentation is impossible.
    """
    ids = [shape_id for shape_id, _ in shapes]
    max_id = max(ids, default=0)
    if max_id > _MAX_ID:
        raise ImageError(
            f"expected ids of at most {_MAX_ID:,} for a mask, got {max_id:,}"
        )
    dtype: type[np.unsignedinteger[Any]] = np.uint8
    if max_id >= 256:
        dtype = np.uint16
    mask = np.zeros((height, width), dtype=dtype)
    for shape_index, (shape_id, shape) in enumerate(shapes):
        try:
            if is_tool_shape(shape):
                is_covered = draw_tool_shape(shape, width, height)
                mask[is_covered] = shape_id
                continue
            runs = _count_runs(shape, width, height)
        except (ValueError, TypeError, OverflowError) as problem:
            raise ImageError(f"segmentation {shape_index}: {problem}") from None
        # (runs,) every second run is inside; (pixels,) each run as often as it has pixels.
        run_numbers = np.arange(len(runs))
        is_inside_run = run_numbers % 2 == 1
        is_inside = np.repeat(is_inside_run, runs)
        if run_order == COLUMNS or not _is_of_table(shape):
            # Runs go down the columns, so the axes are (x, y).
            columns = is_inside.reshape(width, height)
            is_covered = columns.T
        else:
            is_covered = is_inside.reshape(height, width)
        mask[is_covered] = shape_id
    return mask


def _count_runs(shape: object, width: int, height: int) -> list[int]:
    """How many pixels of a segmentation are outside, inside, outside, ... down the columns.

    Those of a table's run lengths are in the order of the table.

    Args:
        shape: COCO's polygons, a list of [x, y, x, y, ...]; COCO's runs, {"size": [height, width],
            "counts": numbers or packed text}; a polygon of YOLO, {"shares": [x, y, ...]}; or run
            lengths of a table, {"runs": text}.
        width, height: of the mask in pixels.

    ValueError, TypeError, OverflowError: the segmentation is impossible.
    """
    num_pixels = width * height
    if shape == []:
        return [num_pixels]
    if _is_of_table(shape):
        return count_alternately(shape["runs"], num_pixels)
    if isinstance(shape, dict) and "shares" in shape:
        # (points, 2) as shares of the image's width and height
        shares = np.array(shape["shares"], dtype=np.float64)
        share_points = shares.reshape(-1, 2)
        points = share_points * (width, height)
        polygon = points.ravel().tolist()
        shape = [polygon]
    if isinstance(shape, list):
        shape = _fill_polygons(shape, width, height)

    # COCO's runs: a size, and counts as a list or packed into a text.
    size = None
    if isinstance(shape, dict):
        size = shape.get("size")
    has_size = list(size or []) == [height, width]
    if not isinstance(shape, dict) or not has_size:
        raise ValueError(
            f"expected polygons, or runs of size [{height}, {width}]; got {size or shape!r:.60}"
        )
    counts = shape.get("counts")
    if isinstance(counts, bytes):
        counts = counts.decode()
    runs = counts
    if isinstance(counts, str):
        runs = decode_counts(counts)
    if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
        raise ValueError(f"expected counts of 0 or more, got {counts!r:.60}")
    total = sum(runs)
    if total != num_pixels:
        raise ValueError(
            f"expected counts of {num_pixels:,} pixels in all, got {total:,}"
        )
    return runs


def _is_of_table(shape: object) -> TypeGuard[dict[str, Any]]:
    """Whether a segmentation has the run lengths of a table."""
    return isinstance(shape, dict) and "runs" in shape


def _fill_polygons(polygons: list[Any], width: int, height: int) -> Any:
    """The pixels in any of some polygons, as COCO's runs with packed counts."""
    # pycocotools is an extra. Listing the source has checked that it is installed.
    from pycocotools import mask as coco

    for polygon in polygons:
        _check_polygon(polygon, width, height)
    runs = coco.frPyObjects(polygons, height, width)
    return coco.merge(runs)


def _is_run(value: object) -> bool:
    # Not isinstance: True is an int as well.
    return type(value) is int and value >= 0


def _check_polygon(polygon: object, width: int, height: int) -> None:
    """Raises ValueError if a polygon has no area, or lies far outside the image.

    pycocotools needs memory for each pixel of an outline, however far outside it is.
    """
    coordinates = np.empty(0, dtype=np.float64)
    if isinstance(polygon, list):
        coordinates = np.array(polygon, dtype=np.float64)
    num_coordinates = len(coordinates)
    is_flat = coordinates.ndim == 1
    has_pairs = num_coordinates % 2 == 0
    has_three_points = num_coordinates >= 6
    is_polygon = is_flat and has_pairs and has_three_points
    if not is_polygon:
        raise ValueError(
            f"expected polygons of three or more points x, y, ...; got {polygon!r:.60}"
        )
    # (points, 2): x and y as shares of the image's width and height.
    points = coordinates.reshape(-1, 2)
    shares = points / (width, height)
    # So far outside as the image is large.
    is_near_begin = shares >= -1
    is_near_end = shares <= 2
    is_near = is_near_begin & is_near_end
    if not is_near.all():
        raise ValueError(
            f"expected points in or near an image of {width} x {height}; got {polygon!r:.60}"
        )
