"""Tests of bench/cluster_simulation.py: its formulas against plans of drawn records, and a plan's memory."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from checkout import ROOT
from soak import times

from bench.cluster_simulation import PHOTO_BYTES, DrawnJob, Pack, drawn_part, shards_of, tables_requests
from fastpipe.packing.options import DEFAULT_SHARD_BYTES

RECORDS = times(400_000, 10_000_000)


def test_drawn_photos_have_the_size_that_is_said() -> None:
    rows = drawn_part(3, 20_000, 100_000, tables=True)
    assert rows["blob"].mean() == pytest.approx(PHOTO_BYTES, rel=0.02)
    assert len(np.unique(rows["position"])) == 20_000


def test_parts_in_packing_order_give_a_shard_two_ranges() -> None:
    shards = list(shards_of(DrawnJob.drawn(50_000, tables=False)))
    assert sum(shard.samples for shard in shards) == shards[-1].stop == 50_000
    assert len(shards) == pytest.approx(50_000 * (PHOTO_BYTES + 2_200) / DEFAULT_SHARD_BYTES, rel=0.05)
    assert max(len(shard.ranges) for shard in shards) <= 3
    assert sum(len(shard.ranges) for shard in shards) < 2 * len(shards) + 1


def test_tables_have_as_many_ranges_as_the_formula_says() -> None:
    ranges = sum(len(shard.ranges) for shard in shards_of(DrawnJob.drawn(200_000, tables=True)))
    assert ranges == pytest.approx(tables_requests(Pack(200_000), 0).ranges, rel=0.06)


def test_a_merge_saves_requests_and_moves_the_bytes_once_more() -> None:
    direct, merged = (tables_requests(Pack(10**8), merges) for merges in (0, 1))
    assert merged.requests < direct.requests / 4
    assert merged.moved_bytes == 2 * direct.moved_bytes


@pytest.mark.parametrize("tables", [False, True])
def test_the_memory_of_a_plan(tables: bool) -> None:
    """Of 10,000,000 records in the long form; the short one has the same limit for each record."""
    order = [sys.executable, "-m", "bench.cluster_simulation", "driver", str(RECORDS), *["--tables"] * tables]
    found = json.loads(subprocess.run(order, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    assert (found["records"], found["tables"]) == (RECORDS, tables)
    most = 97 if tables else 2  # under 1 GB at 10,000,000, and under 2 GB at 1,000,000,000
    assert found["driver_bytes"] < 30_000_000 + most * RECORDS
