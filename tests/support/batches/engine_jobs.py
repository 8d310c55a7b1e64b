"""What the tests of the engine run on it: all samples of a dataset, whole, at a small size."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine.engine import Engine
from fastpipe.engine.jobs import Job
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import Content
from fastpipe.plan.crops import Resize
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

SIZE = (16, 20)


def plan_all(index: PackedIndex, batch_size: int | None = None) -> BatchPlan:
    """All samples (or the first few) in shard order, whole."""
    recipe = Recipe(
        batch_size=batch_size or len(index),
        size=SIZE,
        crop=Resize(),
        flip=0.0,
        shuffle=False,
        drop_last=False,
        seed=0,
        content=Content.of(index),
    )
    return EpochPlan(recipe, 0).batch(0)


def images_for(plan: BatchPlan, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    return np.zeros((len(plan), *size, 3), dtype=np.uint8)


def wait_done(job: Job) -> list[tuple[int, str]]:
    deadline = time.monotonic() + 300
    while not job.wait(1.0):
        assert time.monotonic() < deadline, "the job does not end"
    return job.errors()


def run_all(
    index: PackedIndex, workers: int = 2
) -> tuple[NDArray[np.uint8], list[tuple[int, str]]]:
    plan = plan_all(index)
    images = images_for(plan)
    pool = Engine(index, workers)
    errors = wait_done(pool.submit(plan, (images, True)))
    pool.close()
    return images, errors
