"""The crop of one picture is the crop that a batch's plan has for it."""

from __future__ import annotations

import numpy as np
import pytest

from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize
from fastpipe.plan.draws import Stream, key, uniform

PICTURES = 1000
NARROW = RandomResizedCrop(scale=(0.9, 1.0), ratio=(0.5, 0.6))  # often no try fits: the middle


@pytest.mark.parametrize("crop", [RandomResizedCrop(), NARROW, CenterCrop(resize=40), Resize()])
def test_it_is_that_of_a_batch(crop: Crop) -> None:
    rng = np.random.default_rng(0)
    widths, heights = rng.integers(1, 900, (2, PICTURES))
    samples = rng.integers(-(2**63), 2**63, PICTURES)
    whole = plan_crops(crop, (32, 24), widths, heights, seed=2**64 - 1, epoch=3, samples=samples)
    for n in range(PICTURES):
        at = slice(n, n + 1)
        one = plan_crops(crop, (32, 24), widths[at], heights[at], seed=2**64 - 1, epoch=3, samples=samples[at])
        assert (one.boxes.dtype, one.bounds.dtype) == (whole.boxes.dtype, whole.bounds.dtype)
        assert np.array_equal(one.boxes, whole.boxes[n : n + 1])
        assert np.array_equal(one.bounds, whole.bounds[n : n + 1])


def test_mirroring_is_that_of_a_batch() -> None:
    samples = np.random.default_rng(1).integers(-(2**63), 2**63, PICTURES)
    mirrored = uniform(key(5, 2, Stream.FLIP), samples) < 0.3
    stream = key(5, 2, Stream.FLIP)
    assert [uniform(stream, samples[n : n + 1])[0] < 0.3 for n in range(PICTURES)] == mirrored.tolist()
    assert 0.2 < mirrored.mean() < 0.4
