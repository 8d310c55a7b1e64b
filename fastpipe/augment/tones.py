"""Images, and for some a number each -> fewer tones, other tones, sharper edges, as torchvision makes them of floats.

All take images (n, 3, height, width) float32 in [0, 1], which they may overwrite, and (n,) float32.
"""

from __future__ import annotations

import torch
from torch import Tensor


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """As many tones as so many bits can tell apart."""
    levels = torch.exp2(bits)[:, None, None, None]
    return torch.minimum(images.mul_(levels).floor_(), levels - 1).div_(levels)


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Inverts all from the threshold up."""
    above = (images >= thresholds[:, None, None, None]).to(images.dtype)
    return images.mul_(1 - 2 * above).add_(above)  # exactly x or 1 - x; torch.where is slow on a CPU


def sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """0: blurred, 1: as it is, 2: sharper. The outermost pixels stay."""
    height, width = images.shape[2:]
    if height < 3 or width < 3:
        return images
    inner = images[:, :, 1:-1, 1:-1]
    rows = images[:, :, :-2] + images[:, :, 1:-1]
    rows += images[:, :, 2:]
    blurred = rows[..., :-2] + rows[..., 1:-1]
    blurred += rows[..., 2:]  # the sum of nine; the kernel is 1 all around and 5 in the middle, of 13
    blurred.add_(inner, alpha=4).div_(13)
    inner.add_(blurred.sub_(inner).mul_(1 - factors[:, None, None, None]))
    return images.clamp_(0, 1)


def autocontrast(images: Tensor) -> Tensor:
    """Stretches each channel from 0 to 1; one of a single tone stays."""
    least = images.amin((2, 3), keepdim=True)
    span = images.amax((2, 3), keepdim=True).sub_(least)
    flat = span == 0
    return images.sub_(least.masked_fill_(flat, 0)).div_(span.masked_fill_(flat, 1)).clamp_(0, 1)


def equalize(images: Tensor) -> Tensor:
    """Evens out how often each tone of 256 occurs in each channel; Pillow's rule."""
    count, channels, height, width = images.shape
    tones = images.mul(256 - 1e-3).to(torch.uint8)
    index = tones.view(count, channels, height * width).to(torch.int64)
    histogram = torch.zeros((count, channels, 256), dtype=torch.int64, device=images.device)
    histogram.scatter_add_(2, index, torch.ones((), dtype=torch.int64, device=images.device).expand_as(index))
    up_to = histogram.cumsum(2)
    # Pillow leaves the last tone that occurs out of the count: its place is that of the first full sum.
    last = histogram.gather(2, (up_to == height * width).to(torch.uint8).argmax(2, keepdim=True))
    step = (height * width - last) // 255
    table = ((up_to - histogram + step // 2) // step.clamp_min(1)).clamp_(0, 255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return table.to(torch.float32).mul_(1 / 255).gather(2, index).view_as(images)
