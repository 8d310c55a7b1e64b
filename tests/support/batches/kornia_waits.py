"""kornia's modules on a simulated GPU -> what the host waited for, by module."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from support.batches.augment_batches import photos, tensors_of
from support.batches.kornia_cases import CASES, MIXING_CASES
from support.devices.simulated_gpu import Gpu, simulated

from fastpipe import Augment
from fastpipe.device.augment import AugmentPlan


def planned(
    name: str, size: tuple[int, int], count: int, batch: int
) -> tuple[Augment, AugmentPlan]:
    """The augmentation of one module, and its plan of a batch."""
    augment = Augment([(CASES | MIXING_CASES)[name]()], mean=None, std=None, num_classes=5)
    return augment, augment.plan(
        np.arange(count) + batch * count, size, seed=0, epoch=0, batch=batch
    )


def carried_out(
    gpu: Gpu, augment: Augment, plan: AugmentPlan, size: tuple[int, int], count: int
) -> torch.Tensor:
    """The images of a batch; what the host waited for is in gpu.waits."""
    images = photos(count, *size).to("cuda:0")
    labels = torch.zeros(count, dtype=torch.int64, device="cuda:0")
    tensors = tensors_of(plan, "cuda:0")
    gpu.waits.clear()
    return augment.carry_out(images, labels, plan, tensors)[0]


def waits_of(names: Iterable[str], size: tuple[int, int], count: int) -> dict[str, list[str]]:
    """The waits and races of the modules that have any."""
    # Planning beside a simulated GPU would take several times as long.
    plans = {name: planned(name, size, count, batch=1) for name in names}
    noted = {}
    with simulated() as gpu:
        for name, (augment, plan) in plans.items():
            if name == "RandomJPEG":
                carried_out(
                    gpu, augment, plan, size, count
                )  # kornia keeps what it needs on each device
            carried_out(gpu, augment, plan, size, count)
            if gpu.waits or gpu.races:
                noted[name] = [*gpu.waits, *gpu.races]
            gpu.races.clear()
    return noted
