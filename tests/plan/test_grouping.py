"""Grouping of batches by shape: a permutation inside windows, the same for all ranks, read ahead in time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.datasets.billion_samples import Billion, recipe_of
from support.running.distributions import assert_distribution

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.plan import content, order
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.draws import Stream, bits, key
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.grouping import Grouping
from fastpipe.plan.partition import Partition, Ranks
from fastpipe.plan.recipe import Recipe

BUCKETS = Buckets(area=100 * 100, size_divisible=16)
COVERED = Buckets(sizes=[(100, 100), (80, 120), (120, 80), (64, 64)], fit="cover")
NOT_ENLARGED = Buckets(sizes=COVERED.sizes, fit="cover", no_upscale=True)


def sides_of(numbers: NDArray[np.int64], salt: int = 0) -> NDArray[np.int64]:
    """(n, 2) widths and heights from 30 to 329 that belong to numbers."""
    sides = bits(salt, np.stack([2 * numbers, 2 * numbers + 1], axis=1)) % np.uint64(
        300
    ) + np.uint64(30)
    return sides.astype(np.int64)


def pictures(sequence: int, start: int, stop: int) -> NDArray[np.int64]:
    return sides_of(np.arange(start, stop), sequence)


@settings(max_examples=40)
@given(
    st.integers(1, 400),
    st.integers(1, 5),
    st.sampled_from([(1, 1, 1), (4, 1, 1), (4, 2, 4), (2, 2, 2)]),
    st.integers(1, 7),
    st.booleans(),
    st.booleans(),
)
def test_windows_are_dealt_out_anew(
    samples: int,
    batch_size: int,
    world: tuple[int, int, int],
    batches: int,
    drop_last: bool,
    shuffle: bool,
) -> None:
    world_size, _, sequences = world
    batch_size *= 4  # the sequences divide a global batch
    samples = max(samples, sequences)
    partition = Partition(
        samples, batch_size, drop_last=drop_last, ranks=Ranks(0, world_size), sequences=sequences
    )
    made = Grouping(partition, pictures, BUCKETS, batches=batches, key=8 if shuffle else None)
    taken: dict[int, list[int]] = {sequence: [] for sequence in range(sequences)}
    due = dict.fromkeys(range(sequences), 0)
    for number in range(partition.batches):
        height, width = made.size(number)
        for sequence, start, stop in partition.spans(number):
            begin, chosen = made.positions(sequence, number, start, stop)
            positions = begin + chosen
            assert made.grouped(sequence, positions).tolist() == list(range(start, stop))
            taken[sequence] += positions.tolist()
            first, end = made.due(sequence, number, is_first=number == 0)
            assert first == due[sequence]
            due[sequence] = end
            if len(positions):
                assert positions.max() < end
                sides = pictures(sequence, 0, int(positions.max()) + 1)[positions]
                assert (BUCKETS.row_sizes(sides) <= (width, height)).all()
    for sequence, positions in taken.items():
        assert sorted(positions) == list(range(len(positions)))
        assert due[sequence] == len(positions)
        window = batches * (partition.global_batch_size // sequences)
        assert [at // window for at in positions] == [at // window for at in range(len(positions))]
    total = sum(map(len, taken.values()))
    assert total == (partition.batches * partition.global_batch_size if drop_last else samples)


def test_a_batch_has_like_shapes_and_batches_come_in_any_order() -> None:
    partition = Partition(64 * 8, 8, drop_last=True, ranks=Ranks())
    for shuffle in (None, 3):
        made = Grouping(partition, pictures, BUCKETS, batches=32, key=shuffle)
        ranges = []
        for number in range(32):
            begin, chosen = made.positions(0, number, 8 * number, 8 * number + 8)
            sizes = BUCKETS.row_sizes(pictures(0, 0, 256)[begin + chosen])
            wide, high = np.ceil(sizes / BUCKETS.size_divisible).astype(np.int64).T
            likeness = 1000 * wide - high
            ranges.append((int(likeness.min()), int(likeness.max())))
            if shuffle is None and number:
                assert ranges[-1][0] >= ranges[-2][1]
        assert (ranges == sorted(ranges)) == (shuffle is None)
        apart = sorted(ranges)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(apart))


def test_every_batch_of_a_window_may_get_any_shape() -> None:
    """Which of 8 stretches the first batch and the last one get, over 1,500 epochs, by chi-squared."""
    partition = Partition(8 * 2, 2, drop_last=True, ranks=Ranks())

    def sides(_: int, start: int, stop: int) -> NDArray[np.int64]:
        return np.stack([np.arange(start, stop) + 1, np.arange(stop, start, -1)], axis=1)

    drawn = []
    for epoch in range(1500):
        made = Grouping(
            partition, sides, Buckets(size_divisible=1), batches=8, key=key(1, epoch, Stream.GROUP)
        )
        drawn.append(
            [made.positions(0, number, 2 * number, 2 * number + 2)[1][0] // 2 for number in (0, 7)]
        )
    pairs = np.array(drawn) @ [8, 1]
    assert_distribution(np.bincount(pairs, minlength=64), 1.0 - np.eye(8).ravel())


@pytest.mark.parametrize("sequences", [1, 2])
@pytest.mark.parametrize("buckets", [COVERED, NOT_ENLARGED], ids=["enlarged", "not enlarged"])
def test_batches_of_listed_sizes(buckets: Buckets, sequences: int) -> None:
    """Each batch has one size; few images come at another size than their own, and these lie between the two."""
    partition = Partition(
        8 * 400, 8 // sequences, drop_last=True, ranks=Ranks(0, sequences), sequences=sequences
    )

    def at_least_64(sequence: int, start: int, stop: int) -> NDArray[np.int64]:
        return np.maximum(pictures(sequence, start, stop), 64)

    made = Grouping(partition, at_least_64, buckets, batches=400, key=3)
    mixed = 0
    shares: dict[tuple[int, int], int] = {}
    for number in range(400):
        height, width = made.size(number)
        sizes = []
        for sequence, start, stop in partition.spans(number):
            begin, chosen = made.positions(sequence, number, start, stop)
            sides = at_least_64(sequence, 0, 8 * 400)[begin + chosen]
            if buckets.no_upscale:
                assert (sides >= (width, height)).all()
            sizes += buckets.row_sizes(sides)[:, ::-1].tolist()
        sizes_of_images = {tuple(size) for size in sizes}
        if len(sizes_of_images) == 1:
            assert sizes_of_images == {(height, width)}
        else:
            mixed += 1
        shares[(height, width)] = shares.get((height, width), 0) + 1
    # Each of two sequences is sorted by itself, so the sizes change at different batches of them.
    assert mixed <= (3 if sequences == 1 else 40)
    all_sizes = buckets.row_sizes(
        np.concatenate([at_least_64(s, 0, 8 * 400 // sequences) for s in range(sequences)])
    )
    for size in buckets.listed_sizes:
        wanted = (all_sizes[:, ::-1] == size).all(axis=1).mean()
        assert abs(shares.get(size, 0) / 400 - wanted) <= (4 if sequences == 1 else 12) / 400


class Shapes(Billion):
    """A billion pictures of many shapes, so large that three of them make a chunk."""

    jpeg_bytes = 10**9 * 2_800_000

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        records = Billion.read(self, samples)
        records["width"], records["height"] = sides_of(samples).T
        return records

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        return self.records_of(samples)


def bucketed(index: Any, **change: Any) -> Recipe:
    return recipe_of(index, crop=BUCKETS, size=BUCKETS.largest, **change)


@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_share_batches_and_sizes(shuffle: bool) -> None:
    def world(world_size: int, nodes: int) -> list[tuple[list[int], Any]]:
        found: list[tuple[list[int], Any]] = [([], set()) for _ in range(6)]
        for rank in range(world_size):
            recipe = bucketed(
                Shapes(),
                batch_size=32 // world_size,
                ranks=Ranks(rank, world_size, nodes),
                sequences=4,
                shuffle=shuffle,
            )
            plan = EpochPlan(recipe, 2)
            for at, number in enumerate((0, 1, 15, 16, 10**6, len(plan) - 1)):
                made = plan.batch(number)
                found[at][0].extend(made.samples[made.valid].tolist())
                found[at][1].add(made.crops.size)
        return [(sorted(samples), *sizes) for samples, sizes in found]

    alone = world(1, 1)
    assert alone == world(8, 4) == world(4, 2) == world(2, 1)
    assert len({size for _, size in alone}) > 2


@pytest.mark.parametrize("shuffle", [True, False])
def test_what_is_used_was_read_ahead(
    many_shards: Path, monkeypatch: pytest.MonkeyPatch, shuffle: bool
) -> None:
    """From any batch on, each batch's samples were named before it; fetching names each rank's own, and once."""
    monkeypatch.setattr(content, "samples_per_chunk", lambda *_: 2)
    monkeypatch.setattr(order, "CHUNKS_PER_WINDOW", 2)
    monkeypatch.setattr(order, "CHUNKS_EARLY", 1)
    monkeypatch.setattr(Grouping, "batches_of", staticmethod(lambda *_: 2))
    index = PackedIndex(many_shards)
    for rank in range(2):
        recipe = bucketed(
            index, batch_size=1, drop_last=True, shuffle=shuffle, ranks=Ranks(rank, 2)
        )
        for begin in (0, 1, 3):
            plan = EpochPlan(recipe, 1)
            named: list[tuple[int, int, int]] = []
            taken: list[int] = []
            fetched: list[int] = []
            steps = set()
            for number in range(begin, len(plan)):
                made = plan.batch(number)
                ranges = plan.reads(number, made, is_first=number == begin)[
                    len(made) if number == begin else 0 :
                ]
                named += [(shard, offset, offset + size) for shard, offset, size in ranges.tolist()]
                fetched += plan.upcoming(number, is_first=number == begin).tolist()
                taken += made.samples.tolist()
                for one in made.records[["shard", "offset", "size"]].tolist():
                    assert any(
                        one[0] == shard and start <= one[1] < one[1] + one[2] <= end
                        for shard, start, end in named
                    )
                assert set(made.samples[made.valid].tolist()) <= set(fetched)
                steps.add(len(fetched))
            assert len(fetched) == len(set(fetched))
            assert begin > 0 or sorted(fetched) == sorted(taken)
            assert len(steps) > 3, "it is spread over the epoch"
