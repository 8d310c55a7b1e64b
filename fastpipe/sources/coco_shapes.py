"""COCO's segmentations, polygons or runs (RLE) -> lengths of runs, and the box around them.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import math
from typing import Any

from fastpipe.errors import ImageError


def box_around(segmentation: Any) -> list[float]:
    """Left, top, right and bottom of polygons, each x, y, ..., or of runs. ImageError: it has none."""
    if isinstance(segmentation, dict):
        return _box_of_runs(segmentation)
    polygons = segmentation if isinstance(segmentation, list) else []
    flat: list[Any] = [
        each for polygon in polygons for each in (polygon if isinstance(polygon, list) else [None])
    ]
    finite = all(type(each) in (int, float) and math.isfinite(each) for each in flat)
    if not flat or len(flat) % 2 or not finite:
        raise ImageError(
            f"expected a bbox, or polygons to put a box around; got {segmentation!r:.60}"
        )
    xs, ys = flat[::2], flat[1::2]
    return [min(xs), min(ys), max(xs), max(ys)]


def _box_of_runs(shape: dict[str, Any]) -> list[float]:
    """The box of the pixels inside; they are counted down the columns."""
    try:
        height, _ = map(int, shape["size"])
        counts = shape["counts"]
        runs = unpacked_counts(counts) if isinstance(counts, str) else list(map(int, counts))
    except (KeyError, TypeError, ValueError) as problem:
        raise ImageError(
            f"expected a bbox, or runs to put a box around ({problem}); got {shape!r:.60}"
        ) from None
    lefts, tops, rights, bottoms = [], [], [], []
    start = 0
    for number, run in enumerate(runs):
        end = start + run
        if number % 2 and run and height > 0:
            one_column = start // height == (end - 1) // height
            lefts.append(start // height)
            rights.append((end - 1) // height + 1)
            tops.append(start % height if one_column else 0)
            bottoms.append((end - 1) % height + 1 if one_column else height)
        start = end
    if not lefts:
        raise ImageError("expected a bbox, or runs to put a box around; got runs without a pixel")
    return [min(lefts), min(tops), max(rights), max(bottoms)]


def unpacked_counts(text: str) -> list[int]:
    """Packed runs -> lengths: six bits a character, lowest first; from the fourth on the run two before is added."""
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
