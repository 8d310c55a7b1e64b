"""Tests of bench/cluster_simulation.py: its formulas against plans of drawn records, and the driver's memory."""

from __future__ import annotations

import numpy as np
import pytest

from bench.cluster_simulation import (
    PHOTO_BYTES,
    Drawn,
    DrawnStore,
    Pack,
    drawn_ranges,
    filled,
    tables_requests,
)
from fastpipe.dataset.format.layout import shard_name
from fastpipe.packing.shard.entry import read_entry
from fastpipe.packing.shard.options import DEFAULT_SHARD_BYTES


def test_drawn_shards_have_the_samples_and_the_size_that_are_said() -> None:
    drawn = Drawn(100_000)
    assert sum(map(drawn.samples, range(drawn.shards))) == 100_000
    sizes = np.array([drawn.size_bytes(shard) for shard in range(drawn.shards)])
    assert sizes.mean() == pytest.approx(DEFAULT_SHARD_BYTES, rel=0.05)
    store = DrawnStore(drawn)
    entry = read_entry(store, drawn.entry_name(7), store.sizes())
    assert entry is not None
    assert [(shard_name(tar.number), tar.samples) for tar in entry.tars] == [
        ("shard-000007.tar", drawn.samples(7))
    ]
    assert len(entry.records(store)) == drawn.samples(7)


@pytest.mark.parametrize("pack", [Pack(30_000, PHOTO_BYTES), Pack(20_000, 10_000_000)])
def test_tables_have_as_many_ranges_as_the_formula_says(pack: Pack) -> None:
    """Of few cells, each of which has a record, and of many more cells than records."""
    asked = tables_requests(pack)
    assert asked.footers == pack.runs * pack.shards
    assert drawn_ranges(pack) == pytest.approx(asked.ranges, rel=0.06)


def test_cells_fill_up() -> None:
    assert filled(1000, 1) == pytest.approx(1, rel=1e-3)
    assert filled(1000, 10**6) == pytest.approx(1000)
    assert filled(1000, 1000) == pytest.approx(632, abs=1)
