"""A dataset of millions of samples is opened and planned without reading its index; tests/long has a billion."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
from support.datasets.sparse_index import JPEG_BYTES, SAMPLES_PER_SHARD, records_of, with_records

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.plan.content import Content
from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

SAMPLES = 10_000_000
BATCH_SIZE = 64
BATCHES = 4


def test_ten_million_samples(flat: Path, tmp_path: Path) -> None:
    dataset = with_records(tmp_path, flat, SAMPLES, BATCH_SIZE, BATCHES)
    tracemalloc.start()
    index = PackedIndex(dataset)
    assert len(index) == SAMPLES
    assert len(index.shards) == -(-SAMPLES // SAMPLES_PER_SHARD)
    assert index.jpeg_bytes == SAMPLES * JPEG_BYTES
    recipe = Recipe(
        BATCH_SIZE, (224, 224), RandomResizedCrop(), 0.5, True, True, 0, Content.of(index)
    )
    plan = EpochPlan(recipe, 0)
    assert len(plan) == SAMPLES // BATCH_SIZE
    seen: list[int] = []
    for number in range(len(plan) // 2, len(plan) // 2 + BATCHES):
        batch = plan.batch(number)
        plan.reads(number, batch, is_first=not seen)
        assert np.array_equal(batch.records, records_of(batch.samples))
        assert np.array_equal(batch.labels, batch.samples % 1000)
        seen += batch.samples.tolist()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(seen)) == BATCHES * BATCH_SIZE
    assert peak_bytes < 8 << 20, "54 bytes a sample would be 540 MB"
