"""Weighted draws follow their weights, as torch's samplers do, and any of them is drawn without the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.running.distributions import assert_distribution, assert_same_distribution
from torch.utils.data import WeightedRandomSampler

from fastpipe.plan.picks import Pick, RejectionDraws, SpreadDraws, WeightedDrawsWithoutReplacement

DRAWS = 100_000
UNEVEN = np.concatenate([np.zeros(3), np.arange(1, 201, dtype=float) ** 2, np.zeros(2)])


def counts_of(
    pick: Pick, draws: int = DRAWS, samples: int = len(UNEVEN), epoch: int = 0
) -> NDArray[np.int64]:
    drawn = pick.ids(draws, seed=3, epoch=epoch)(np.arange(draws))
    return np.bincount(drawn, minlength=samples)


def tried(weights: NDArray[np.float64]) -> RejectionDraws:
    return RejectionDraws(
        len(weights), lambda which: weights[which], weights.max(), weights.max() / weights.mean()
    )


@pytest.mark.parametrize("make", [SpreadDraws, tried])
def test_draws_follow_the_weights_as_torchs_do(make: type[SpreadDraws]) -> None:
    weights = UNEVEN + np.where(UNEVEN > 0, UNEVEN.max() / 50, 0)  # none too rare for the test
    found = counts_of(make(weights))
    assert_distribution(found, weights)
    torch.manual_seed(0)
    theirs = np.bincount(
        list(WeightedRandomSampler(weights.tolist(), DRAWS)), minlength=len(weights)
    )
    assert_distribution(theirs, weights)
    assert_same_distribution(found, theirs)


@pytest.mark.parametrize("make", [SpreadDraws, tried])
def test_epochs_and_draws_are_independent(make: type[SpreadDraws]) -> None:
    pick = make(UNEVEN)
    one, other = (pick.ids(DRAWS, seed=3, epoch=epoch) for epoch in (0, 1))
    numbers = np.arange(DRAWS)
    assert not np.array_equal(one(numbers), other(numbers))
    assert np.array_equal(one(numbers[5000:5100][::-1]), one(numbers)[5000:5100][::-1])
    again = make(UNEVEN).ids(DRAWS, seed=3, epoch=0)
    assert np.array_equal(again(numbers), one(numbers))


def test_draws_are_spread_and_in_order() -> None:
    """Note [spread draws]: they ascend, and come as often as is due, give or take 2; over epochs exactly."""
    pick = SpreadDraws(UNEVEN)
    drawn = pick.ids(DRAWS, seed=3, epoch=0)(np.arange(DRAWS))
    assert (np.diff(drawn) >= 0).all()
    due = UNEVEN * DRAWS / UNEVEN.sum()
    assert (np.abs(counts_of(pick) - due) < 2).all()
    sums = sum(counts_of(pick, 1000, epoch=epoch) for epoch in range(400))
    often = UNEVEN * sums.sum() / UNEVEN.sum() >= 5
    assert_distribution(sums[often], UNEVEN[often])


def test_equal_weights_give_each_sample_once() -> None:
    assert counts_of(SpreadDraws(np.ones(1000)), 1000, 1000).tolist() == [1] * 1000


def test_few_draws_of_many_samples_are_uniform() -> None:
    counts = np.zeros(50, dtype=np.int64)
    for epoch in range(200):
        counts += counts_of(SpreadDraws(np.ones(50)), 7, 50, epoch)
    assert_distribution(counts, np.ones(50))


def test_draws_without_replacement_are_torchs() -> None:
    """How often each sample is in a set of 10 of 30, over 10,000 sets."""
    weights, sets = np.arange(30, dtype=float), DRAWS // 10
    pick = WeightedDrawsWithoutReplacement(weights)
    counts = np.zeros(30, dtype=np.int64)
    for epoch in range(sets):
        drawn = pick.ids(10, seed=1, epoch=epoch)(np.arange(10))
        assert len(set(drawn.tolist())) == 10
        counts += np.bincount(drawn, minlength=30)
    torch.manual_seed(1)
    theirs = (
        torch.multinomial(torch.from_numpy(weights).expand(sets, 30), 10, replacement=False)
        .flatten()
        .numpy()
    )
    assert counts[0] == 0
    assert_same_distribution(counts, np.bincount(theirs, minlength=30))


def test_all_that_can_be_drawn_without_replacement() -> None:
    pick = WeightedDrawsWithoutReplacement(np.array([0.0, 1.0, 0.0, 2.0, 1e-9]))
    assert len(pick) == 3
    assert pick.ids(3, seed=0, epoch=0)(np.arange(3)).tolist() == [1, 3, 4]
