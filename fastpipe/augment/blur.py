"""Images and a sigma for each -> blurred images: torchvision's gaussian_blur, with reflected borders."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastpipe.augment import placement


def gaussian_blur(images: Tensor, sigmas: Tensor, radius: int) -> Tensor:
    """Blurs across, then down.

    Args:
        images: (n, c, height, width) float32.
        sigmas: (n,) in pixels, above 0.
        radius: the kernel has 2 * radius + 1 taps; below height and width.
    """
    taps = torch.arange(radius + 1, dtype=torch.float32, device=images.device)
    weights = torch.exp(-0.5 * (taps / sigmas[:, None]) ** 2)  # (n, radius + 1), from the middle outwards
    weights = weights / (2 * weights.sum(1, keepdim=True) - weights[:, :1])
    # A depthwise convolution is one kernel on a GPU, and on a CPU slower than adding shifted images up.
    blur = _by_shifts if placement.on_cpu(images.device) else _by_convolution
    for dimension in (3, 2):
        images = blur(images, weights, radius, dimension)
    return images


def _padded(images: Tensor, radius: int, dimension: int) -> Tensor:
    return functional.pad(images, (radius, radius, 0, 0) if dimension == 3 else (0, 0, radius, radius), mode="reflect")


def _by_shifts(images: Tensor, weights: Tensor, radius: int, dimension: int) -> Tensor:
    padded, length = _padded(images, radius, dimension), images.shape[dimension]
    weight = weights[:, :, None, None, None].unbind(1)
    out = padded.narrow(dimension, radius, length) * weight[0]
    pair = torch.empty_like(out)
    for tap in range(1, radius + 1):
        before, after = (padded.narrow(dimension, radius + shift, length) for shift in (-tap, tap))
        out.addcmul_(torch.add(before, after, out=pair), weight[tap])
    return out


def _by_convolution(images: Tensor, weights: Tensor, radius: int, dimension: int) -> Tensor:
    count, channels, height, width = images.shape
    kernels = torch.cat([weights.flip(1)[:, :-1], weights], 1).repeat_interleave(channels, 0)
    shape = (count * channels, 1, 1, -1) if dimension == 3 else (count * channels, 1, -1, 1)
    padded = _padded(images, radius, dimension)
    planes = padded.reshape(1, count * channels, *padded.shape[2:])
    return functional.conv2d(planes, kernels.view(shape), groups=count * channels).view(count, channels, height, width)
