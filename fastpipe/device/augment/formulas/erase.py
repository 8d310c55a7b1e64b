"""RandomErasing: a box of each image gets one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fastpipe.device.augment import effects
from fastpipe.device.augment.formulas.formula import (
    Formula,
    Parameters,
    Prepared,
    Tensors,
)
from fastpipe.device.augment.pixel_steps import Array, Code, PixelStep
from fastpipe.device.augment.pixels import inside


def erasing(module: Any) -> Formula:
    """RandomErasing, from kornia's corners and sides of the boxes."""
    is_same_on_batch = module.same_on_batch

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        left = parameters["xs"]
        top = parameters["ys"]
        right = left + parameters["widths"]
        bottom = top + parameters["heights"]
        # Whole numbers, as kornia draws them.
        float_boxes = torch.stack([top, left, bottom, right], dim=1)
        boxes_tlbr = float_boxes.to(torch.int64)
        if is_same_on_batch:
            first_box = boxes_tlbr[:1]
            boxes_tlbr = first_box.expand_as(boxes_tlbr)
        return Prepared({"boxes": boxes_tlbr, "values": parameters["values"]})

    def change(images: Tensor, tensors: Tensors, host: None) -> Tensor:
        height, width = images.shape[2:]
        in_box = inside(tensors["boxes"], height, width)  # (n, height, width)
        in_box_of_channels = in_box[:, None]
        values = effects.per_image(tensors["values"])
        return torch.where(in_box_of_channels, values, images)

    def steps(arrays: Mapping[str, Array], host: None) -> list[PixelStep]:
        top, left, bottom, right = arrays["boxes"].T
        values = arrays["values"]
        step = PixelStep(Code.ERASE, (top, left, bottom, right, values))
        return [step]

    return Formula(prepare, change, memory_format=None, steps=steps)
