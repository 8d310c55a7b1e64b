"""Failure 14: workers start anew with every epoch, and nobody makes its first batches before it has begun."""

from __future__ import annotations

import os
import time
from pathlib import Path

from support.programs.children import run

import fastpipe

_LOADER = """
    import json, os, time
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, number):
            time.sleep(0.1)
            return os.getpid()

    def start(worker):
        time.sleep(0.5)  # as opening a large data set does

    def epochs(persistent):
        loader = DataLoader(
            Slow(), batch_size=2, num_workers=2, persistent_workers=persistent, worker_init_fn=start,
            multiprocessing_context="fork",
        )
        found = []
        for epoch in range(2):
            began = time.monotonic()
            first = None
            workers = set()
            for batch in loader:
                first = first or time.monotonic() - began
                workers.update(batch.tolist())
            found.append([first, sorted(workers)])
            time.sleep(0.4)  # as a validation does: time enough for the next epoch's first batch
        return found

    print(json.dumps([epochs(False), epochs(True)]))
"""


def test_every_epoch_waits_for_its_workers() -> None:
    ((_, workers), (wait_s, others)), ((_, kept), (kept_wait_s, still)) = run(_LOADER).figures()
    assert not set(workers) & set(others), "processes end with their epoch"
    assert wait_s > 0.7
    assert kept == still, "persistent_workers keeps them"
    assert kept_wait_s > 0.2, "but they begin with an epoch's first batch when it is asked for"


def test_fastpipe_begins_the_next_epoch_before_this_one_ends(flat: Path) -> None:
    with fastpipe.loader(flat, 4, size=16, num_workers=2, prefetch_factor=2) as loader:
        list(loader)
        threads = set(os.listdir("/proc/self/task"))
        list(loader)  # who iterates twice will do so again
        given_up = time.monotonic() + 300
        while (
            loader.stats().images_decoded < 4 * (2 * len(loader) + 2)
            and time.monotonic() < given_up
        ):
            time.sleep(0.01)
        assert loader.stats().images_decoded == 4 * (2 * len(loader) + 2), (
            "two batches of the third epoch are there"
        )
        list(loader)
        assert set(os.listdir("/proc/self/task")) == threads
