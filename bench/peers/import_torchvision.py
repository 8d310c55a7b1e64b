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
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
from torchvision.transforms import Compose, PILToTensor, RandomHorizontalFlip, RandomResizedCrop

__all__ = ["torchvision", "training_transform"]


def training_transform(size: int) -> Compose:
    """The task as torchvision's recipes write it, up to the uint8 tensor."""
    return Compose([RandomResizedCrop(size), RandomHorizontalFlip(), PILToTensor()])
