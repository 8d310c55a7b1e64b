"""Images and a matrix for each -> sheared, shifted or turned images: nearest pixel, black outside, as torchvision's."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Matrices = NDArray[np.float64]


def shear_x(values: NDArray[np.float64], size: tuple[int, int]) -> Matrices:
    """(n,) tangents -> (n, 6) matrices; the upper left corner stays.

    A matrix a b c d e f says where an output pixel comes from: x = a x' + b y' + c, y = d x' + e y' + f, in pixels from
    the middle of the image.
    """
    return _matrices(values, b=values, c=values * size[0] / 2)


def shear_y(values: NDArray[np.float64], size: tuple[int, int]) -> Matrices:
    """The same the other way."""
    return _matrices(values, d=values, f=values * size[1] / 2)


def translate_x(pixels: NDArray[np.float64]) -> Matrices:
    """(n,) whole pixels to the right -> (n, 6) matrices."""
    return _matrices(pixels, c=-pixels)


def translate_y(pixels: NDArray[np.float64]) -> Matrices:
    """(n,) whole pixels down -> (n, 6) matrices."""
    return _matrices(pixels, f=-pixels)


def rotate(degrees: NDArray[np.float64]) -> Matrices:
    """(n,) degrees counter-clockwise around the middle -> (n, 6) matrices."""
    sine, cosine = np.sin(np.radians(degrees)), np.cos(np.radians(degrees))
    return _matrices(degrees, a=cosine, b=-sine, d=sine, e=cosine)


def _matrices(like: NDArray[np.float64], **entries: NDArray[np.float64]) -> Matrices:
    out = np.zeros((len(like), 6))
    out[:, 0] = out[:, 4] = 1
    for name, values in entries.items():
        out[:, "abcdef".index(name)] = values
    return out


def to_halves(matrices: Matrices, size: tuple[int, int]) -> Matrices:
    """The same moves, of pixels to places where the image reaches from -1 to 1, as grid_sample wants them."""
    height, width = size
    halves: Matrices = matrices * np.array([2 / width] * 3 + [2 / height] * 3)
    return halves


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Moves pixels.

    Args:
        images: (n, c, height, width) float32.
        matrices: (n, 6) float32; see shear_x and to_halves.
    """
    height, width = images.shape[2:]
    x = torch.arange(-(width - 1) / 2, width / 2, dtype=torch.float32, device=images.device)
    y = torch.arange(-(height - 1) / 2, height / 2, dtype=torch.float32, device=images.device)
    slope_x, slope_y, offset = matrices.view(-1, 2, 3, 1).unbind(2)  # (n, 2, 1) each
    # (n, 2, height, width): what x adds, the same in each row, and what y and the offset add.
    grid = (slope_x * x)[:, :, None] + torch.addcmul(offset, slope_y, y)[:, :, :, None]
    grid = grid.permute(0, 2, 3, 1)
    return functional.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)
