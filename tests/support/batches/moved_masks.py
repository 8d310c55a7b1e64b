"""Masks, and where images are, after a module of kornia: on the CPU or on a simulated GPU."""

from __future__ import annotations

import numpy as np
import torch
from support.batches.augment_batches import tensors_of
from support.batches.kornia_cases import CASES, k
from support.devices.simulated_gpu import Gpu
from torch import Tensor

from fastpipe import Augment
from fastpipe.device.augment import AugmentPlan
from fastpipe.device.augment.kornia_modules import movable

SIZE = (32, 40)
MOVING = [
    name for name, make in CASES.items() if "mask" in movable(make()) and "Sequential" not in name
]
OURS = {
    "randaugment": lambda: Augment.randaugment(),
    "mixup": lambda: Augment(mixup=0.3, num_classes=2),
    "cutmix": lambda: Augment(cutmix=1.0, num_classes=2),
}


def keyed(name: str) -> Augment:
    """An augmentation that moves the masks, too."""
    return Augment(
        k.AugmentationSequential(CASES[name](), data_keys=["input", "mask"]), mean=None, std=None
    )


def bare(name: str) -> Augment:
    """An augmentation of images alone."""
    return OURS[name]() if name in OURS else Augment(CASES[name](), mean=None, std=None)


def ids(count: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Masks of random numbers; those of int32 are multiples of 300."""
    numbers = torch.randint(0, 200, (count, *SIZE), generator=torch.Generator().manual_seed(0))
    return (numbers * (300 if dtype == torch.int32 else 1)).to(dtype)


def plan_of(augment: Augment, count: int) -> AugmentPlan:
    """The plan of a first batch."""
    return augment.plan(np.arange(count), SIZE, seed=0, epoch=0, batch=0)


def moved(
    augment: Augment, masks: Tensor, plan: AugmentPlan | None = None, gpu: Gpu | None = None
) -> Tensor:
    """The masks after a batch of black images; on a simulated GPU, the host waits for nothing."""
    device = "cpu" if gpu is None else "cuda:0"
    plan = plan_of(augment, len(masks)) if plan is None else plan
    tensors = tensors_of(plan, device)
    images = torch.zeros(len(masks), 3, *SIZE, dtype=torch.uint8, device=device)
    labels = torch.zeros(len(masks), dtype=torch.int64, device=device)
    masks = masks.to(device)
    if gpu is not None:
        gpu.waits.clear()
    augment.carry_out(images, labels, plan, tensors)
    result = augment.move_masks(masks, plan, tensors)
    if gpu is not None:
        assert gpu.waits == []
        assert result.device.type == "cuda"
    return result


def shown_after(
    augment: Augment, shown: Tensor, plan: AugmentPlan | None = None, gpu: Gpu | None = None
) -> Tensor:
    """Where images are, after a batch; on a simulated GPU, the host waits for nothing."""
    device = "cpu" if gpu is None else "cuda:0"
    plan = plan_of(augment, len(shown)) if plan is None else plan
    tensors = tensors_of(plan, device)
    shown = shown.to(device)
    if gpu is not None:
        gpu.waits.clear()
    result = augment.move_shown(shown, plan, tensors)
    if gpu is not None:
        assert gpu.waits == []
        assert result.device.type == "cuda"
    return result
