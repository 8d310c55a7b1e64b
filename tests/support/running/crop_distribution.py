"""Random crops of a picture -> whether they are distributed as torchvision's."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crops import RandomResizedCrop


def ks_distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The greatest distance between two empirical distribution functions."""
    values = np.sort(np.concatenate([one, other]))
    below = [
        np.searchsorted(np.sort(sample), values, side="right") / len(sample)
        for sample in (one, other)
    ]
    return float(np.abs(below[0] - below[1]).max())


def features(boxes: NDArray[np.float64], width: int, height: int) -> dict[str, NDArray[np.float64]]:
    x, y, w, h = boxes.T
    return {
        "area": w * h / (width * height),
        "log ratio": np.log(w / h),
        "width": w,
        "height": h,
        "x": x / np.maximum(width - w, 1),
        "y": y / np.maximum(height - h, 1),
        "left": x,
        "top": y,
    }


def assert_distributed_as_torchvisions(
    torchvision: ModuleType, width: int, height: int, crop: RandomResizedCrop, *, draws: int
) -> None:
    """By the distances of Kolmogorov and Smirnov between the distributions of places, sizes and ratios."""
    import torch

    picture = torch.empty((3, height, width), dtype=torch.uint8)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        get_params = torchvision.transforms.RandomResizedCrop.get_params
        drawn = [get_params(picture, list(crop.scale), list(crop.ratio)) for _ in range(draws)]
    theirs = np.array([(left, top, w, h) for top, left, h, w in drawn], dtype=np.float64)
    widths, heights = np.full(draws, width), np.full(draws, height)
    ours = plan_crops(
        crop, (224, 224), widths, heights, seed=0, epoch=0, samples=np.arange(draws)
    ).boxes
    expected = features(theirs, width, height)
    for name, values in features(ours, width, height).items():
        # The critical value at a significance of about 1 in 10 million.
        assert ks_distance(values, expected[name]) < 2.85 * np.sqrt(2 / draws), name
