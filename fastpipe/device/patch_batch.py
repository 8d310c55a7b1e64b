"""A batch of patches: what it has beside its pixels, and the form in which the loop gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.patches import PatchLayout

# What a batch of patches has beside them, as attributes or as entries of a dict.
PATCH_FACTS = ("coords", "cu_seqlens", "patch_valid", "grids")


def patch_arrays(crops: Crops) -> dict[str, NDArray[Any]]:
    """The arrays of a batch of patches, by the names that the loop gets; see fastpipe.Patches."""
    layout = crops.layout
    row_sizes = crops.row_sizes
    assert layout is not None
    assert row_sizes is not None
    counts = layout.counts(row_sizes)
    total = layout.total(row_sizes)
    # (patches of images,) where each lies among all patches of the batch.
    places = _places(layout.starts(row_sizes), counts)
    coords = np.zeros((total, 2), dtype=np.int64)
    coords[places] = layout.coords(row_sizes)
    patch_valid = np.zeros(total, dtype=np.bool_)
    patch_valid[places] = True
    arrays = {
        "coords": coords,
        "patch_valid": patch_valid,
        "grids": row_sizes // layout.patch_size,
    }
    if layout.row_patches is not None:
        arrays["coords"] = coords.reshape(len(row_sizes), layout.row_patches, 2)
        arrays["patch_valid"] = patch_valid.reshape(len(row_sizes), layout.row_patches)
    else:
        cu_seqlens = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=cu_seqlens[1:])
        arrays["cu_seqlens"] = cu_seqlens
    return arrays


def _places(starts: Int64s, counts: Int64s) -> Int64s:
    """The numbers from each start on, so many of each, one after the other."""
    begins = np.cumsum(counts) - counts
    offsets = np.repeat(starts - begins, counts)
    return offsets + np.arange(int(counts.sum()))


def as_images(pixels: torch.Tensor, layout: PatchLayout) -> torch.Tensor:
    """(pixels, channels, 1, 1) -> each patch as a small image, (patches, channels, pixels, 1)."""
    channels = pixels.shape[1]
    flat = pixels.permute(0, 2, 3, 1)
    return flat.reshape(-1, layout.pixels, 1, channels).permute(0, 3, 1, 2)


def as_patches(
    images: torch.Tensor, layout: PatchLayout, patch_valid: torch.Tensor, count: int
) -> torch.Tensor:
    """The patches of a batch as the loop gets them; those that fill it up become zeros.

    Args:
        images: (patches, channels, pixels of a patch, 1); its memory may be written to.
        layout: of the batch.
        patch_valid: on the device of the images.
        count: of the patches that are valid, if these come first.
    """
    patch_count, channels, pixel_count, _ = images.shape
    if layout.channels_first:
        # (patches, channels, 1, pixels) -> (patches, channels, frames, pixels)
        by_frame = images.view(patch_count, channels, 1, pixel_count)
        by_frame = by_frame.expand(-1, -1, layout.frames, -1)
        patches = by_frame.reshape(patch_count, -1)
    else:
        patches = images.permute(0, 2, 3, 1).reshape(patch_count, -1)
    if layout.row_patches is None:
        patches[count:] = 0
        return patches
    patches = patches.view(-1, layout.row_patches, patches.shape[1])
    return patches.masked_fill_(~patch_valid[:, :, None], 0)


def put_together(patches: torch.Tensor, crops: Crops) -> list[torch.Tensor]:
    """The images, (channels, height, width), of which a batch has the patches."""
    layout = crops.layout
    row_sizes = crops.row_sizes
    assert layout is not None
    assert row_sizes is not None
    side = layout.patch_size
    flat = patches.flatten(0, -2)
    if layout.channels_first:
        # (patches, channels, frames, height, width) of a patch, of which all frames are alike.
        shape = (len(flat), -1, layout.frames, side, side)
        pixels = flat.reshape(shape)[:, :, 0]
    else:
        pixels = flat.reshape(len(flat), side, side, -1).permute(0, 3, 1, 2)

    coords = torch.from_numpy(layout.coords(row_sizes))
    counts = layout.counts(row_sizes).tolist()
    starts = layout.starts(row_sizes).tolist()
    images = []
    for size, start, coords_of_image in zip(
        row_sizes.tolist(), starts, torch.split(coords, counts), strict=True
    ):
        rows, columns = coords_of_image.unbind(1)
        height, width = size
        # (rows, columns, channels, height, width) of a patch.
        grid_shape = (height // side, width // side, *pixels.shape[1:])
        grid = pixels.new_empty(grid_shape)
        grid[rows, columns] = pixels[start : start + len(rows)]
        images.append(grid.permute(2, 0, 3, 1, 4).reshape(-1, height, width))
    return images
