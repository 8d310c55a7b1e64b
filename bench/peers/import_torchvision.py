"""torchvision and its transforms, also beside a torch that its compiled operators were not built for.

Its import registers stand-ins for these two operators and fails where they are unknown. Nothing here needs them.
"""

from __future__ import annotations

import sys

import torch

try:
    import torchvision
except RuntimeError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    import torchvision
from torchvision.transforms import Compose, PILToTensor, RandomHorizontalFlip, RandomResizedCrop, v2

__all__ = ["torchvision", "training_transform", "training_transform_v2"]


def training_transform(size: int) -> Compose:
    """The task as torchvision's recipes write it, up to the uint8 tensor."""
    return Compose([RandomResizedCrop(size), RandomHorizontalFlip(), PILToTensor()])


def training_transform_v2(size: int) -> v2.Compose:
    """The same of v2, for Pillow's images and for tensors."""
    return v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), v2.ToImage()])
