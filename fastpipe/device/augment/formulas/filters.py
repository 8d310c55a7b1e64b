"""Filters: each pixel becomes a sum of its neighbours.

Source of the formulas: kornia 0.9, `kornia.filters` and `kornia.enhance.sharpness`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fastpipe.device.augment import effects
from fastpipe.device.augment.formulas.formula import Formula, Tensors, of_names


def sharpness(module: Any) -> Formula:
    """RandomSharpness: 0 blurs, 1 changes nothing, more sharpens; the outermost pixels stay."""

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        images.clamp_(0, 1)
        return effects.sharpness(images, tensors["sharpness"])

    return Formula(of_names("sharpness"), change, least_size=(3, 3))
