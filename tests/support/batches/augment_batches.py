"""Batches for the tests of augmentation, and what a plan's arrays are as tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fastpipe.device.augment import AugmentPlan


def photos(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Smooth coloured noise with grain: uint8 (count, 3, height, width) in channels_last. The last one is grey."""
    rng = np.random.default_rng([seed, count, height, width])
    coarse = torch.from_numpy(rng.random((count, 3, height // 6 + 2, width // 6 + 2)))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear").numpy()
    pixels = np.clip(smooth * 300 - 20 + rng.integers(-9, 10, smooth.shape), 0, 255).astype(
        np.uint8
    )
    if count > 1:
        pixels[-1] = pixels[-1, :1]
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))).permute(0, 3, 1, 2)


def tensors_of(plan: AugmentPlan, device: str = "cpu") -> dict[str, Tensor]:
    """What the loader would have moved to the device."""
    return {name: torch.from_numpy(array).to(device) for name, array in plan.arrays.items()}


def differing(one: Tensor, other: Tensor, by: float = 2e-3) -> float:
    """The share of values that are further apart than `by`."""
    assert one.shape == other.shape
    return float(((one - other).abs() > by).float().mean())
