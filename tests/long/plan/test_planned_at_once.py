"""Batches of a billion samples are ordered, grouped and mixed in no time, and next to nothing is kept."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from support.datasets.billion_samples import Billion, recipe_of
from support.running.patience import in_time

from fastpipe.plan.buckets import Buckets
from fastpipe.plan.draws import bits
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.partition import Partition, Ranks

BUCKETS = Buckets(area=100 * 100, size_divisible=16)


class Photos(Billion):
    """A billion pictures of photos' size and of many shapes."""

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        records = super().read(samples)
        sides = bits(0, np.stack([2 * samples, 2 * samples + 1], axis=1)) % np.uint64(
            300
        ) + np.uint64(30)
        records["width"], records["height"] = sides.T
        return records

    records_of = read


@pytest.mark.serial
def test_a_batch_of_like_shapes_of_a_billion_samples_is_planned_at_once() -> None:
    """The first batch of a window, which groups 4,096 samples of photos' size, and those after it."""

    first, others = [], []
    tracemalloc.start()
    for epoch in range(5):
        started = time.process_time()
        plan = EpochPlan(
            recipe_of(Photos(), crop=BUCKETS, size=BUCKETS.largest, batch_size=256), epoch
        )
        begin = len(plan) // 2 // 16 * 16
        plan.batch(begin)
        first.append(time.process_time() - started)
        for number in range(begin + 1, begin + 4):
            started = time.process_time()
            assert len(np.unique(plan.batch(number).samples)) == 256
            others.append(time.process_time() - started)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert in_time(min(first), 0.05)
    assert in_time(min(others), 0.01)
    assert peak_bytes < 16 * 2**20


@pytest.mark.serial
def test_sixteen_datasets_are_planned_at_once() -> None:
    rows, weights = 10**7 * 256 * 8, [float(weight) for weight in range(1, 17)]
    partition = Partition(rows, 256, drop_last=True, ranks=Ranks(1, 8), weights=weights, epoch=3)
    started = time.process_time()
    for number in range(10**6, 10**6 + 20):
        partition.rank_rows(number)
    assert in_time((time.process_time() - started) / 20, 0.005)
