"""Failure 17: without set_epoch, a DistributedSampler gives every epoch the same order."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data.distributed import DistributedSampler

import fastpipe


def test_a_sampler_that_is_not_told_the_epoch() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(
        range(64), num_replicas=2, rank=0, shuffle=True
    )  # type: ignore[arg-type]
    assert list(sampler) == list(sampler)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_fastpipe_counts_its_epochs(flat: Path) -> None:
    with fastpipe.loader(flat, 4, size=32, rank=0, world_size=2, num_workers=1) as loader:
        epochs = [torch.cat([labels for _, labels in loader]).tolist() for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
