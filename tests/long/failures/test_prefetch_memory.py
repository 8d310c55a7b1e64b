"""Failure 7: `prefetch_factor` counts for each worker, so more workers fill more memory with batches."""

from __future__ import annotations

import time
from pathlib import Path

from support.programs.children import run

import fastpipe


def test_batches_ahead_grow_with_the_workers() -> None:
    script = """
        import json, multiprocessing, time
        from torch.utils.data import DataLoader, Dataset

        class Counted(Dataset):
            begun = multiprocessing.get_context("fork").Value("i", 0)

            def __len__(self):
                return 1000

            def __getitem__(self, number):
                with self.begun.get_lock():
                    self.begun.value += 1
                return number

        def ahead(workers, prefetch_factor):
            Counted.begun.value = 0
            batches = iter(DataLoader(
                Counted(), batch_size=5, num_workers=workers, prefetch_factor=prefetch_factor,
                multiprocessing_context="fork",
            ))
            next(batches)
            given_up = time.monotonic() + 300
            while Counted.begun.value < 5 * (1 + workers * prefetch_factor) and time.monotonic() < given_up:
                time.sleep(0.01)
            time.sleep(0.3)  # no more than that
            return Counted.begun.value / 5 - 1

        print(json.dumps([ahead(2, 2), ahead(4, 2), ahead(4, 8)]))
    """
    assert run(script).figures() == [4, 8, 32]


def test_fastpipe_counts_batches_ahead_once(flat: Path) -> None:
    for workers in (1, 8):
        with fastpipe.loader(flat, 2, size=16, num_workers=workers, prefetch_factor=3) as loader:
            batches = iter(loader)
            next(batches)
            given_up = time.monotonic() + 300
            while loader.stats().images_decoded < 2 * (1 + 3) and time.monotonic() < given_up:
                time.sleep(0.01)
            time.sleep(0.3)  # no more than that
            assert loader.stats().images_decoded == 2 * (1 + 3), (
                "the batch handed out, and three ahead"
            )
