"""Datasets of more samples than fit on a disk: their index is a hole, but for the records that a test comes to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastpipe.dataset.format.description import with_self_checksum
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, shard_name
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.plan.content import Content
from fastpipe.plan.crops import Resize
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

JPEG_BYTES = 110_000
SAMPLES_PER_SHARD = 9_000  # 1 GB


def records_of(samples: NDArray[np.int64]) -> NDArray[np.void]:
    """What the index would say of some samples, had they been packed."""
    records = np.zeros(len(samples), dtype=INDEX_DTYPE)
    records["shard"] = samples // SAMPLES_PER_SHARD
    records["offset"] = samples % SAMPLES_PER_SHARD * (JPEG_BYTES + 1536)
    records["size"], records["width"], records["height"] = JPEG_BYTES, 500, 375
    records["channels"], records["bits"] = 3, 8
    records["label"] = samples % 1000
    return records


def sparse(dataset: Path, flat: Path, samples: int) -> NDArray[np.void]:
    """Describes a dataset of so many samples, in a folder; its records, all of them a hole."""
    info = json.loads((flat / DATASET_FILE).read_text())
    starts = range(0, samples, SAMPLES_PER_SHARD)
    shard = {**info["shards"][0], "size_bytes": SAMPLES_PER_SHARD * (JPEG_BYTES + 1536)}
    shards = [
        {**shard, "name": shard_name(number), "samples": min(SAMPLES_PER_SHARD, samples - start)}
        for number, start in enumerate(starts)
    ]
    info |= {
        "samples": samples,
        "jpeg_bytes": samples * JPEG_BYTES,
        "classes": [str(number) for number in range(1000)],
        "class_counts": [samples // 1000] * 1000,
        "forms": [{"channels": 3, "bits": 8, "samples": samples}],
        "shards": shards,
    }
    _, text = with_self_checksum(info)
    (dataset / DATASET_FILE).write_bytes(text)
    try:
        return np.lib.format.open_memmap(
            dataset / INDEX_FILE, mode="w+", dtype=INDEX_DTYPE, shape=(samples,)
        )
    except OSError as problem:
        pytest.skip(f"no file of {54 * samples:,} bytes here: {problem}")


def needed_samples(dataset: Path, batch_size: int, batches: int) -> NDArray[np.int64]:
    """The samples of so many batches from the middle of an epoch on, and the ends of what is read ahead for them."""
    index = PackedIndex(dataset)
    plan = EpochPlan(
        Recipe(batch_size, (224, 224), Resize(), 0.5, True, True, 0, Content.of(index)), 0
    )
    start = len(plan) // 2 * batch_size
    stop = start + batches * batch_size
    order = plan.orders[0]
    runs = order.reads(start, stop, is_first=True, runs=True)
    shard_ends = [
        index.shard_starts[np.unique(runs // SAMPLES_PER_SHARD)] + edge for edge in (-1, 0)
    ]
    needed = np.concatenate([order.take(start, stop).ids, runs[:, 0], runs[:, 1] - 1, *shard_ends])
    return np.unique(needed[needed >= 0])


def with_records(dataset: Path, flat: Path, samples: int, batch_size: int, batches: int) -> Path:
    """A dataset of so many samples, with the records of the middle batches; it is written to a folder."""
    records = sparse(dataset, flat, samples)
    needed = needed_samples(dataset, batch_size, batches)
    records[needed] = records_of(needed)
    return dataset
