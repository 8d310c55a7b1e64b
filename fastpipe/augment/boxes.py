"""Boxes (top, left, bottom, right) -> the part of images inside them, as a slice or as a mask."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def cut_out(image: Tensor, box: Sequence[int]) -> Tensor:
    """The part of one image (height, width, c) in a box that the host knows, as a view."""
    top, left, bottom, right = box
    return image[top:bottom, left:right]


def inside(boxes: Tensor, height: int, width: int) -> Tensor:
    """Boxes (n, 4) int64 on the device -> (n, height, width) bool: what is in each image's box."""
    y = torch.arange(height, device=boxes.device)[:, None]
    x = torch.arange(width, device=boxes.device)
    top, left, bottom, right = boxes[:, :, None, None].unbind(1)
    return ((y >= top) & (y < bottom)) & ((x >= left) & (x < right))
