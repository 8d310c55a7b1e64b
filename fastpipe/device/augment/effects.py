"""Changes of images by a number or a matrix for each: colours, tones, blur, warps.

The results are torchvision's.

Images are (n, c, height, width) float32 in [0, 1] and may be overwritten; numbers are (n,) float32.
Colours are those of 3 channels. Gray images, of 1 channel, have none: only operations on brightness
change them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fastpipe.device.augment import pixels

# The weights of red, green and blue in grey: ITU-R 601-2 luma, as in torchvision.
_GREY_WEIGHTS = (0.2989, 0.587, 0.114)
_BELOW_1 = 1 - 2**-24  # the greatest float32 below 1
_LANES = 32  # threads of a GPU that run in step


def grey(images: Tensor) -> Tensor:
    """(n, c, height, width) -> (n, 1, height, width)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    luma = torch.mul(red, _GREY_WEIGHTS[0])
    luma.add_(green, alpha=_GREY_WEIGHTS[1]).add_(blue, alpha=_GREY_WEIGHTS[2])
    return luma[:, None]


def grayscale(images: Tensor) -> Tensor:
    """Grey, in as many channels as before."""
    return images.copy_(grey(images))


def brightness(images: Tensor, factors: Tensor) -> Tensor:
    """0: black, 1: as it is."""
    return images.mul_(_per_image(factors)).clamp_(0, 1)


def contrast(images: Tensor, factors: Tensor) -> Tensor:
    """0: the image's mean grey, 1: as it is."""
    mean = grey(images.mean((2, 3), keepdim=True))
    return (
        images.mul_(_per_image(factors))
        .add_(mean.mul_(_per_image(1 - factors)))
        .clamp_(0, 1)
    )


def saturation(images: Tensor, factors: Tensor) -> Tensor:
    """0: grey, 1: as it is."""
    if images.shape[1] == 1:
        return images
    return torch.lerp(grey(images), images, _per_image(factors), out=images).clamp_(
        0, 1
    )


def hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turns the hue; -0.5 and 0.5 give the opposite colour.

    This is a turn in HSV, without computing HSV. The least and the greatest channel of a colour
    stay. Its place on a circle of six sixths says which channel is greatest, which is least, and
    how far the third is between.
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    most = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    span = most.sub_(least)  # 0 for grey
    divisor = span.clamp_min(1e-12)

    # The place on the circle, from 0 to 6: red is at 0, green at 2, blue at 4.
    if_green_is_most = blue.sub(red).div_(divisor).add_(2)
    if_blue_is_most = red.sub(green).div_(divisor).add_(4)
    position = torch.where(green >= blue, if_green_is_most, if_blue_is_most)
    if_red_is_most = green.sub(blue).div_(divisor)
    position = torch.where((red >= green) & (red >= blue), if_red_is_most, position)
    position.add_(turns[:, None, None] * 6)
    position.sub_(torch.floor(position / 6).mul_(6))

    # Each channel is sign * |place - middle| + offset of the span above the least one, between 0
    # and 1.
    ramps = ((3, 1, -1), (2, -1, 2), (4, -1, 2))
    for channel, (middle, sign, offset) in enumerate(ramps):
        height = position.sub(middle).abs_().mul_(sign).add_(offset).clamp_(0, 1)
        torch.addcmul(least, span, height, out=images[:, channel])
    return images


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Leaves as many tones as so many bits can tell apart."""
    levels = _per_image(torch.exp2(bits))
    return images.clamp_max_(_BELOW_1).mul_(levels).floor_().div_(levels)


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Inverts all values from the threshold up."""
    # 1 from the threshold up, else 0, as float32.
    above = torch.empty_like(images)
    torch.ge(images, _per_image(thresholds), out=above)
    return images.sub_(above).abs_()  # exactly x or 1 - x


def sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """0: blurred, 1: as it is, 2: sharper. The outermost pixels stay."""
    height, width = images.shape[2:]
    # A smaller image has no pixel that is not at the border.
    if height < 3 or width < 3:
        return images
    inner = images[:, :, 1:-1, 1:-1]
    # The kernel is 5 in the middle and 1 around it, divided by 13: the sum of all nine pixels, and
    # 4 times the middle.
    if not pixels.on_cpu(images.device):
        # lerp with the mean of all nine, whose share of a blurred pixel is 9 / 13.
        share = torch.rsub(factors, 9 / 13, alpha=9 / 13)
        inner.lerp_(functional.avg_pool2d(images, 3, 1), _per_image(share))
        return images.clamp_(0, 1)
    of_rows = images[:, :, :-2] + images[:, :, 1:-1]
    of_rows += images[:, :, 2:]
    blurred = of_rows[..., :-2] + of_rows[..., 1:-1]
    blurred += of_rows[..., 2:]  # the sum of nine
    blurred.add_(inner, alpha=4).div_(13)
    inner.add_(blurred.sub_(inner).mul_(1 - _per_image(factors)))
    return images.clamp_(0, 1)


def autocontrast(images: Tensor) -> Tensor:
    """Stretches each channel to the range 0 to 1; a channel of a single tone stays."""
    least = images.amin((2, 3), keepdim=True)
    span = images.amax((2, 3), keepdim=True).sub_(least)
    is_flat = span == 0
    least.masked_fill_(is_flat, 0)
    span.masked_fill_(is_flat, 1)
    return images.sub_(least).div_(span)


def equalize(images: Tensor) -> Tensor:
    """Evens out how often each of 256 tones occurs in each channel, by Pillow's rule.

    Also 16 bits become 256 tones.
    """
    count, channels, height, width = images.shape
    area = height * width
    tones = images.mul_(256 - 1e-3).to(torch.int64).view(count, channels, area)
    histogram = _histogram(tones)
    cumulative = histogram.cumsum(2)
    # Pillow does not count the last tone that occurs. From this tone on the sum is `area`, which
    # the modulo makes 0.
    step = (cumulative % area).amax(2, keepdim=True) // 255
    pixels_below = cumulative.sub_(histogram)
    table = (
        pixels_below.add_(step // 2)
        .div_(step.clamp_min(1), rounding_mode="floor")
        .clamp_max_(255)
    )
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return table.mul(1 / 255).gather(2, tones).view_as(images)


def _histogram(tones: Tensor) -> Tensor:
    """(n, c, pixels) of 256 tones -> (n, c, 256), how often each occurs.

    On a GPU, neighbouring pixels count in tables of their own: in a flat image all of them would
    add to one number, one after the other.
    """
    count, channels, area = tones.shape
    shape: tuple[int, ...] = (count, channels, 256)
    if not pixels.on_cpu(tones.device):
        lanes = _LANES
        while area % lanes:
            lanes //= 2
        shape = (*shape, lanes)
        tones = tones.view(count, channels, area // lanes, lanes)
    one = torch.ones((), dtype=torch.int32, device=tones.device)
    histogram = torch.zeros(shape, dtype=torch.int32, device=tones.device)
    histogram.scatter_add_(2, tones, one.expand_as(tones))
    return histogram if histogram.ndim == 3 else histogram.sum(3)


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Moves pixels; takes the nearest pixel, and black from outside.

    A matrix (n, 6) a b c d e f says where an output pixel (x', y') comes from: x = a x' + b y' + c
    and y = d x' + e y' + f. x' and y' are in pixels from the middle, x and y from -1 to 1, as in
    grid_sample.
    """
    height, width = images.shape[2:]
    x = torch.arange(
        -(width - 1) / 2, width / 2, dtype=torch.float32, device=images.device
    )
    y = torch.arange(
        -(height - 1) / 2, height / 2, dtype=torch.float32, device=images.device
    )
    # (n, x and y, 1) each.
    slope_x, slope_y, offset = matrices.view(-1, 2, 3, 1).unbind(2)
    along_rows = (slope_x * x)[:, :, None]
    along_columns = torch.addcmul(offset, slope_y, y)[:, :, :, None]
    grid = along_rows + along_columns  # (n, x and y, height, width)
    grid = grid.permute(0, 2, 3, 1)
    return functional.grid_sample(
        images, grid, mode="nearest", padding_mode="zeros", align_corners=False
    )


def gaussian_blur(images: Tensor, sigmas: Tensor, radius: int) -> Tensor:
    """Blurs along rows, then along columns, with reflected borders.

    Args:
        images: (n, c, height, width).
        sigmas: (n,) in pixels.
        radius: the kernel has 2 * radius + 1 taps; smaller than both sides.
    """
    taps = torch.arange(radius + 1, dtype=torch.float32, device=images.device)
    # (n, radius + 1), from the middle outwards.
    weights = torch.exp(-0.5 * (taps / sigmas[:, None]) ** 2)
    weights = weights / (2 * weights.sum(1, keepdim=True) - weights[:, :1])
    # A depthwise convolution is one kernel on a GPU, and on a CPU slower than adding shifted images
    # up.
    blur = _by_shifts if pixels.on_cpu(images.device) else _by_convolution
    for dimension in (3, 2):
        images = blur(images, weights, radius, dimension)
    return images


def _padded(images: Tensor, radius: int, dimension: int) -> Tensor:
    padding = (radius, radius, 0, 0) if dimension == 3 else (0, 0, radius, radius)
    return functional.pad(images, padding, mode="reflect")


def _by_shifts(images: Tensor, weights: Tensor, radius: int, dimension: int) -> Tensor:
    padded = _padded(images, radius, dimension)
    length = images.shape[dimension]
    weight = weights[:, :, None, None, None].unbind(1)
    out = padded.narrow(dimension, radius, length) * weight[0]
    pair = torch.empty_like(out)
    for tap in range(1, radius + 1):
        before = padded.narrow(dimension, radius - tap, length)
        after = padded.narrow(dimension, radius + tap, length)
        out.addcmul_(torch.add(before, after, out=pair), weight[tap])
    return out


def _by_convolution(
    images: Tensor, weights: Tensor, radius: int, dimension: int
) -> Tensor:
    count, channels, height, width = images.shape
    kernels = torch.cat([weights.flip(1)[:, :-1], weights], 1)  # (n, taps)
    kernels = kernels.repeat_interleave(channels, 0)
    shape = (
        (count * channels, 1, 1, -1) if dimension == 3 else (count * channels, 1, -1, 1)
    )
    padded = _padded(images, radius, dimension)
    planes = padded.reshape(1, count * channels, *padded.shape[2:])
    blurred = functional.conv2d(planes, kernels.view(shape), groups=count * channels)
    return blurred.view(count, channels, height, width)


def _per_image(values: Tensor) -> Tensor:
    """(n,) -> (n, 1, 1, 1)."""
    return values[:, None, None, None]
