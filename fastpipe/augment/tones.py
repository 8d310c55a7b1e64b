"""Images, and for some a number each -> fewer tones, other tones, sharper edges, as torchvision makes them of floats.

All take images (n, c, height, width) float32 in [0, 1], which they may overwrite, and (n,) float32.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastpipe.augment import placement

_BELOW_1 = 1 - 2**-24  # the greatest float32 below it
_LANES = 32  # threads of a GPU that do the same at a time


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """As many tones as so many bits can tell apart."""
    levels = torch.exp2(bits)[:, None, None, None]
    return images.clamp_max_(_BELOW_1).mul_(levels).floor_().div_(levels)


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Inverts all from the threshold up."""
    above = torch.empty_like(images)
    torch.ge(images, thresholds[:, None, None, None], out=above)
    return images.sub_(above).abs_()  # exactly x or 1 - x


def sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """0: blurred, 1: as it is, 2: sharper. The outermost pixels stay."""
    height, width = images.shape[2:]
    if height < 3 or width < 3:
        return images
    inner = images[:, :, 1:-1, 1:-1]
    # The kernel is 1 all around and 5 in the middle, of 13.
    if not placement.on_cpu(images.device):
        share = torch.rsub(factors, 9 / 13, alpha=9 / 13)  # of the mean of all nine
        inner.lerp_(functional.avg_pool2d(images, 3, 1), share[:, None, None, None])
        return images.clamp_(0, 1)
    rows = images[:, :, :-2] + images[:, :, 1:-1]
    rows += images[:, :, 2:]
    blurred = rows[..., :-2] + rows[..., 1:-1]
    blurred += rows[..., 2:]  # the sum of nine
    blurred.add_(inner, alpha=4).div_(13)
    inner.add_(blurred.sub_(inner).mul_(1 - factors[:, None, None, None]))
    return images.clamp_(0, 1)


def autocontrast(images: Tensor) -> Tensor:
    """Stretches each channel from 0 to 1; one of a single tone stays."""
    least = images.amin((2, 3), keepdim=True)
    span = images.amax((2, 3), keepdim=True).sub_(least)
    flat = span == 0
    return images.sub_(least.masked_fill_(flat, 0)).div_(span.masked_fill_(flat, 1))


def equalize(images: Tensor) -> Tensor:
    """Evens out how often each tone of 256 occurs in each channel; Pillow's rule. So 16 bits become 256 tones."""
    count, channels, height, width = images.shape
    pixels = height * width
    tones = images.mul_(256 - 1e-3).to(torch.int64).view(count, channels, pixels)
    histogram = _histogram(tones)
    up_to = histogram.cumsum(2)
    # Pillow leaves the last tone that occurs out of the count: from there on the sum is all pixels.
    step = (up_to % pixels).amax(2, keepdim=True) // 255
    table = up_to.sub_(histogram).add_(step // 2).div_(step.clamp_min(1), rounding_mode="floor").clamp_max_(255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return table.mul(1 / 255).gather(2, tones).view_as(images)


def _histogram(tones: Tensor) -> Tensor:
    """(n, c, pixels) of 256 tones -> (n, c, 256), how often each occurs.

    On a GPU, neighbouring pixels count in tables of their own: in a flat image all of them would add to one number, one
    after the other.
    """
    count, channels, pixels = tones.shape
    shape: tuple[int, ...] = (count, channels, 256)
    if not placement.on_cpu(tones.device):
        lanes = _LANES
        while pixels % lanes:
            lanes //= 2
        shape, tones = (*shape, lanes), tones.view(count, channels, pixels // lanes, lanes)
    one = torch.ones((), dtype=torch.int32, device=tones.device)
    histogram = torch.zeros(shape, dtype=torch.int32, device=tones.device).scatter_add_(2, tones, one.expand_as(tones))
    return histogram if histogram.ndim == 3 else histogram.sum(3)
