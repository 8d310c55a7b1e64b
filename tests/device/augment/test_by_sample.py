"""torch's random functions under BySample: a row's numbers depend on its seed, and have the distribution asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Bernoulli, Normal, Uniform

from fastpipe.device.augment.by_sample import _ROW_BYTES, BySample


def into(draw: Callable[..., Tensor], *size: int) -> Tensor:
    """What a draw writes into a tensor that is given to it."""
    out = torch.full(size, -1.0)
    assert draw(*size, out=out) is out
    return out


SEEDS = torch.randint(-(2**63), 2**63 - 1, (12,), generator=torch.Generator().manual_seed(0))
DRAWS: dict[str, Callable[[int], Tensor]] = {
    "rand": lambda n: torch.rand(n, 3),
    "rand of a size": lambda n: torch.rand((n,)),
    "rand of a keyword": lambda n: torch.rand(size=(n, 2)),
    "rand of a number of numpy": lambda n: torch.rand(np.int64(n)),  # type: ignore[call-overload]
    "rand into a tensor": lambda n: into(torch.rand, n, 3),
    "rand of a multiple": lambda n: torch.rand(3 * n, 1).view(n, 3),
    "rand, float64": lambda n: torch.rand(n, dtype=torch.float64),
    "rand, bfloat16": lambda n: torch.rand(n, 8, dtype=torch.bfloat16),
    "rand_like": lambda n: torch.rand_like(torch.empty(n, 2)),
    "randn_like by name": lambda n: torch.randn_like(input=torch.empty(n)),
    "randn": lambda n: torch.randn(n, 2, 2),
    "randn_like": lambda n: torch.randn_like(torch.empty(n)),
    "randint": lambda n: torch.randint(5, (n, 9)),
    "randint from": lambda n: torch.randint(-5, 5, (n, 9)),
    "randint by names": lambda n: torch.randint(low=2, high=9, size=(n, 9)),
    "randint, high by name": lambda n: torch.randint(2, high=9, size=(n, 9)),
    "bernoulli by name": lambda n: torch.bernoulli(input=torch.full((n, 30), 0.5)),
    "bernoulli": lambda n: torch.bernoulli(torch.full((n, 30), 0.5)),
    "bernoulli_": lambda n: torch.empty(n, 30).bernoulli_(0.5),
    "uniform_": lambda n: torch.empty(n).uniform_(2, 3),
    "normal_": lambda n: torch.empty(n).normal_(5, 2),
    "normal of a size": lambda n: torch.normal(0.0, 1.0, (n, 2)),
    "normal of a size by name": lambda n: torch.normal(
        mean=0.0, std=1.0, size=(n, 2), dtype=torch.float64
    ),
    "normal of two shapes": lambda n: torch.normal(torch.zeros(n, 1), torch.ones(5)),
    "normal": lambda n: torch.normal(torch.zeros(n), 2.0),
    "Uniform": lambda n: Uniform(-1.0, 1.0).rsample(torch.Size((n,))),
    "Bernoulli": lambda n: Bernoulli(0.5).sample(torch.Size((n, 30))),
    "Normal": lambda n: Normal(0.0, 1.0).rsample(torch.Size((n,))),
    "large rows": lambda n: torch.rand(n, 400, 400),
}


def test_a_row_depends_on_its_seed_alone() -> None:
    for name, draw in DRAWS.items():
        before = torch.get_rng_state()
        with BySample(SEEDS) as mode:
            first, second = draw(12), draw(12)
        some = [7, 2, 9]
        with BySample(SEEDS[some]):
            again, later = draw(3), draw(3)
        assert torch.equal(again, first[some]), name
        assert torch.equal(later, second[some]), name
        assert not torch.equal(first, second), name
        assert len({tuple(row.flatten().tolist()) for row in first}) == 12, name
        assert mode.others == 0, name
        assert torch.equal(torch.get_rng_state(), before), name
        plain = draw(12)
        assert (first.dtype, first.shape) == (plain.dtype, plain.shape), name


def test_numbers_have_the_distribution_asked_for() -> None:
    size = (12, 20_000)
    draws: list[Callable[[], Tensor]] = [
        lambda: torch.rand(size),
        lambda: torch.randn(size),
        lambda: torch.randint(-3, 4, size),
        lambda: torch.randint(1, high=5, size=size),
        lambda: torch.bernoulli(torch.full(size, 0.2)),
        lambda: torch.empty(size).uniform_(-2, 5),
        lambda: torch.empty(size).normal_(3, 0.5),
        lambda: torch.normal(torch.full(size, 2.0), torch.full(size, 3.0)),
        lambda: torch.normal(2.0, 3.0, size),
    ]
    for draw in draws:
        with BySample(SEEDS):
            ours = draw()
        with torch.random.fork_rng():
            torch.manual_seed(0)  # else one run in 200 differs by chance
            theirs = draw()
        assert ours.double().mean().item() == pytest.approx(theirs.double().mean().item(), abs=0.02)
        assert ours.double().std().item() == pytest.approx(theirs.double().std().item(), abs=0.02)
        bins = torch.linspace(float(theirs.min()), float(theirs.max()), 9)
        counts = [
            torch.histogram(drawn.float(), bins)[0] / drawn.numel() for drawn in (ours, theirs)
        ]
        assert (counts[0] - counts[1]).abs().max() < 0.005


def test_normal_numbers_of_two_shapes_are_all_different() -> None:
    with BySample(SEEDS):
        assert torch.normal(torch.zeros(12, 1), torch.ones(5)).unique().numel() == 60


def test_rows_and_calls_are_independent() -> None:
    with BySample(SEEDS):
        drawn = torch.cat([torch.rand(12, 5_000), torch.rand(12, 5_000)])
    off = torch.corrcoef(drawn) - torch.eye(24)
    assert off.abs().max() < 0.06
    neighbours = torch.corrcoef(torch.stack([drawn[:, :-1].flatten(), drawn[:, 1:].flatten()]))[
        0, 1
    ]
    assert abs(neighbours) < 0.02


@given(st.integers(2, 40), st.integers(1, 60))
def test_numbers_are_in_range(rows: int, columns: int) -> None:
    with BySample(torch.arange(rows)):
        numbers = torch.rand(rows, columns)
        assert 0 <= numbers.min() <= numbers.max() < 1
        assert torch.randint(3, (rows, columns)).max() < 3
        assert torch.randn(rows, columns).isfinite().all()


def test_large_rows_are_made_beside_their_seeds_whatever_the_default_device() -> None:
    seeds = torch.arange(2)
    with BySample(seeds):
        expected = torch.rand(2, _ROW_BYTES // 4)
    with torch.device("meta"), BySample(seeds):
        assert torch.equal(torch.rand(2, _ROW_BYTES // 4), expected)


OTHERS: dict[str, Callable[[], Any]] = {
    "randperm": lambda: torch.randperm(30),
    "one number": lambda: torch.rand(1),
    "no dimension": lambda: torch.rand(()),
    "multinomial": lambda: torch.multinomial(torch.ones(30), 9),
    "Beta": lambda: torch.distributions.Beta(1.0, 1.0).rsample(),
    "exponential_": lambda: torch.empty(3).exponential_(),
}


def test_other_draws_are_made_by_the_generator() -> None:
    before = torch.get_rng_state()
    for name, draw in OTHERS.items():
        drawn = []
        for seed in (1, 1, 2):
            with BySample(SEEDS, generator=torch.Generator().manual_seed(seed)) as mode:
                drawn.append(draw())
            assert mode.others == 1, name
        assert torch.equal(drawn[0], drawn[1]), name
        assert not torch.equal(drawn[0], drawn[2]), name
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_of_the_caller_is_left_alone() -> None:
    with BySample(SEEDS):
        drawn = torch.rand(12, generator=torch.Generator().manual_seed(4))
    assert torch.equal(drawn, torch.rand(12, generator=torch.Generator().manual_seed(4)))


def test_onto_a_device_nothing_is_made_on_the_cpu() -> None:
    meta = torch.device("meta")
    with BySample(SEEDS.to(meta), onto=meta):
        made = [
            torch.rand(12, 2),
            torch.rand(12, 2, device="cpu"),
            torch.zeros(3),
            torch.tensor([1.0], device=torch.device("cpu")),
            torch.ones(2, device=meta).to(torch.device("cpu")),
            torch.arange(4).to(device="cpu"),
        ]
    assert {tensor.device.type for tensor in made} == {"meta"}
