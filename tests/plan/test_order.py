"""Tests of the order of an epoch: each sample once, any stretch on its own, new for each seed and epoch."""

from __future__ import annotations

import itertools
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastpipe.plan.draws import Stream, key
from fastpipe.plan.order import (
    CHUNK_BYTES,
    CHUNKS_EARLY,
    CHUNKS_PER_WINDOW,
    MAX_SAMPLES_PER_CHUNK,
    EpochOrder,
    cache_recent,
    permute,
    samples_per_chunk,
)

sizes = st.one_of(st.integers(1, 70), st.integers(1, 6000))
chunks = st.one_of(st.integers(1, 9), st.integers(1, 8000))
seeds = st.integers(0, 2**64 - 1)
epochs = st.integers(0, 2**40)


def whole_epoch(samples: int, chunk: int, seed: int = 0, epoch: int = 0) -> NDArray[np.int64]:
    return EpochOrder(samples, chunk, seed=seed, epoch=epoch, shuffle=True).take(0, samples)


@given(sizes, chunks, seeds, epochs)
def test_each_sample_comes_exactly_once(samples: int, chunk: int, seed: int, epoch: int) -> None:
    order = whole_epoch(samples, chunk, seed, epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(samples))


@given(sizes, chunks, seeds, st.data())
def test_any_stretch_is_the_slice_of_the_whole(
    samples: int, chunk: int, seed: int, data: st.DataObject
) -> None:
    whole = whole_epoch(samples, chunk, seed)
    order = EpochOrder(samples, chunk, seed=seed, epoch=0, shuffle=True)
    for _ in range(6):  # in any order of asking
        start = data.draw(st.integers(0, samples))
        stop = data.draw(st.integers(start, samples))
        assert np.array_equal(order.take(start, stop), whole[start:stop])


@pytest.mark.parametrize(("samples", "chunk"), [(1000, 7), (1000, 1), (1000, 2000), (331, 10)])
def test_seeds_and_epochs_give_different_orders(samples: int, chunk: int) -> None:
    orders = {
        whole_epoch(samples, chunk, seed, epoch).tobytes()
        for seed, epoch in itertools.product(range(5), range(5))
    }
    assert len(orders) == 25
    for one, other in [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0))]:
        same = np.mean(whole_epoch(samples, chunk, *one) == whole_epoch(samples, chunk, *other))
        assert same < 0.05


def test_rotation_moves_the_borders_of_chunks() -> None:
    samples, chunk = 100_000, 10  # many windows
    for epoch in range(3):
        order = whole_epoch(samples, chunk, epoch=epoch)
        window = order[: CHUNKS_PER_WINDOW * chunk // 2]
        rotation = key(0, epoch, Stream.ROTATE) % samples
        assert len(np.unique((window - rotation) % samples // chunk)) <= CHUNKS_PER_WINDOW
    borders = {key(0, epoch, Stream.ROTATE) % samples % chunk for epoch in range(100)}
    assert len(borders) == chunk


def test_the_short_chunk_holds_other_samples_each_epoch() -> None:
    """Samples of the one short chunk share a window with fewer others: not always the same ones."""
    samples, chunk = 10 * CHUNKS_PER_WINDOW * 10 + 3, 10
    last = [whole_epoch(samples, chunk, epoch=epoch)[-3:] for epoch in range(25)]
    assert len(np.unique(np.concatenate(last))) > 50


def test_a_dataset_within_one_window_is_shuffled_uniformly() -> None:
    samples, epochs_tried = 24, 800
    counts = np.zeros((samples, samples))
    for epoch in range(epochs_tried):
        counts[np.arange(samples), whole_epoch(samples, 4, epoch=epoch)] += 1
    expected = epochs_tried / samples
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = (samples - 1) ** 2
    assert abs(chi_square - freedom) < 6 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("chunk", [1, 25])
def test_all_of_the_dataset_is_mixed_over_the_epoch(chunk: int) -> None:
    """Where a sample comes has nothing to do with its number, in datasets of many windows."""
    samples = 20_000
    places = np.empty(samples)
    for epoch in range(3):
        places[whole_epoch(samples, chunk, epoch=epoch)] = np.arange(samples)
        by_part = places.reshape(20, -1).mean(axis=1) / samples
        assert np.abs(by_part - 0.5).max() < 0.2


@given(st.integers(1, 2**40), st.integers(0, 2**64 - 1), st.data())
def test_permute_stays_in_its_domain(count: int, permutation_key: int, data: st.DataObject) -> None:
    numbers = np.array(
        data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20, unique=True))
    )
    images = permute(numbers, count, permutation_key)
    assert ((images >= 0) & (images < count)).all()
    assert len(np.unique(images)) == len(numbers)
    assert np.array_equal(permute(numbers[::-1], count, permutation_key), images[::-1])


@pytest.mark.parametrize("count", [5, 16, 23])
def test_permute_is_roughly_uniform(count: int) -> None:
    """tests/long/plan/test_many_draws.py asks more exactly."""
    keys = 600
    counts = np.zeros((count, count))
    for permutation_key in range(keys):
        counts[np.arange(count), permute(np.arange(count), count, permutation_key)] += 1
    chi_square = ((counts - keys / count) ** 2 / (keys / count)).sum()
    freedom = (count - 1) ** 2
    assert chi_square < freedom + 7 * np.sqrt(2 * freedom)


def test_chunks_are_about_8_mb() -> None:
    assert samples_per_chunk(1000, 1000 * 110_000) == round(CHUNK_BYTES / 110_000)
    assert samples_per_chunk(3, 3 * 10**9) == 1
    assert samples_per_chunk(10, 10) == MAX_SAMPLES_PER_CHUNK


@given(sizes, chunks, st.data())
def test_without_shuffle_it_is_the_order_of_the_shards(
    samples: int, chunk: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, samples))
    stop = data.draw(st.integers(start, samples))
    order = EpochOrder(samples, chunk, seed=3, epoch=9, shuffle=False)
    assert np.array_equal(order.take(start, stop), np.arange(start, stop))


@given(sizes, chunks, seeds, st.integers(1, 500), st.booleans())
def test_every_chunk_is_read_ahead_once_and_before_it_is_due(
    samples: int, chunk: int, seed: int, batch_size: int, shuffle: bool
) -> None:
    batch_size = max(batch_size, samples // 50)
    order = EpochOrder(samples, chunk, seed=seed, epoch=0, shuffle=shuffle)
    asked = np.zeros(samples, dtype=int)
    for start in range(0, samples, batch_size):
        stop = min(start + batch_size, samples)
        for first, after in order.reads(start, stop, is_first=start == 0):
            assert 0 <= first < after <= samples
            asked[first:after] += 1
        assert asked.max() == 1
        assert asked[order.take(start, stop)].all()
        most_chunks = -(-stop // min(chunk, samples)) + CHUNKS_PER_WINDOW + CHUNKS_EARLY
        assert asked.sum() <= most_chunks * chunk, "bounded"
    assert asked.all()


def test_a_window_is_read_ahead_while_the_one_before_it_is_used() -> None:
    chunk = 10
    window = CHUNKS_PER_WINDOW * chunk
    order = EpochOrder(50 * window, chunk, seed=0, epoch=0, shuffle=True)
    coming = set(order.take(2 * window, 3 * window).tolist())
    asked: set[int] = set()
    for quarter in range(3):
        start = window + quarter * window // 4
        runs = order.reads(start, start + window // 4, is_first=False)
        assert len(runs) == CHUNKS_PER_WINDOW // 4, (
            "a quarter of the chunks with each quarter of the window"
        )
        asked.update(sample for first, after in runs for sample in range(first, after))
    assert asked == coming - {
        sample
        for first, after in order.reads(0, window, is_first=True)[-CHUNKS_EARLY:]
        for sample in range(first, after)
    }, "the rest of it was asked for before, so that its last chunk has time to come"


def test_reading_ahead_may_begin_in_the_middle() -> None:
    samples, chunk = 10_000, 10
    order = EpochOrder(samples, chunk, seed=0, epoch=0, shuffle=True)
    window = {
        sample
        for first, after in order.reads(5000, 5010, is_first=True)
        for sample in range(first, after)
    }
    assert set(order.take(5000, 5010).tolist()) <= window
    assert len(window) <= (2 * CHUNKS_PER_WINDOW + CHUNKS_EARLY) * chunk


def test_without_shuffle_only_the_next_chunks_are_read_ahead() -> None:
    order = EpochOrder(10_000, 10, seed=0, epoch=0, shuffle=False)
    assert order.reads(0, 20, is_first=True).tolist() == [
        [n, n + 10] for n in range(0, 20 + 10 * CHUNKS_EARLY, 10)
    ]
    assert order.reads(20, 25, is_first=False).tolist() == [
        [20 + 10 * CHUNKS_EARLY, 30 + 10 * CHUNKS_EARLY]
    ]
    assert order.reads(25, 30, is_first=False).tolist() == []
    assert order.reads(9_000, 9_990, is_first=False).tolist() == [
        [n, n + 10] for n in range(9_080, 10_000, 10)
    ]


def test_threads_that_ask_for_what_is_kept_get_their_own_number() -> None:
    class Doubles:
        @cache_recent(2)
        def of(self, number: int) -> int:
            return 2 * number

    doubles, wrong = Doubles(), list[object]()

    def ask(first: int) -> None:
        try:
            wrong.extend(
                number
                for number in range(first, first + 20_000)
                if doubles.of(number % 7) != number % 7 * 2
            )
        except BaseException as problem:
            wrong.append(problem)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    finally:
        sys.setswitchinterval(before)
    assert wrong == []
    assert len(vars(doubles)["_recent_of"]) <= 2 + len(threads)
