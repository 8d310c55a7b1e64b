"""The memory of the driver in bench/cluster_simulation.py, at many records."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.checkout import ROOT
from support.running.soak import times

from bench.cluster_simulation import Drawn

RECORDS = times(10_000_000, 100_000_000)


MOST_BYTES = 300_000_000  # of the driver, at a billion records


@pytest.mark.parametrize("tables", [False, True])
def test_the_memory_of_the_driver(tables: bool) -> None:
    """Of 100,000,000 records in the long form; the short one has the same limit for each record."""
    order = [
        sys.executable,
        "-m",
        "bench.cluster_simulation",
        "driver",
        str(RECORDS),
        *["--tables"] * tables,
    ]
    found = json.loads(
        subprocess.run(order, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    )
    assert (found["records"], found["tables"], found["shards"]) == (
        RECORDS,
        tables,
        Drawn(RECORDS, tables).shards,
    )
    assert found["driver_bytes"] < 12_000_000 + MOST_BYTES * (1 + tables) * RECORDS // 10**9
