"""Masks and crops of them -> how many pixels of ours are others than those of torchvision's v2 on tv_tensors.Mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe import _engine
from fastpipe.plan.crop_boxes import Crops, plan_crops
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize


def numbered(height: int, width: int, dtype: type) -> NDArray[Any]:
    """Neighbours differ, and of int32 no two pixels are equal: a wrong pixel is a wrong id."""
    if dtype is np.int32:
        return np.arange(height * width, dtype=np.int32).reshape(height, width) % 65536
    return (np.arange(height)[:, None] * 37 + np.arange(width) * 101).astype(np.uint8)


def torchvisions(
    v2: Any, mask: NDArray[Any], crop: Crop, size: tuple[int, int], crops: Crops, flip: bool
) -> Any:
    """The same crop of a tv_tensors.Mask."""
    import torchvision.tv_tensors as tv_tensors

    taken = tv_tensors.Mask(torch.from_numpy(mask)[None])
    if isinstance(crop, RandomResizedCrop):
        x, y, width, height = map(int, crops.boxes[0])
        taken = v2.functional.resized_crop(taken, y, x, height, width, size)
    elif isinstance(crop, CenterCrop):
        taken = v2.CenterCrop(size)(v2.Resize(crop.resize)(taken))
    else:
        taken = v2.Resize(size)(taken)
    if flip:
        taken = v2.functional.horizontal_flip(taken)
    return taken[0].numpy()


def of_size(crop: Crop, size: tuple[int, int]) -> Crop:
    """torchvision fills with zeros what is cut beyond the edge; the loader refuses a resize that leads there."""
    if isinstance(crop, CenterCrop):
        assert crop.resize is not None
        return CenterCrop(resize=max(crop.resize, *size))
    return crop


def differing(
    v2: Any,
    shape: tuple[int, int],
    size: tuple[int, int],
    crop: Crop,
    number: int,
    dtype: type = np.uint8,
    crops: Crops | None = None,
) -> int:
    crop, flip = of_size(crop, size), number % 2 == 1
    mask = numbered(*shape, dtype)
    if crops is None:
        sides = np.array([shape[1]]), np.array([shape[0]])
        crops = plan_crops(crop, size, *sides, seed=3, epoch=0, samples=np.array([number]))
    mine = _engine.resize_mask(
        mask, *size, tuple(crops.boxes[0].tolist()), tuple(crops.bounds[0].tolist()), flip
    )
    expected = torchvisions(v2, mask, crop, size, crops, flip)
    assert mine.dtype == expected.dtype == dtype
    assert mine.shape == expected.shape == size
    return int((mine != expected).sum())


def differing_in_random_cases(v2: Any, cases: int) -> int:
    """The number of pixels that differ from torchvision's, in crops of all kinds, of sides up to 400."""
    random = np.random.default_rng(0)
    sides = np.exp(random.uniform(0, math.log(400), (cases, 4))).astype(int)
    sides[::5, 2:] = np.maximum(
        sides[::5, :2] // 2, 1
    )  # exactly half, which torch has a way of its own for
    # Planned at once, which is quicker: their draws and boxes do not depend on the size of the output.
    height_width = sides[::3, :2]
    many = plan_crops(
        RandomResizedCrop(),
        (1, 1),
        height_width[:, 1],
        height_width[:, 0],
        seed=3,
        epoch=0,
        samples=np.arange(len(height_width)),
    )
    wrong = 0
    for number, (height, width, out_height, out_width) in enumerate(sides.tolist()):
        crop: Crop = (
            RandomResizedCrop(),
            CenterCrop(resize=int(random.integers(1, 400))),
            Resize(),
        )[number % 3]
        dtype = (np.uint8, np.int32)[number // 3 % 2]
        one = slice(number // 3, number // 3 + 1)
        crops = (
            Crops(many.boxes[one], many.bounds[one], (out_height, out_width))
            if number % 3 == 0
            else None
        )
        wrong += differing(v2, (height, width), (out_height, out_width), crop, number, dtype, crops)
    return wrong
