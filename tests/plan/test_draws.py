"""Tests of the stateless draws: the same wherever and whenever asked for, uniform, independent of one another."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.plan.draws import Stream, bits, key, mix, uniform

MASK = 2**64 - 1
words = st.integers(0, MASK)


def splitmix_finaliser(value: int) -> int:
    """Stafford's variant 13, written out in Python's integers."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


@given(words)
def test_mix_is_the_published_bijection(value: int) -> None:
    assert int(mix(np.array([value], dtype=np.uint64))[0]) == splitmix_finaliser(value)


@given(words, st.integers(0, 2**63 - 1))
def test_bits_follow_the_formula(stream_key: int, number: int) -> None:
    golden = 0x9E3779B97F4A7C15
    expected = splitmix_finaliser(splitmix_finaliser((number * golden + stream_key) & MASK))
    assert int(bits(stream_key, np.array([number]))[0]) == expected


def test_a_seed_stands_for_the_same_order_in_every_release() -> None:
    """These values are part of what a seed means: changing them changes every user's training run."""
    assert key(0, 0, Stream.CHUNKS) == 10603934637868093999
    assert key(2**64 - 1, 7, Stream.FLIP) == 17364042062580903319
    assert bits(1, np.arange(2)).tolist() == [8841707400507832957, 15916886550466581944]


@given(words, st.lists(st.integers(0, 2**62), min_size=1, max_size=30))
def test_a_draw_does_not_depend_on_its_neighbours(stream_key: int, numbers: list[int]) -> None:
    together = uniform(stream_key, np.array(numbers))
    apart = [uniform(stream_key, np.array([number]))[0] for number in numbers]
    assert together.tolist() == apart
    assert ((together >= 0) & (together < 1)).all()


def test_neighbouring_seeds_and_epochs_have_different_keys() -> None:
    keys = {
        key(seed, epoch, stream)
        for seed in range(20)
        for epoch in range(20)
        for stream in range(180)
    }
    assert len(keys) == 20 * 20 * 180


def test_tries_and_layers_do_not_run_into_other_streams() -> None:
    runs = dict.fromkeys(
        (Stream.CROP_AREA, Stream.CROP_RATIO, Stream.ERASE_AREA, Stream.ERASE_RATIO), 10
    )
    runs |= dict.fromkeys((Stream.OPERATION, Stream.MAGNITUDE, Stream.SIGN), 16)
    used = [int(first) + number for first in Stream for number in range(runs.get(first, 1))]
    assert len(set(used)) == len(used)


def test_draws_are_uniform() -> None:
    for seed, start in itertools.product([0, 1, 2**64 - 1], [0, 10**9, 2**62]):
        values = uniform(key(seed, 0, Stream.FLIP), start + np.arange(50_000))
        counts = np.histogram(values, bins=100, range=(0, 1))[0]
        chi_square = ((counts - 500) ** 2 / 500).sum()
        assert 40 < chi_square < 180  # 99 degrees of freedom: about 1 in 10 million lies outside
        assert np.unique(values).size > 49_990
