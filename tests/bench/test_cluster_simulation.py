"""Tests of bench/cluster_simulation.py: its formulas against plans of drawn records, and a plan's memory."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from checkout import ROOT
from soak import times

from bench.cluster_simulation import PHOTO_BYTES, Pack, drawn_part, planned, tables_requests
from fastpipe.packing.options import DEFAULT_SHARD_BYTES

RECORDS = times(400_000, 10_000_000)


def test_drawn_photos_have_the_size_that_is_said() -> None:
    rows = drawn_part(3, 20_000, 100_000, tables=True)
    assert rows["blob"].mean() == pytest.approx(PHOTO_BYTES, rel=0.02)
    assert len(np.unique(rows["position"])) == 20_000


def test_parts_in_packing_order_give_a_shard_two_ranges() -> None:
    stops, ranges = planned(50_000, tables=False)
    assert stops[-1] == 50_000
    assert len(stops) == pytest.approx(50_000 * (PHOTO_BYTES + 2_200) / DEFAULT_SHARD_BYTES, rel=0.05)
    assert np.diff(ranges.ends, prepend=0).max() <= 3
    assert len(ranges.rows) < 2 * len(stops) + 1


def test_tables_have_as_many_ranges_as_the_formula_says() -> None:
    _, ranges = planned(200_000, tables=True)
    assert len(ranges.rows) == pytest.approx(tables_requests(Pack(200_000), 0).ranges, rel=0.06)


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
    assert 4 * RECORDS < found["driver_bytes"] < 30_000_000 + 97 * RECORDS  # under 1 GB at 10,000,000
