"""Cutting samples into shards by columns: the same as adding them one by one; and its memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory import PEAK

from fastpipe.format import tar_writer as tar
from fastpipe.packing.steps import cut as cutting
from fastpipe.packing.steps.cut import cut, most_blocks


def one_by_one(blocks: list[int], shard_size: int) -> tuple[list[int], list[int]]:
    """As ShardSeries and ShardWriter do it."""
    stops, samples = [], []
    size = count = 0
    for position, each in enumerate(blocks):
        if not each:
            continue
        end = size + each * tar.BLOCK
        if count and end + len(tar.end(end)) > shard_size:
            stops.append(position)
            samples.append(count)
            size = count = 0
        size, count = size + each * tar.BLOCK, count + 1
    if count:
        stops.append(len(blocks))
        samples.append(count)
    return stops, samples


@given(
    st.lists(st.integers(0, 60) | st.sampled_from([0, 195, 196, 400]), max_size=80),
    st.integers(100_000, 130_000),
    st.sampled_from([1, 2, 7, 1 << 16]),
)
def test_shards_are_cut_as_if_samples_came_one_by_one(blocks: list[int], shard_size: int, window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "_WINDOW", window)
        assert cut(np.array(blocks, np.uint32), most_blocks(shard_size)) == one_by_one(blocks, shard_size)


MEMORY = f"""
import numpy as np
from fastpipe.packing.steps.cut import cut, most_blocks

{PEAK}
before = peak_bytes()
blocks = np.random.default_rng(1).integers(100, 300, 10_000_000, np.uint32)
stops, samples = cut(blocks, most_blocks(256_000_000))
print(len(stops), sum(samples), peak_bytes() - before)
"""


def test_ten_million_samples_take_little_memory() -> None:
    ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    shards, samples, size_bytes = map(int, ran.stdout.split())
    assert samples == 10_000_000
    assert 3_900 < shards < 4_100
    assert size_bytes < 100 << 20
