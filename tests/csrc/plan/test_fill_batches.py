"""Tests of fill_batches: sizes of samples -> the batches of a budget."""

from __future__ import annotations

import numpy as np
import pytest

from fastpipe import _engine


def filled(sizes: list[int], budget: int, most: int = 1 << 20) -> list[int]:
    batches, count = _engine.fill_batches(np.array(sizes, dtype=np.int64), budget, most)
    assert count == len(set(batches.tolist()))
    return batches.tolist()


def test_each_goes_to_the_fullest_batch_in_which_it_has_room() -> None:
    # In order of size: 7, 6, 4, 3, each an eighth of 10 and more.
    assert filled([3, 7, 4, 6], 10) == [0, 0, 1, 1]
    assert filled([5, 5, 5], 10) == [0, 0, 1]
    assert filled([], 10) == []


def test_small_samples_stay_in_order() -> None:
    sizes = [1, 2, 1, 2] * 25
    batches = filled(sizes, 30)
    assert batches == sorted(batches)


def test_a_batch_has_at_most_so_many() -> None:
    assert filled([1] * 5, 100, most=2) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(("low", "high", "budget"), [(1, 64, 1024), (20, 256, 1024), (1, 9, 8)])
def test_batches_keep_to_the_budget_and_are_nearly_full(low: int, high: int, budget: int) -> None:
    sizes = np.random.default_rng(0).integers(low, high, 5000)
    batches, count = _engine.fill_batches(sizes, budget, 1 << 20)
    sums = np.bincount(batches, weights=sizes)
    assert len(sums) == count
    assert sums.max() <= budget
    assert sizes.sum() / (count * budget) > 0.97


@pytest.mark.parametrize("sizes", [[0], [11], [3, -1]])
def test_sizes_that_no_batch_could_hold_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="from 1 to the budget"):
        filled(sizes, 10)
