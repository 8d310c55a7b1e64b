"""Geometry: where each pixel of the result comes from.

Source of the formulas: kornia 0.9, `kornia.geometry.transform`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fastpipe.device.augment.formulas.formula import Formula, Tensors, of_names


def horizontal_flip(module: Any) -> Formula:
    """RandomHorizontalFlip."""
    return _flip(dimension=3)


def vertical_flip(module: Any) -> Formula:
    """RandomVerticalFlip."""
    return _flip(dimension=2)


def _flip(dimension: int) -> Formula:
    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        return images.flip(dimension)

    return Formula(of_names(), change, memory_format=None)
