"""COCO's segmentations, polygons or runs (RLE) -> lengths of runs, and the box around them.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

from fastpipe.distribution import install_extra
from fastpipe.errors import ImageError, PackError
from fastpipe.sources.field_columns import FieldColumn


def check_pycocotools(field: FieldColumn) -> None:
    """Raises PackError if a field of masks is made of polygons, and pycocotools is missing."""
    if importlib.util.find_spec("pycocotools") is None:
        raise PackError(f"{field}: masks need pycocotools: {install_extra('coco')}")


def find_box_around(segmentation: Any) -> list[float]:
    """Left, top, right and bottom (xyxy) of polygons or runs.

    Raises:
        ImageError: there is nothing to enclose.
    """
    if isinstance(segmentation, dict):
        return _box_around_runs(segmentation)
    # A polygon is x, y, x, y, ...
    numbers: list[Any] = []
    if isinstance(segmentation, list):
        for polygon in segmentation:
            # None is not a finite number, so the check below refuses the segmentation.
            numbers += polygon if isinstance(polygon, list) else [None]
    are_finite = all(map(_is_finite, numbers))
    if not numbers or len(numbers) % 2 or not are_finite:
        raise ImageError(
            f"expected a bbox, or polygons to put a box around; got {segmentation!r:.60}"
        )
    xs = numbers[::2]
    ys = numbers[1::2]
    return [min(xs), min(ys), max(xs), max(ys)]


def _is_finite(number: Any) -> bool:
    # Not isinstance: True is an int, and is no coordinate.
    return type(number) in (int, float) and math.isfinite(number)


def _box_around_runs(segmentation: dict[str, Any]) -> list[float]:
    """The box (xyxy) around the pixels of the object.

    Runs count pixels down the columns, outside and inside the object by turns.
    """
    try:
        height, _ = map(int, segmentation["size"])
        counts = segmentation["counts"]
        if isinstance(counts, str):
            runs = decode_counts(counts)
        else:
            runs = list(map(int, counts))
    except (KeyError, TypeError, ValueError) as problem:
        raise ImageError(
            f"expected a bbox, or runs to put a box around ({problem}); got {segmentation!r:.60}"
        ) from None

    lefts: list[int] = []
    tops: list[int] = []
    rights: list[int] = []
    bottoms: list[int] = []
    start = 0
    for index, run in enumerate(runs):
        end = start + run
        is_inside = index % 2 == 1
        if is_inside and run and height > 0:
            left, top = divmod(start, height)
            last_column, last_row = divmod(end - 1, height)
            if left != last_column:
                # The run goes on at the top of the next column, so it touches both edges.
                top = 0
                last_row = height - 1
            lefts.append(left)
            tops.append(top)
            rights.append(last_column + 1)
            bottoms.append(last_row + 1)
        start = end
    if not lefts:
        raise ImageError(
            "expected a bbox, or runs to put a box around; got runs without a pixel"
        )
    return [min(lefts), min(tops), max(rights), max(bottoms)]


def decode_counts(text: str) -> list[int]:
    """The lengths of the runs in COCO's packed text.

    A character has six bits: five of a number, lowest first, and whether the number goes on. From
    the fourth number on, each is the difference to the one two before. ValueError: it is damaged.
    """
    counts: list[int] = []
    value = 0
    shift = 0
    for character in text:
        bits = ord(character) - 48
        # A number of more bits than any image has pixels is damage, and would cost much memory.
        if not 0 <= bits < 64 or shift > 40:
            raise ValueError(f"expected packed counts, got {text[:40]!r}")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        # The highest bit of the last character is the sign, as in two's complement.
        if bits & 16:
            value -= 1 << shift
        if len(counts) > 2:
            value += counts[-2]
        counts.append(value)
        value = 0
        shift = 0
    if shift:
        raise ValueError("packed counts end in the middle of a number")
    return counts
