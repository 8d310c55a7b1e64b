"""merge_geometry: neighbouring modules that move pixels sample images once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import photos
from support.batches.formula_cases import k
from support.devices.launches import launches_of
from torch import Tensor

from fastpipe import Augment, ConfigError
from fastpipe.device.augment.operation import WarpRun

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = (40, 52)


def smooth(count: int = 6) -> Tensor:
    """Images of low waves, which lose little in a sampling."""
    y = torch.arange(SIZE[0])[:, None] / SIZE[0]
    x = torch.arange(SIZE[1]) / SIZE[1]
    phases = torch.arange(count)[:, None, None] * 0.4
    waves = []
    for channel in range(3):
        waves.append(torch.sin(4 * x + 3 * y * (channel - 1) + phases))
    return (torch.stack(waves, 1) * 100 + 128).to(torch.uint8)


def augmented(modules: list[Any], images: Tensor, **options: Any) -> Tensor:
    result = Augment(modules, mean=None, std=None, **options)(images, seed=2)
    assert isinstance(result, Tensor)
    return result


def runs_of(modules: list[Any], count: int = 20) -> list[tuple[int, int]]:
    augment = Augment(modules, merge_geometry=True)
    plan = augment.plan(np.arange(count), SIZE, seed=2, epoch=0, batch=0)
    return [(run.first, run.end) for run in plan.runs if isinstance(run, WarpRun)]


def rotation(**options: Any) -> Any:
    return k.RandomRotation(12.0, p=0.7, align_corners=False, **options)


def modules_of() -> list[Any]:
    return [
        k.RandomHorizontalFlip(p=0.5),
        rotation(),
        k.RandomAffine(0.0, (0.05, 0.05), (0.95, 1.05), p=0.8),
        k.RandomPerspective(0.2, p=0.8),
    ]


def test_the_images_are_moved_as_by_one_module_after_the_other() -> None:
    images = smooth()
    merged = augmented(modules_of(), images, merge_geometry=True)
    apart = augmented(modules_of(), images)
    assert merged.shape == apart.shape
    # At the border two samplings fade out twice.
    differences = (merged - apart).abs()
    assert differences.median() < 2e-3
    assert (differences > 0.1).float().mean() < 0.1
    assert not torch.equal(merged, apart)


@pytest.mark.parametrize("align_corners", [True, False])
def test_a_flip_and_a_warp_give_kornias_pixels(align_corners: bool) -> None:
    """A flip takes no share of neighbours, so the product is what both do."""
    modules = [
        k.RandomVerticalFlip(p=0.5),
        k.RandomAffine(25.0, (0.1, 0.1), (0.8, 1.2), p=0.8, align_corners=align_corners),
    ]
    images = photos(7, *SIZE)
    for batch in (images, images[:1]):
        merged = augmented(modules, batch, merge_geometry=True)
        assert (merged - augmented(modules, batch)).abs().max() < 1e-4


def test_what_is_sampled_alike_is_merged() -> None:
    flip = k.RandomHorizontalFlip()
    nearest = rotation(resample="nearest")
    assert runs_of(modules_of()) == [(0, 4)]
    assert runs_of([rotation(), k.RandomHue((-0.1, 0.1)), rotation()]) == []
    assert runs_of([rotation(), flip, nearest, flip, nearest]) == [(0, 2), (2, 5)]
    assert runs_of([flip, k.RandomVerticalFlip()]) == []
    assert runs_of([rotation()]) == []
    assert runs_of([flip, k.RandomElasticTransform(p=1.0)]) == []


def test_without_the_option_modules_stay_apart() -> None:
    augment = Augment(modules_of())
    plan = augment.plan(np.arange(8), SIZE, seed=2, epoch=0, batch=0)
    assert not [run for run in plan.runs if isinstance(run, WarpRun)]


def test_it_takes_fewer_kernels() -> None:
    images = torch.empty((64, 3, *SIZE), dtype=torch.uint8, device="meta")
    counts = []
    for merge_geometry in (True, False):
        augment = Augment(modules_of(), merge_geometry=merge_geometry)
        # Modules of others are looked at in the first two batches.
        for _ in range(3):
            kernels = launches_of(augment, images)
        counts.append(kernels.count("grid_sampler_2d"))
    assert counts == [1, 3]


def test_an_option_that_is_no_bool_is_refused() -> None:
    with pytest.raises(ConfigError, match="merge_geometry"):
        Augment(modules_of(), merge_geometry=1)  # type: ignore[arg-type]
