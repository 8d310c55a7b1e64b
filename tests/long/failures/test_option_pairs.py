"""Failures 11 and 12: options that only make sense in pairs: workers for some, a GPU and non_blocking for others."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import fastpipe

NUMBERS: Any = range(8)


def test_options_of_workers_without_workers() -> None:
    with pytest.raises(ValueError, match="persistent_workers option needs num_workers > 0"):
        DataLoader(NUMBERS, persistent_workers=True)
    with pytest.raises(
        ValueError, match="prefetch_factor option could only be specified in multiprocessing"
    ):
        DataLoader(NUMBERS, prefetch_factor=4)


def test_fastpipe_prefetches_with_any_number_of_threads(flat: Path) -> None:
    with pytest.raises(
        fastpipe.ConfigError,
        match=r"no argument persistent_workers: .* threads live as long as the loader",
    ):
        fastpipe.loader(flat, persistent_workers=True)
    for prefetch_factor in (1, 4):
        with fastpipe.loader(
            flat, 8, size=16, num_workers=1, prefetch_factor=prefetch_factor
        ) as loader:
            assert len(list(loader)) == 4


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU here")
def test_pin_memory_without_a_gpu() -> None:
    with pytest.warns(
        UserWarning, match="'pin_memory' argument is set as true but no accelerator is found"
    ):
        batches = list(DataLoader(NUMBERS, pin_memory=True))
    assert not any(batch.is_pinned() for batch in batches)


def test_fastpipe_leaves_no_pinning_to_the_user(flat: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            fastpipe.ConfigError,
            match=r"pin_memory: device=.cuda. already uses pinned memory; leave it out",
        ):
            fastpipe.loader(flat, pin_memory=True)
        with fastpipe.loader(flat, 8, size=16, num_workers=1) as loader:
            assert len(list(loader)) == 4
