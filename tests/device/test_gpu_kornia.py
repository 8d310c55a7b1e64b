"""kornia's modules on a GPU: what a CPU gives, and no wait for the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.batches.augment_batches import differing, photos, tensors_of
from support.batches.kornia_cases import CASES, k

from fastpipe import Augment

pytestmark = pytest.mark.gpu
SIZE = (32, 40)


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_what_a_cpu_gives(name: str) -> None:
    augment = Augment([CASES[name]()], mean=None, std=None)
    images = photos(12, *SIZE)
    here, there = augment(images, batch=1), augment(images.to("cuda"), batch=1)
    assert there.device.type == "cuda"
    assert differing(there.cpu(), here) < 0.02


@pytest.mark.parametrize(
    "module",
    [
        k.RandomAffine(15.0),
        k.RandomBrightness((0.5, 1.5)),
        k.RandomErasing(),
        k.RandomGaussianBlur((3, 3), (0.1, 2.0)),
        k.RandomGaussianNoise(std=0.1),
        k.RandomGrayscale(),
        k.RandomPlasmaShadow(),
        k.RandomRain(p=1.0),
        k.RandomSaltAndPepperNoise(p=1.0),
        k.RandomThinPlateSpline(p=1.0),
        k.RandomMixUpV2(),
        k.RandomCutMixV2(use_correct_lambda=True),
    ],
    ids=lambda module: type(module).__name__,
)
def test_the_host_never_waits(module: torch.nn.Module) -> None:
    augment = Augment([module], num_classes=12)
    images, labels = photos(12, 64, 64).to("cuda"), torch.arange(12, device="cuda")
    for batch in range(2):  # the first finds out what may go to the device
        plan = augment.plan(np.arange(12), (64, 64), seed=0, epoch=0, batch=batch)
        tensors = tensors_of(plan, "cuda")
        torch.cuda.set_sync_debug_mode("error" if batch else "default")
        try:
            augment.carry_out(images, labels, plan, tensors)
        finally:
            torch.cuda.set_sync_debug_mode("default")
