"""Which bytes are read ahead for unpacked sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.sources.pack_sources import write_folder
from support.sources.unpacked_sources import web_tars

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.plan.byte_ranges import RANGE_DTYPE, joined
from fastpipe.plan.content import Content
from fastpipe.plan.crops import Resize
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.order import EpochOrder, members
from fastpipe.plan.recipe import Recipe


def plan_of(index: PackedIndex, *, shuffle: bool, batch_size: int = 8) -> EpochPlan:
    return EpochPlan(
        Recipe(batch_size, (8, 8), Resize(), 0.0, shuffle, False, 3, Content.of(index)), 1
    )


def spans(ranges: np.ndarray) -> list[tuple[int, int, int]]:
    return [(int(shard), int(start), int(start + size)) for shard, start, size in ranges.tolist()]


@pytest.mark.parametrize("kind", ["folder", "tars"])
def test_every_sample_is_read_ahead_before_it_is_due(tmp_path: Path, kind: str) -> None:
    source = tmp_path / kind
    index = fastpipe.open(
        write_folder(source, images=90) if kind == "folder" else web_tars(source, samples=30)
    ).index
    for shuffle in (True, False):
        plan, asked = plan_of(index, shuffle=shuffle), []
        for number in range(len(plan)):
            batch = plan.batch(number)
            asked += spans(plan.reads(number, batch, is_first=number == 0))
            for record in batch.records:
                shard, start = int(record["shard"]), int(record["offset"])
                end = start + int(record["size"])
                assert any(s == shard and a <= start and end <= b for s, a, b in asked)
        if kind == "tars":  # neighbours are one range
            assert len(asked) < len(index)


def test_joined_ranges() -> None:
    rows = [(0, 0, 100), (0, 600, 50), (0, 100_000, 10), (1, 100_020, 5), (1, 100_010, 5)]
    ranges = np.array(rows, dtype=[(name, RANGE_DTYPE[name]) for name in RANGE_DTYPE.names or ()])
    assert spans(joined(ranges)) == [
        (0, 0, 650),
        (0, 100_000, 100_010),
        (1, 100_020, 100_025),
        (1, 100_010, 100_015),
    ]
    assert len(joined(ranges[:0])) == 0


def test_members_of_runs() -> None:
    assert members(np.array([(5, 8), (2, 2), (1, 3)])).tolist() == [5, 6, 7, 1, 2]
    assert members(np.empty((0, 2), dtype=np.int64)).tolist() == []


def test_chunks_of_one_sample_are_a_permutation() -> None:
    for samples in (1, 2, 31, 32, 33, 1000):
        orders = [EpochOrder(samples, 1, seed=1, epoch=epoch, shuffle=True) for epoch in range(2)]
        one, other = (order.take(0, samples).tolist() for order in orders)
        assert sorted(one) == sorted(other) == list(range(samples))
        assert one != other or samples < 3
        assert orders[0].take(samples // 3, samples).tolist() == one[samples // 3 :]
