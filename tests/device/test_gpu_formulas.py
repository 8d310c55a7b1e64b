"""Our formulas of kornia's modules on a GPU: what a CPU gives, in few kernels, and no wait for the device."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from support.batches import triton_passes
from support.batches.augment_batches import differing, photos, tensors_of
from support.batches.formula_cases import CASES
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench.gpu.training import augments
from fastpipe import Augment

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_what_a_cpu_gives(name: str) -> None:
    augment = Augment(CASES[name].make(p=0.7), mean=None, std=None)
    images = photos(12, 33, 40)
    on_cpu = augment(images, batch=1)
    on_gpu = augment(images.to("cuda"), batch=1)
    assert differing(on_gpu.cpu(), on_cpu) < 0.02


def test_a_colour_pass_gives_what_its_stages_give() -> None:
    pytest.importorskip("triton")
    triton_passes.compare_steps("cuda")
    triton_passes.compare_runs("cuda")
    triton_passes.compare_16_bits("cuda")


def test_four_modules_of_kornias_take_few_kernels_and_no_wait() -> None:
    pytest.importorskip("triton")
    augment = augments(224)["kornia"]
    count = 256
    images = photos(count, 224, 224).to("cuda")
    labels = torch.zeros(count, dtype=torch.int64, device="cuda")
    activities = [torch.profiler.ProfilerActivity.CUDA]
    # The first batches compile, and are looked at.
    for batch in range(4):
        plan = augment.plan(np.arange(count), (224, 224), seed=0, epoch=0, batch=batch)
        tensors = tensors_of(plan, "cuda")
        torch.cuda.synchronize()
        is_last = batch == 3
        with torch.profiler.profile(activities=activities) as profile:
            torch.cuda.set_sync_debug_mode("error" if is_last else "default")
            try:
                augment.carry_out(images, labels, plan, tensors)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
    kernels = 0
    for event in profile.events() or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels += 1
    assert 0 < kernels <= 12
