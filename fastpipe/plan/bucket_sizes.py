"""A list of batch sizes for buckets, and the size in it that suits each image best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.plan.crops import Size


def sizes_of_area(area: int, multiple: int, longest: int) -> tuple[Size, ...]:
    """(height, width) with the largest height for each width, of at most `area` pixels, and the same
    turned.

    Sides are multiples of `multiple` up to `longest`.
    """
    sizes = set()
    for width in range(multiple, longest + 1, multiple):
        height = area // width // multiple * multiple
        if multiple <= height <= longest:
            sizes.add((height, width))
            sizes.add((width, height))
    return tuple(sorted(sizes))


def sort_by_ratio(sizes: Sequence[Size]) -> Int64s:
    """(S, 2) widths and heights, from the narrowest to the widest; of one ratio the smaller first."""
    ordered = sorted(set(sizes), key=lambda size: (size[1] / size[0], size[0]))
    heights_and_widths = np.array(ordered, dtype=np.int64)
    return heights_and_widths[:, ::-1].copy()


def nearest_sizes(sizes: Int64s, pictures: Int64s) -> Int64s:
    """(n,) for each image, (n, 2), the position of its size in `sizes`, sorted by ratio.

    An image that is resized to cover a size, and cut, keeps the larger a part of itself the nearer
    their ratios are. So the size is one of the nearest ratio: the largest that the image covers
    without being enlarged, else the smallest.
    """
    ratios = sizes[:, 0] / sizes[:, 1]
    # (R,) each ratio once, and where its sizes begin.
    unique_ratios, begins = np.unique(ratios, return_index=True)
    # (R - 1,) the ratios at which both neighbours keep an equal part.
    limits = np.sqrt(unique_ratios[:-1] * unique_ratios[1:])
    picture_ratios = pictures[:, 0] / pictures[:, 1]
    nearest_ratios = np.searchsorted(limits, picture_ratios)
    positions: Int64s = begins[nearest_ratios]
    ratio_of_picture = unique_ratios[nearest_ratios]
    # A larger size of the same ratio takes the place of a smaller one if the image covers it.
    is_larger = np.ones(len(sizes), dtype=np.bool_)
    is_larger[begins] = False
    for position in np.flatnonzero(is_larger).tolist():
        has_ratio = ratio_of_picture == ratios[position]
        covers = covers_size(pictures, sizes[position])
        positions[has_ratio & covers] = position
    return positions


def nearest_covered_sizes(sizes: Int64s, pictures: Int64s) -> Int64s:
    """The same among the sizes that an image covers without being enlarged; that of `nearest_sizes`
    if it covers none.
    """
    positions = nearest_sizes(sizes, pictures)
    # Most images cover their nearest size, and the others are few enough for a loop.
    others = np.flatnonzero(~covers_size(pictures, sizes[positions]))
    covered = _find_covered(sizes, pictures[others])
    positions[others] = np.where(covered >= 0, covered, positions[others])
    return positions


def covers_any(sizes: Int64s, pictures: Int64s) -> Bools:
    """(n,) whether each image, (n, 2), covers one of the sizes without being enlarged."""
    by_width = sizes[np.argsort(sizes[:, 0], kind="stable")]
    # (S,) the least height among the sizes that are at most so wide.
    least_heights = np.minimum.accumulate(by_width[:, 1])
    counts = np.searchsorted(by_width[:, 0], pictures[:, 0], side="right")
    heights = least_heights[counts - 1]
    return np.asarray((counts > 0) & (heights <= pictures[:, 1]))


def _find_covered(sizes: Int64s, pictures: Int64s) -> Int64s:
    """(n,) the covered size that keeps the largest part of each image, (n, 2); -1 if there is none."""
    positions = np.full(len(pictures), -1, dtype=np.int64)
    largest_parts = np.zeros(len(pictures))
    picture_ratios = pictures[:, 0] / pictures[:, 1]
    for position, size in enumerate(sizes):
        ratio = size[0] / size[1]
        # (n,) the part of the image that is kept.
        parts = np.minimum(picture_ratios / ratio, ratio / picture_ratios)
        # Of equal parts the later one is that of the larger size.
        is_better = covers_size(pictures, size) & (parts >= largest_parts)
        positions[is_better] = position
        largest_parts[is_better] = parts[is_better]
    return positions


def covers_size(pictures: Int64s, size: Int64s) -> Bools:
    """(n,) whether images are at least as wide and as high as sizes.

    Both are (n, 2), or one of them is (2,).
    """
    covers_side: Bools = pictures >= size
    return np.asarray(covers_side.all(axis=1))
