"""Tests of the planned crops: torchvision's rules, always inside the picture."""

from __future__ import annotations

import itertools
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.running.crop_distribution import assert_distributed_as_torchvisions

from fastpipe.errors import ConfigError
from fastpipe.plan.crop_boxes import Crops, plan_crops, random_resized
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize


def planned(
    crop: Crop,
    sizes: list[tuple[int, int]],
    *,
    size: tuple[int, int] = (224, 224),
    seed: int = 0,
    epoch: int = 0,
    first_sample: int = 0,
) -> Crops:
    widths, heights = np.array(sizes, dtype=np.int64).T
    samples = first_sample + np.arange(len(sizes))
    return plan_crops(crop, size, widths, heights, seed=seed, epoch=epoch, samples=samples)


@pytest.mark.parametrize(
    ("width", "height", "crop"),
    [
        (500, 375, RandomResizedCrop()),
        (375, 500, RandomResizedCrop(scale=(0.3, 0.9), ratio=(0.5, 2.0))),
        (900, 300, RandomResizedCrop()),  # many tries fail, some crops are the fallback
        (64, 64, RandomResizedCrop(scale=(1.0, 1.0))),
        (800, 200, RandomResizedCrop(scale=(0.5, 1.0))),
    ],
)
def test_random_crops_are_distributed_as_torchvisions(
    torchvision: ModuleType, width: int, height: int, crop: RandomResizedCrop
) -> None:
    assert_distributed_as_torchvisions(torchvision, width, height, crop, draws=3000)


def test_every_place_of_a_crop_is_as_likely() -> None:
    crop = RandomResizedCrop(scale=(9 / 25, 9 / 25), ratio=(1, 1))  # 3 x 3 of 5 x 5: nine places
    boxes = planned(crop, [(5, 5)] * 9000).boxes
    assert (boxes[:, 2:] == 3).all()
    places, counts = np.unique(boxes[:, :2], axis=0, return_counts=True)
    assert places.tolist() == [[x, y] for x in range(3) for y in range(3)]
    assert ((counts > 850) & (counts < 1150)).all()


def test_extreme_pictures_get_torchvisions_middle(torchvision: ModuleType) -> None:
    crop = RandomResizedCrop(scale=(0.99, 1.0))  # never fits
    get_params = torchvision.transforms.RandomResizedCrop.get_params
    for width, height in [
        (1000, 3),
        (3, 1000),
        (100, 1),
        (1, 100),
        (333, 10),
        (10, 333),
        (2000, 301),
    ]:
        picture = torch.empty((3, height, width), dtype=torch.uint8)
        top, left, h, w = get_params(picture, list(crop.scale), list(crop.ratio))
        for box in planned(crop, [(width, height)] * 5).boxes:
            assert box.tolist() == [left, top, w, h]


def test_a_picture_of_allowed_ratio_that_nothing_fits_is_taken_whole() -> None:
    crop = RandomResizedCrop(scale=(1e-9, 1e-9))  # rounds to nothing
    assert planned(crop, [(40, 36)]).boxes.tolist() == [[0, 0, 40, 36]]


crops = st.one_of(
    st.builds(
        lambda low, more, ratio, wider: RandomResizedCrop(
            scale=(low, min(low + more, 1.0)), ratio=(ratio, ratio * wider)
        ),
        st.floats(1e-4, 1.0),
        st.floats(0, 1),
        st.floats(0.05, 10),
        st.floats(1, 10),
    ),
    st.integers(1, 600).map(lambda resize: CenterCrop(resize=resize)),
    st.just(Resize()),
)
sides = st.one_of(st.integers(1, 12), st.integers(1, 3000), st.integers(60000, 65535))


@given(crops, st.lists(st.tuples(sides, sides), min_size=1, max_size=20), st.integers(0, 2**64 - 1))
def test_crops_lie_inside_the_picture(crop: Crop, sizes: list[tuple[int, int]], seed: int) -> None:
    out = min(crop.resize, 224) if isinstance(crop, CenterCrop) and crop.resize else 224
    plan = planned(crop, sizes, size=(out, max(1, out - 3)), seed=seed)
    assert plan.boxes.dtype == np.float64
    assert plan.bounds.dtype == np.int32
    pictures = np.array(sizes)
    start, extent = plan.bounds[:, :2], plan.bounds[:, 2:]
    assert (start >= 0).all()
    assert (extent >= 1).all()
    assert (start + extent <= pictures).all()
    assert (plan.boxes[:, 2:] > 0).all()
    assert (plan.boxes[:, :2] >= start - 1e-6).all()
    assert (plan.boxes[:, :2] + plan.boxes[:, 2:] <= start + extent + 1e-6).all()


def test_random_crops_are_cropped_before_the_resize() -> None:
    plan = planned(RandomResizedCrop(), [(300, 200)] * 20)
    assert np.array_equal(plan.boxes, plan.bounds)


def test_center_crops_are_torchvisions(torchvision: ModuleType) -> None:
    resized_size = torchvision.transforms.functional._compute_resized_output_size
    pictures = [(500, 375), (375, 500), (256, 256), (257, 999), (1, 5000), (224, 224), (33, 32)]
    outputs = [(256, (224, 224)), (224, (224, 224)), (300, (100, 291)), (64, (33, 64))]
    for (width, height), (resize, size) in itertools.product(pictures, outputs):
        new_height, new_width = resized_size((height, width), [resize])
        top, left = round((new_height - size[0]) / 2.0), round((new_width - size[1]) / 2.0)
        plan = planned(CenterCrop(resize=resize), [(width, height)], size=size)
        scale_x, scale_y = width / new_width, height / new_height
        expected = [left * scale_x, top * scale_y, size[1] * scale_x, size[0] * scale_y]
        assert plan.boxes[0].tolist() == pytest.approx(expected, rel=1e-12), (
            width,
            height,
            resize,
            size,
        )
        assert plan.bounds.tolist() == [[0, 0, width, height]]


def test_resize_takes_the_whole_picture() -> None:
    plan = planned(Resize(), [(7, 9), (300, 1)])
    assert plan.boxes.tolist() == plan.bounds.tolist() == [[0, 0, 7, 9], [0, 0, 300, 1]]


@pytest.mark.parametrize(
    ("make", "name"),
    [(RandomResizedCrop, "scale="), (CenterCrop, "resize="), (Resize, "interpolation=")],
)
def test_a_size_is_no_option_of_a_crop(make: Any, name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{make.__name__}: expected {name}.*, got 224\. .*size=224"
    ):
        make(224)
    assert pickle.loads(pickle.dumps(make())) == make()  # noqa: S301 (our own bytes)


def test_crops_that_are_planned_together_are_those_of_each_alone() -> None:
    """Of other scales, ratios and seeds; some fit at once, some after many tries, some never."""
    crops = [
        (RandomResizedCrop(scale=(0.4, 1.0)), 3),
        (RandomResizedCrop(scale=(0.05, 0.4)), 4),
        (RandomResizedCrop(scale=(0.05, 0.4)), 2**63),
        (RandomResizedCrop(scale=(0.9, 1.0), ratio=(3.0, 4.0)), 3),
    ]
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 900, (500, 2))
    samples = rng.permutation(10_000)[:500]
    together = random_resized(crops, *sizes.T, epoch=2, samples=samples)
    assert together.shape == (4, 500, 4)
    for (crop, seed), boxes in zip(crops, together, strict=True):
        alone = plan_crops(crop, (96, 96), *sizes.T, seed=seed, epoch=2, samples=samples)
        assert np.array_equal(boxes, alone.bounds)
        one = plan_crops(crop, (96, 96), *sizes[7:8].T, seed=seed, epoch=2, samples=samples[7:8])
        assert np.array_equal(boxes[7:8], one.bounds)
    assert not np.array_equal(together[1], together[2])
