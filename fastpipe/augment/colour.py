"""Images and a number for each -> the images in other colours, as torchvision changes them.

All take images (n, c, height, width) float32 in [0, 1], of 3 channels or 1, which they may overwrite, and (n,) float32.
Images of 1 channel have no colour: for them grey is the image itself, and only brightness and contrast change it.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GREY = (0.2989, 0.587, 0.114)  # of red, green and blue: ITU-R 601-2 luma, as Pillow and torchvision have it


def grey(images: Tensor) -> Tensor:
    """(n, c, height, width) -> (n, 1, height, width); of 1 channel: the same."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return torch.mul(red, _GREY[0]).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2])[:, None]


def grayscale(images: Tensor) -> Tensor:
    """Grey, in as many channels."""
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
    """Turns the hue; -0.5 and 0.5 are the opposite colour.

    By way of HSV without making it: a colour has a least and a greatest channel, which stay, and a place on the circle
    of six sixths, on which each channel is greatest, least or on its way between.
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


def _each(values: Tensor) -> Tensor:
    """(n,) -> (n, 1, 1, 1)."""
    return values[:, None, None, None]
