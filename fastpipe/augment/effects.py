"""Images, and for each a number or a matrix -> other colours, other tones, moved or blurred pixels, as torchvision's.

Images are (n, c, height, width) float32 in [0, 1] and may be overwritten; numbers are (n,) float32. Colours are those
of 3 channels. Gray images, of 1 channel, have none: only what changes brightness changes them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastpipe.augment import pixels

_GREY = (0.2989, 0.587, 0.114)  # of red, green and blue: ITU-R 601-2 luma, as Pillow and torchvision have it
_BELOW_1 = 1 - 2**-24  # the greatest float32 below it
_LANES = 32  # threads of a GPU that do the same at a time


def grey(images: Tensor) -> Tensor:
    """(n, c, height, width) -> (n, 1, height, width)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return torch.mul(red, _GREY[0]).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2])[:, None]


def grayscale(images: Tensor) -> Tensor:
    """Grey, in as many channels as before."""
    return images.copy_(grey(images))


def brightness(images: Tensor, factors: Tensor) -> Tensor:
    """0: black, 1: as it is."""
    return images.mul_(_each(factors)).clamp_(0, 1)


def contrast(images: Tensor, factors: Tensor) -> Tensor:
    """0: the image's mean grey, 1: as it is."""
    mean = grey(images.mean((2, 3), keepdim=True))
    return images.mul_(_each(factors)).add_(mean.mul_(_each(1 - factors))).clamp_(0, 1)


def saturation(images: Tensor, factors: Tensor) -> Tensor:
    """0: grey, 1: as it is."""
    if images.shape[1] == 1:
        return images
    return torch.lerp(grey(images), images, _each(factors), out=images).clamp_(0, 1)


def hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turns the hue; -0.5 and 0.5 are the opposite colour. By way of HSV without making it: a colour has a least and a
    greatest channel, which stay, and a place on the circle of six sixths, on which each channel is greatest, least or
    on its way between.
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    most = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    span = most.sub_(least)  # of a grey: 0
    divisor = span.clamp_min(1e-12)
    at_green = blue.sub(red).div_(divisor).add_(2)
    at_blue = red.sub(green).div_(divisor).add_(4)
    place = torch.where(green >= blue, at_green, at_blue)
    at_red = green.sub(blue).div_(divisor)
    place = torch.where((red >= green) & (red >= blue), at_red, place).add_(turns[:, None, None] * 6)
    place.sub_(torch.floor(place / 6).mul_(6))
    for channel, (middle, sign, offset) in enumerate(((3, 1, -1), (2, -1, 2), (4, -1, 2))):
        height = place.sub(middle).abs_().mul_(sign).add_(offset).clamp_(0, 1)
        torch.addcmul(least, span, height, out=images[:, channel])
    return images


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """As many tones as so many bits can tell apart."""
    levels = _each(torch.exp2(bits))
    return images.clamp_max_(_BELOW_1).mul_(levels).floor_().div_(levels)


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Inverts all from the threshold up."""
    above = torch.empty_like(images)
    torch.ge(images, _each(thresholds), out=above)
    return images.sub_(above).abs_()  # exactly x or 1 - x


def sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """0: blurred, 1: as it is, 2: sharper. The outermost pixels stay."""
    height, width = images.shape[2:]
    if height < 3 or width < 3:
        return images
    inner = images[:, :, 1:-1, 1:-1]
    # The kernel is 1 all around and 5 in the middle, of 13.
    if not pixels.on_cpu(images.device):
        share = torch.rsub(factors, 9 / 13, alpha=9 / 13)  # of the mean of all nine
        inner.lerp_(functional.avg_pool2d(images, 3, 1), _each(share))
        return images.clamp_(0, 1)
    rows = images[:, :, :-2] + images[:, :, 1:-1]
    rows += images[:, :, 2:]
    blurred = rows[..., :-2] + rows[..., 1:-1]
    blurred += rows[..., 2:]  # the sum of nine
    blurred.add_(inner, alpha=4).div_(13)
    inner.add_(blurred.sub_(inner).mul_(1 - _each(factors)))
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
    area = height * width
    tones = images.mul_(256 - 1e-3).to(torch.int64).view(count, channels, area)
    histogram = _histogram(tones)
    up_to = histogram.cumsum(2)
    # Pillow leaves the last tone that occurs out of the count: from there on the sum is all pixels.
    step = (up_to % area).amax(2, keepdim=True) // 255
    table = up_to.sub_(histogram).add_(step // 2).div_(step.clamp_min(1), rounding_mode="floor").clamp_max_(255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return table.mul(1 / 255).gather(2, tones).view_as(images)


def _histogram(tones: Tensor) -> Tensor:
    """(n, c, pixels) of 256 tones -> (n, c, 256), how often each occurs. On a GPU, neighbouring pixels count in tables
    of their own: in a flat image all of them would add to one number, one after the other.
    """
    count, channels, area = tones.shape
    shape: tuple[int, ...] = (count, channels, 256)
    if not pixels.on_cpu(tones.device):
        lanes = _LANES
        while area % lanes:
            lanes //= 2
        shape, tones = (*shape, lanes), tones.view(count, channels, area // lanes, lanes)
    one = torch.ones((), dtype=torch.int32, device=tones.device)
    histogram = torch.zeros(shape, dtype=torch.int32, device=tones.device).scatter_add_(2, tones, one.expand_as(tones))
    return histogram if histogram.ndim == 3 else histogram.sum(3)


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Moves pixels: the nearest pixel, black outside. (n, 6) a b c d e f say where an output pixel comes from:
    x = a x' + b y' + c, y = d x' + e y' + f, x' and y' in pixels from the middle, x and y from -1 to 1, as grid_sample.
    """
    height, width = images.shape[2:]
    x = torch.arange(-(width - 1) / 2, width / 2, dtype=torch.float32, device=images.device)
    y = torch.arange(-(height - 1) / 2, height / 2, dtype=torch.float32, device=images.device)
    slope_x, slope_y, offset = matrices.view(-1, 2, 3, 1).unbind(2)  # (n, 2, 1) each
    # (n, 2, height, width): what x adds, the same in each row, and what y and the offset add.
    grid = (slope_x * x)[:, :, None] + torch.addcmul(offset, slope_y, y)[:, :, :, None]
    grid = grid.permute(0, 2, 3, 1)
    return functional.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def gaussian_blur(images: Tensor, sigmas: Tensor, radius: int) -> Tensor:
    """Blurs across, then down, with reflected borders and 2 * radius + 1 taps, less than a side; sigmas in pixels."""
    taps = torch.arange(radius + 1, dtype=torch.float32, device=images.device)
    weights = torch.exp(-0.5 * (taps / sigmas[:, None]) ** 2)  # (n, radius + 1), from the middle outwards
    weights = weights / (2 * weights.sum(1, keepdim=True) - weights[:, :1])
    # A depthwise convolution is one kernel on a GPU, and on a CPU slower than adding shifted images up.
    blur = _by_shifts if pixels.on_cpu(images.device) else _by_convolution
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


def _each(values: Tensor) -> Tensor:
    """(n,) -> (n, 1, 1, 1)."""
    return values[:, None, None, None]
