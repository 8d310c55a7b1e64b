"""Pixels that lie patch by patch -> patches as the loop gets them, and back to images."""

from __future__ import annotations

import torch

from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.patches import PatchLayout


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
        patch_valid: (patches,), or (rows, patches of a row), on the device of the images.
        count: of the patches of images.
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
    patches = patches.view(*patch_valid.shape, patches.shape[1])
    return patches.masked_fill_(~patch_valid[..., None], 0)


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
