"""Tests of the resizing of masks: the pixels that torchvision's v2 gives for tv_tensors.Mask, all of them."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastpipe import _engine
from fastpipe.plan.crop_boxes import Crops, plan_crops
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize

CASES = 10_000


@pytest.fixture(scope="module")
def v2(torchvision: ModuleType) -> Any:
    import torchvision.transforms.v2 as v2

    return v2


def numbered(height: int, width: int, dtype: type) -> NDArray[Any]:
    """Neighbours differ, and of int32 no two pixels are equal: a wrong pixel is a wrong id."""
    if dtype is np.int32:
        return np.arange(height * width, dtype=np.int32).reshape(height, width) % 65536
    return (np.arange(height)[:, None] * 37 + np.arange(width) * 101).astype(np.uint8)


def torchvisions(v2: Any, mask: NDArray[Any], crop: Crop, size: tuple[int, int], crops: Crops, flip: bool) -> Any:
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
    mine = _engine.resize_mask(mask, *size, tuple(crops.boxes[0].tolist()), tuple(crops.bounds[0].tolist()), flip)
    expected = torchvisions(v2, mask, crop, size, crops, flip)
    assert mine.dtype == expected.dtype == dtype
    assert mine.shape == expected.shape == size
    return int((mine != expected).sum())


def test_no_pixel_differs_in_ten_thousand_cases(v2: Any) -> None:
    random = np.random.default_rng(0)
    sides = np.exp(random.uniform(0, math.log(400), (CASES, 4))).astype(int)
    sides[::5, 2:] = np.maximum(sides[::5, :2] // 2, 1)  # exactly half, which torch has a way of its own for
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
        crop: Crop = (RandomResizedCrop(), CenterCrop(resize=int(random.integers(1, 400))), Resize())[number % 3]
        dtype = (np.uint8, np.int32)[number // 3 % 2]
        one = slice(number // 3, number // 3 + 1)
        crops = Crops(many.boxes[one], many.bounds[one], (out_height, out_width)) if number % 3 == 0 else None
        wrong += differing(v2, (height, width), (out_height, out_width), crop, number, dtype, crops)
    assert wrong == 0


SIDE = st.integers(1, 700)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.tuples(SIDE, SIDE),
    size=st.tuples(SIDE, SIDE),
    crop=st.one_of(st.just(RandomResizedCrop()), st.just(Resize()), SIDE.map(lambda side: CenterCrop(resize=side))),
    number=st.integers(0, 2**31),
)
def test_no_pixel_differs_for_any_shape(
    v2: Any, shape: tuple[int, int], size: tuple[int, int], crop: Crop, number: int
) -> None:
    assert differing(v2, shape, size, crop, number) == 0


@pytest.mark.parametrize("shape", [(1, 30_000), (30_000, 1), (1, 65_535)])
@pytest.mark.parametrize("crop", [RandomResizedCrop(scale=(0.9, 1.0)), Resize(), CenterCrop(resize=224)])
def test_long_masks_are_torchvisions(v2: Any, shape: tuple[int, int], crop: Crop) -> None:
    """float32 has no room for every product of their lengths: the rounding is torch's."""
    if isinstance(crop, CenterCrop):
        shape = max(shape[0] // 300, 1), max(shape[1] // 300, 1)
    assert differing(v2, shape, (224, 3), crop, 1) == 0
    assert differing(v2, shape, (3, 224), crop, 2) == 0


def test_ids_are_never_averaged() -> None:
    mask = np.array([[0, 255], [255, 0]], dtype=np.uint8)
    assert set(np.unique(_engine.resize_mask(mask, 33, 45)).tolist()) == {0, 255}


@pytest.mark.parametrize(
    ("box", "bounds"),
    [
        ((0.0, 0.0, 9.0, 4.0), None),
        ((-1.0, 0.0, 4.0, 4.0), None),
        ((0.0, 0.0, float("nan"), 4.0), None),
        ((0.0, 0.0, 4.0, 4.0), (0, 0, 3, 3)),
        ((0.0, 0.0, 4.0, 4.0), (0, 0, 2**31 - 1, 4)),
    ],
)
def test_crops_outside_are_refused(box: tuple[float, ...], bounds: tuple[int, ...] | None) -> None:
    with pytest.raises(ValueError, match="the crop is not inside the image"):
        _engine.resize_mask(np.zeros((4, 8), np.uint8), 2, 2, box, bounds)  # type: ignore[arg-type]


def test_a_box_of_nearly_nothing_gives_a_pixel_of_the_mask() -> None:
    mask = numbered(5, 7, np.uint8)
    for length in (1e-9, 1e-300):
        out = _engine.resize_mask(mask, 4, 4, (3.0, 2.0, length, length), (0, 0, 7, 5))
        assert set(np.unique(out).tolist()) <= set(np.unique(mask).tolist())
