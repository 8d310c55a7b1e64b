"""The passes of Triton's kernels beside the same stages one by one, on a GPU or in Triton's interpreter.

For the interpreter Triton has to be imported with TRITON_INTERPRET=1, so a program of its own calls these functions.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from support.batches.formula_cases import CASES, colours, k
from torch import Tensor

from fastpipe import Augment
from fastpipe.device.augment import passes as augment_passes
from fastpipe.device.augment.formulas import find_formula

CHAINS: dict[str, Any] = {
    "flip, jitter, grey": lambda: [
        k.RandomHorizontalFlip(p=0.5),
        k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        k.RandomGrayscale(p=0.2),
    ],
    "jitter, blur, flips, erasing": lambda: [
        k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        k.RandomGaussianBlur((3, 3), (0.1, 2.0), p=0.5),
        k.RandomVerticalFlip(p=0.5),
        k.RandomErasing(p=0.5, value=0.3),
        k.RandomHorizontalFlip(p=0.5),
    ],
    "grey, blur": lambda: [
        k.RandomGrayscale(p=0.5),
        k.RandomGaussianBlur((5, 3), (0.1, 2.0), p=0.5),
    ],
    "jitter twice": lambda: [
        k.ColorJitter(0.4, 0.4, 0.4, 0.1),
        k.RandomSolarize(),
        k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0),
    ],
}


def compare_steps(device: str = "cpu") -> None:
    """Asserts that each formula that has pixel steps, or blurs, gives the same by the kernels."""
    for name, case in CASES.items():
        formula = find_formula(case.make(p=1.0))
        if formula is None or (formula.steps is None and formula.blur is None):
            continue
        for channels in (3,) if formula.blur is None else case.channels:
            for count, size in ((9, (12, 10)), (1, (37, 41))):
                module = case.make(p=0.7 if count > 1 else 1.0)
                images = _bytes_of(count, channels, *size).to(device)
                by_kernels, by_stages = _both([module], images, mean=None, std=None)
                difference = (by_kernels - by_stages).abs().max()
                assert difference < 1e-5, (name, channels, count)


def compare_runs(device: str = "cpu") -> None:
    """Asserts that neighbouring modules give the same in one pass, normalised, too."""
    images = _bytes_of(11, 3, 20, 24).to(device)
    for name, make in CHAINS.items():
        by_kernels, by_stages = _both(make(), images, mean=None, std=None)
        assert (by_kernels - by_stages).abs().max() < 1e-5, name
        # Divided by a deviation of 0.22.
        by_kernels, by_stages = _both(make(), images)
        assert (by_kernels - by_stages).abs().max() < 5e-5, name
        by_kernels, by_stages = _both(make(), images, dtype=torch.bfloat16)
        assert (by_kernels.float() - by_stages.float()).abs().max() < 0.02, name


def compare_16_bits(device: str = "cpu") -> None:
    """Asserts the same of uint16, and of large images, whose mean is a sum of many blocks."""
    generator = torch.Generator().manual_seed(1)
    for count, size in ((5, (8, 9)), (2, (70, 90))):
        levels = torch.randint(0, 65536, (count, 3, *size), generator=generator)
        images = levels.to(torch.uint16).contiguous(memory_format=torch.channels_last)
        images = images.to(device)
        # All eight bits leave values between two bytes as they are.
        modules = [*CHAINS["flip, jitter, grey"](), k.RandomPosterize((8, 8), p=1.0)]
        by_kernels, by_stages = _both(modules, images, mean=None, std=None)
        assert (by_kernels - by_stages).abs().max() < 1e-5, count


def _both(modules: list[Any], images: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Results by the kernels, and stage by stage; asserts that there was a pass."""
    launched = mock.Mock(wraps=augment_passes.change_images)
    with mock.patch.object(augment_passes, "change_images", launched):
        by_kernels = Augment(modules, **options)(images, seed=4)
    assert launched.called
    with mock.patch.object(augment_passes, "can_launch", return_value=False):
        by_stages = Augment(modules, **options)(images, seed=4)
    assert isinstance(by_kernels, Tensor)
    assert isinstance(by_stages, Tensor)
    assert by_kernels.dtype == by_stages.dtype
    assert by_kernels.is_contiguous(memory_format=torch.channels_last)
    return by_kernels, by_stages


def _bytes_of(count: int, channels: int, height: int, width: int) -> Tensor:
    levels = (colours(count, channels, height, width, seed=5) * 255).round()
    return levels.to(torch.uint8).contiguous(memory_format=torch.channels_last)
