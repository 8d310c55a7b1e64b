"""Boxes (top, left, bottom, right) -> the part of images inside them, as a slice or as a mask.

Images are mostly (n, height, width * 3) here: Note [rows] in pixels.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def cut_out(image: Tensor, box: Sequence[int]) -> Tensor:
    """The part of one image (height, width * 3) in a box that the host knows, as a view."""
    top, left, bottom, right = box
    return image[top:bottom, 3 * left : 3 * right]


def inside_planes(boxes: Tensor, images: Tensor) -> Tensor:
    """Boxes (n, 4) int64 on the device, images (n, c, height, width) -> (n, 1, height, width) bool, as `inside`."""
    y = torch.arange(images.shape[2], device=images.device)[:, None]
    x = torch.arange(images.shape[3], device=images.device)
    top, left, bottom, right = boxes[:, :, None, None, None].unbind(1)
    return ((y >= top) & (y < bottom)) & ((x >= left) & (x < right))


def inside(boxes: Tensor, images: Tensor) -> Tensor:
    """Boxes (n, 4) int64 on the device -> (n, height, width * 3) bool: what is in each image's box."""
    height, width = images.shape[1], images.shape[2] // 3
    y = torch.arange(height, device=images.device)[:, None]
    x = torch.arange(width, device=images.device).repeat_interleave(3, output_size=width * 3)
    top, left, bottom, right = boxes[:, :, None, None].unbind(1)
    return ((y >= top) & (y < bottom)) & ((x >= left) & (x < right))
