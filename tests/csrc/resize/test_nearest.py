"""Tests of the resizing of masks: the pixels that torchvision's v2 gives for tv_tensors.Mask, all of them."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.pictures.torchvision_masks import differing, differing_in_random_cases, numbered

from fastpipe import _engine
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def v2(torchvision: ModuleType) -> Any:
    import torchvision.transforms.v2 as v2

    return v2


def test_no_pixel_differs_in_random_cases(v2: Any) -> None:
    assert differing_in_random_cases(v2, 400) == 0


def test_long_masks_are_torchvisions(v2: Any) -> None:
    """float32 has no room for every product of their lengths: the rounding is torch's."""
    crops: list[Crop] = [RandomResizedCrop(scale=(0.9, 1.0)), Resize(), CenterCrop(resize=224)]
    for shape, crop in itertools.product([(1, 30_000), (30_000, 1), (1, 65_535)], crops):
        if isinstance(crop, CenterCrop):
            shape = max(shape[0] // 300, 1), max(shape[1] // 300, 1)
        assert differing(v2, shape, (224, 3), crop, 1) == 0, (shape, crop)
        assert differing(v2, shape, (3, 224), crop, 2) == 0, (shape, crop)


def test_crops_outside_are_refused() -> None:
    inside = (0, 0, 4, 4)
    for box, bounds in [
        ((0, 0, 9, 4), None),
        ((-1, 0, 4, 4), None),
        ((0, 0, float("nan"), 4), None),
        (inside, (0, 0, 3, 3)),
        (inside, (0, 0, 2**31 - 1, 4)),
    ]:
        with pytest.raises(ValueError, match="the crop is not inside the image"):
            _engine.resize_mask(np.zeros((4, 8), np.uint8), 2, 2, box, bounds)


def test_a_box_of_nearly_nothing_gives_a_pixel_of_the_mask() -> None:
    mask = numbered(5, 7, np.uint8)
    for length in (1e-9, 1e-300):
        out = _engine.resize_mask(mask, 4, 4, (3.0, 2.0, length, length), (0, 0, 7, 5))
        assert set(np.unique(out).tolist()) <= set(np.unique(mask).tolist())
