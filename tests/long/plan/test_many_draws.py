"""Permutations and crops of many draws are distributed as they should be; the gate draws fewer."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from support.running.crop_distribution import assert_distributed_as_torchvisions

from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.order import permute


def test_random_crops_are_distributed_as_torchvisions_in_100_000_draws(torchvision: ModuleType) -> None:
    assert_distributed_as_torchvisions(torchvision, 500, 375, RandomResizedCrop(), draws=100_000)


@pytest.mark.parametrize("count", [5, 16, 23, 64])
def test_permute_is_uniform_over_3000_keys(count: int) -> None:
    keys = 3000
    counts = np.zeros((count, count))
    for permutation_key in range(keys):
        counts[np.arange(count), permute(np.arange(count), count, permutation_key)] += 1
    chi_square = ((counts - keys / count) ** 2 / (keys / count)).sum()
    freedom = (count - 1) ** 2
    assert chi_square < freedom + 7 * np.sqrt(2 * freedom)
