"""Epochs of any size, with repeats: stretches of passes that follow one another, each stretch computed by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastpipe.plan.order import EpochOrder, Ids, Passes
from fastpipe.plan.partition import Partition, Ranks


def passes_of(
    places: int, size: int, repeats: int, epoch: int, chunk: int = 4, *, shuffle: bool = True
) -> Passes:
    options = {"begin": epoch * size, "size": size, "repeats": repeats, "shuffle": shuffle}
    return Passes(places, chunk, seed=5, ids=lambda number: lambda places: places, **options)  # type: ignore[arg-type]


def endless(places: int, repeats: int, stop: int) -> NDArray[np.int64]:
    """Note [passes], written out."""
    parts = []
    for number in range(-(-stop // (places * repeats))):
        parts.append(
            np.repeat(
                EpochOrder(places, 4, seed=5, epoch=number, shuffle=True).take(0, places), repeats
            )
        )
    return np.concatenate(parts)[:stop]


@pytest.mark.parametrize("epoch", [0, 1, 9])
def test_a_plain_epoch_is_one_pass(epoch: int) -> None:
    order = EpochOrder(1000, 4, seed=5, epoch=epoch, shuffle=True)
    passes = passes_of(1000, 1000, 1, epoch)
    taken = passes.take(0, 1000)
    assert np.array_equal(taken.ids, order.take(0, 1000))
    assert np.array_equal(taken.places, taken.ids)
    assert not taken.times.any()
    for start in range(0, 1000, 50):
        first = start == 0
        runs = passes.reads(start, start + 50, is_first=first, runs=True)
        assert np.array_equal(runs, order.reads(start, start + 50, is_first=first))
        ids = passes.reads(start, start + 50, is_first=first, runs=False)
        assert ids.tolist() == [each for low, high in runs.tolist() for each in range(low, high)]


@settings(max_examples=40)
@given(st.integers(1, 300), st.integers(1, 700), st.integers(1, 4), st.integers(0, 5), st.data())
def test_epochs_are_stretches_of_the_passes(
    places: int, size: int, repeats: int, epoch: int, data: st.DataObject
) -> None:
    size = min(size, 10 * places)
    expected = endless(places, repeats, (epoch + 1) * size)[epoch * size :]
    passes = passes_of(places, size, repeats, epoch)
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    assert np.array_equal(passes.take(start, stop).ids, expected[start:stop])
    assert np.array_equal(passes_of(places, size, repeats, epoch).take(0, size).ids, expected)
    times = passes.take(0, size).times
    assert np.array_equal(passes.take(start, stop).times, times[start:stop])
    assert len({*zip(expected.tolist(), times.tolist(), strict=True)}) == size, (
        "each row has draws of its own"
    )


@settings(max_examples=40)
@given(
    st.integers(1, 300),
    st.integers(1, 700),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 60),
)
def test_what_is_read_is_named_before(
    places: int, size: int, repeats: int, epoch: int, batch: int
) -> None:
    size = min(size, 40 * batch, 10 * places)
    passes = passes_of(places, size, repeats, epoch)
    named: set[int] = set()
    fetched: set[int] = set()
    for start in range(0, size, batch):
        stop = min(start + batch, size)
        for low, high in passes.reads(start, stop, is_first=start == 0, runs=True):
            named.update(range(low, high))
        for run in passes.ahead(
            start, stop, lambda positions: positions % 2 == 0, is_first=start == 0
        ):
            fetched.update(run.tolist())
        taken = passes.take(start, stop).ids
        assert named >= set(taken.tolist())
        assert fetched >= set(taken[np.arange(start, stop) % 2 == 0].tolist())
    # Nothing is fetched that no position of this epoch has.
    assert fetched == set(passes.take(0, size).ids[::2].tolist())


def test_short_epochs_go_through_everything_before_a_sample_comes_again() -> None:
    seen = np.concatenate([passes_of(1000, 100, 1, epoch).take(0, 100).ids for epoch in range(10)])
    assert sorted(seen) == list(range(1000))


def test_without_shuffle_passes_are_all_in_order() -> None:
    passes = passes_of(10, 25, 1, 1, shuffle=False)
    assert passes.take(0, 25).ids.tolist() == [(25 + number) % 10 for number in range(25)]


def test_ids_of_a_place_may_differ_from_pass_to_pass() -> None:
    """A sampler draws anew in each pass: the ids are those of the pass that a place lies in."""

    def ids(number: int) -> Ids:
        return lambda places: places + 100 * number

    passes = Passes(10, 4, seed=5, begin=5, size=30, repeats=1, shuffle=True, ids=ids)
    taken = passes.take(0, 30)
    assert (taken.ids // 100).tolist() == [0] * 5 + [1] * 10 + [2] * 10 + [3] * 5
    assert np.array_equal(taken.ids % 100, taken.places)


def timm_rule(
    order: NDArray[np.int64], repeats: int, world_size: int, rank: int
) -> NDArray[np.int64]:
    """How timm's RepeatAugSampler deals out an order: each sample `repeats` times in a row, a row to each rank in turn,
    and of these as many as there are samples, rounded down to 256s.
    """
    rows = np.repeat(order, repeats)
    rows = np.concatenate([rows, rows[: -len(rows) % world_size]])
    return rows[rank::world_size][: len(order) // 256 * 256 // world_size]


@pytest.mark.parametrize(("world_size", "repeats"), [(1, 2), (2, 3), (4, 5), (8, 3)])
def test_repeats_go_to_the_ranks_as_timm_deals_them(world_size: int, repeats: int) -> None:
    samples, batch = 10_000, 256 // world_size
    order = EpochOrder(samples, 76, seed=5, epoch=0, shuffle=True).take(0, samples)
    for rank in range(world_size):
        partition = Partition(
            samples, batch, drop_last=True, ranks=Ranks(rank, world_size), in_turn=True
        )
        passes = passes_of(samples, samples, repeats, 0, 76)
        mine = []
        for number in range(partition.batches):
            share = partition.rank_rows(number)
            ((_, start, stop),) = share.spans
            mine.append(passes.take(start, stop).ids[share.rows])
            assert (
                partition.is_mine(0, np.arange(start, stop)).nonzero()[0].tolist()
                == share.rows.tolist()
            )
        assert np.array_equal(np.concatenate(mine), timm_rule(order, repeats, world_size, rank))
