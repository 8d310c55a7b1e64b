"""Rows that have sizes of their own -> a tensor for each; see Crops.slot_shape."""

from __future__ import annotations

from typing import Any

import torch

from fastpipe.arrays import Int64s


def split_rows(pixels: torch.Tensor, row_sizes: Int64s) -> list[torch.Tensor]:
    """The rows of images, (channels, height, width), or of masks, (height, width).

    They are views of the memory of `pixels`.

    Args:
        pixels: of all rows, one behind the other: (pixels, 1, 1, channels), or of masks (pixels, 1,
            1).
        row_sizes: (rows, 2) height and width.
    """
    areas = row_sizes.prod(axis=1).tolist()
    pixels_of_rows = torch.split(pixels, areas)
    rows = []
    for row, (height, width) in zip(pixels_of_rows, row_sizes.tolist(), strict=True):
        if pixels.ndim == 3:
            rows.append(row.view(height, width))
        else:
            image_hwc = row.view(height, width, -1)
            rows.append(image_hwc.permute(2, 0, 1))
    return rows


def stack_or_split(pixels: torch.Tensor, row_sizes: Int64s) -> Any:
    """The rows of images as one tensor, (rows, channels, height, width), if all have one size; else
    as `split_rows`.
    """
    if len(row_sizes) == 0 or (row_sizes != row_sizes[0]).any():
        return split_rows(pixels, row_sizes)
    height, width = row_sizes[0].tolist()
    images_nhwc = pixels.view(len(row_sizes), height, width, -1)
    return images_nhwc.permute(0, 3, 1, 2)


def split_list(rows: list[torch.Tensor], counts: list[int]) -> list[list[torch.Tensor]]:
    """The rows of each sample; `counts` has how many each has."""
    lists = []
    start = 0
    for count in counts:
        lists.append(rows[start : start + count])
        start += count
    return lists
