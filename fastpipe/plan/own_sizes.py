"""Widths and heights of images -> the sizes that processors of vision-language models give them."""

from __future__ import annotations

import numpy as np

from fastpipe.arrays import Float64s, Int64s

# The search of NaFlex processors for a scale: its limits, and how near it comes.
_NEAREST = 1e-5
_LEAST_SCALE = _NEAREST / 10
_MOST_SCALE = 100.0
# Of a row, in pixels. Only images more elongated than 200:1 would get longer.
MAX_SIDE = 65535


def rounded_sizes(
    pictures: Int64s, *, multiple: int, min_pixels: int, max_pixels: int
) -> Float64s:
    """Qwen-VL's rule: (n, 2) widths and heights -> (n, 2) those of the rows.

    Sides are rounded to the next multiple; an image with more than `max_pixels` is made smaller
    then, and one with less than `min_pixels` larger.

    Source: smart_resize of Qwen2-VL in transformers.
    """
    # Halves are rounded to even, as Python's round does.
    resized = np.rint(pictures / multiple) * multiple
    pixels = resized.prod(axis=1)
    areas = pictures.prod(axis=1)  # of at most 65,535 x 65,535 pixels

    is_too_large = pixels > max_pixels
    shrink = np.sqrt(areas / max_pixels)[:, None]
    multiples = np.floor(pictures / shrink / multiple)
    shrunk = np.maximum(multiples * multiple, multiple)

    is_too_small = pixels < min_pixels
    grow = np.sqrt(min_pixels / areas)[:, None]
    multiples = np.ceil(pictures * grow / multiple)
    grown = multiples * multiple

    resized = np.where(is_too_small[:, None], grown, resized)
    return np.where(is_too_large[:, None], shrunk, resized)


def largest_sizes(pictures: Int64s, *, multiple: int, max_pixels: int) -> Float64s:
    """The rule of NaFlex: the largest sizes whose patches fit into max_pixels: (n, 2) -> (n, 2).

    Source: get_image_size_for_max_num_patches of SigLIP 2 in transformers. The search stops at a
    scale that is near enough; with more steps, some sizes would be others.
    """
    most_patches = max_pixels // multiple**2
    # (n,) the scales between which the one that just fits lies.
    least = np.full(len(pictures), _LEAST_SCALE)
    most = np.full(len(pictures), _MOST_SCALE)
    while len(pictures) and most[0] - least[0] >= _NEAREST:
        scales = (least + most) / 2
        patches_of_sides = _patches_of_sides(pictures, scales, multiple)
        fits = patches_of_sides.prod(axis=1) <= most_patches
        least = np.where(fits, scales, least)
        most = np.where(fits, most, scales)
    return _patches_of_sides(pictures, least, multiple) * multiple


def _patches_of_sides(pictures: Int64s, scales: Float64s, multiple: int) -> Float64s:
    """Patches of each side, at these scales: (n, 2)."""
    sides = pictures * scales[:, None]
    patches: Float64s = np.maximum(np.ceil(sides / multiple), 1)
    return patches
