"""A list of batch sizes for buckets, and the size in it that suits each image best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpipe.arrays import Bools, Float64s, Int64s
from fastpipe.plan.crops import Size


def sizes_of_area(area: int, multiple: int, longest: int) -> tuple[Size, ...]:
    """(height, width) with the largest height for each width, of at most `area` pixels, and the same
    turned.

    Sides are multiples of `multiple` up to `longest`.
    """
    sizes = set()
    widths = range(multiple, longest + 1, multiple)
    for width in widths:
        # The largest multiple whose rows fit the area.
        most_rows = area // width
        height = most_rows // multiple * multiple
        if multiple <= height <= longest:
            sizes.add((height, width))
            sizes.add((width, height))
    return tuple(sorted(sizes))


def sort_by_ratio(sizes: Sequence[Size]) -> Int64s:
    """(S, 2) widths and heights, from the narrowest to the widest; of one ratio the smaller first."""

    def ratio_and_height(size: Size) -> tuple[float, int]:
        height, width = size
        ratio = width / height
        return ratio, height

    ordered = sorted(set(sizes), key=ratio_and_height)
    heights_and_widths = np.array(ordered, dtype=np.int64)
    widths_and_heights = heights_and_widths[:, ::-1]
    return widths_and_heights.copy()


def nearest_sizes(sizes: Int64s, pictures: Int64s) -> Int64s:
    """(n,) for each image, (n, 2), the position of its size in `sizes`, sorted by ratio.

    An image that is resized to cover a size, and cut, keeps the larger a part of itself the nearer
    their ratios are. So the size is one of the nearest ratio: the largest that the image covers
    without being enlarged, else the smallest.
    """
    ratios = ratios_of(sizes)
    # (R,) each ratio once, and where its sizes begin.
    unique_ratios, begins = np.unique(ratios, return_index=True)
    # (R - 1,) the ratios at which both neighbours keep an equal part.
    narrower = unique_ratios[:-1]
    wider = unique_ratios[1:]
    limits = np.sqrt(narrower * wider)

    # (n,) each: which of the unique ratios an image gets, its first size, and the ratio itself.
    picture_ratios = ratios_of(pictures)
    nearest_ratios = np.searchsorted(limits, picture_ratios)
    positions: Int64s = begins[nearest_ratios]
    ratio_of_picture = unique_ratios[nearest_ratios]

    # A larger size of the same ratio takes the place of a smaller one if the image covers it.
    is_larger = np.ones(len(sizes), dtype=np.bool_)
    is_larger[begins] = False
    larger_sizes = np.flatnonzero(is_larger)
    for position in larger_sizes.tolist():
        has_ratio = ratio_of_picture == ratios[position]
        larger_size = sizes[position]
        covers = covers_size(pictures, larger_size)
        takes_larger = has_ratio & covers
        positions[takes_larger] = position
    return positions


def nearest_covered_sizes(sizes: Int64s, pictures: Int64s) -> Int64s:
    """The same among the sizes that an image covers without being enlarged; that of `nearest_sizes`
    if it covers none.
    """
    positions = nearest_sizes(sizes, pictures)
    # Most images cover their nearest size, and the others are few enough for a loop.
    nearest = sizes[positions]
    covers_nearest = covers_size(pictures, nearest)
    others = np.flatnonzero(~covers_nearest)
    # (others,) -1 where an image covers no size at all.
    covered = _find_covered(sizes, pictures[others])
    covers_one = covered >= 0
    nearest_of_others = positions[others]
    positions[others] = np.where(covers_one, covered, nearest_of_others)
    return positions


def covers_any(sizes: Int64s, pictures: Int64s) -> Bools:
    """(n,) whether each image, (n, 2), covers one of the sizes without being enlarged."""
    # (S,) each, from the narrowest size to the widest.
    order = np.argsort(sizes[:, 0], kind="stable")
    by_width = sizes[order]
    widths = by_width[:, 0]
    heights = by_width[:, 1]
    # (S,) the least height among the sizes that are at most so wide.
    least_heights = np.minimum.accumulate(heights)

    # (n,) how many sizes are at most as wide as an image, and the least height of these.
    picture_widths = pictures[:, 0]
    picture_heights = pictures[:, 1]
    counts = np.searchsorted(widths, picture_widths, side="right")
    heights_to_cover = least_heights[counts - 1]
    is_wide_enough = counts > 0
    is_high_enough = heights_to_cover <= picture_heights
    return np.asarray(is_wide_enough & is_high_enough)


def _find_covered(sizes: Int64s, pictures: Int64s) -> Int64s:
    """(n,) the covered size that keeps the largest part of each image, (n, 2); -1 if there is none."""
    positions = np.full(len(pictures), -1, dtype=np.int64)
    largest_parts = np.zeros(len(pictures))
    picture_ratios = ratios_of(pictures)
    for position, size in enumerate(sizes):
        width, height = size
        ratio = width / height
        # (n,) the part that is kept of an image's width, and of its height; the other side is whole.
        parts_of_width = ratio / picture_ratios
        parts_of_height = picture_ratios / ratio
        parts = np.minimum(parts_of_height, parts_of_width)
        # Of equal parts the later one is that of the larger size.
        keeps_more = parts >= largest_parts
        is_better = covers_size(pictures, size) & keeps_more
        positions[is_better] = position
        largest_parts[is_better] = parts[is_better]
    return positions


def ratios_of(widths_and_heights: Int64s) -> Float64s:
    """Widths and heights (n, 2) -> (n,) width divided by height."""
    widths = widths_and_heights[:, 0]
    heights = widths_and_heights[:, 1]
    return np.asarray(widths / heights)


def covers_size(pictures: Int64s, size: Int64s) -> Bools:
    """(n,) whether images are at least as wide and as high as sizes.

    Both are (n, 2), or one of them is (2,).
    """
    covers_side: Bools = pictures >= size
    return np.asarray(covers_side.all(axis=1))
