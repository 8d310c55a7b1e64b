"""A loader's threads, open files and memory, over loaders and epochs: what it takes it gives back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.programs.warm import run_script
from support.running.memory import frees_memory
from support.running.soak import Tried, times

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


SEEN = """
    import gc, json, os, sys
    import fastpipe
    from support.running.process_state import threads, threads_at_rest

    def seen(count_threads):
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
        return count_threads(), len(os.listdir("/proc/self/fd")), resident
"""


@frees_memory
def test_made_broken_out_of_and_deleted(many_shards: Path, tried: Tried) -> None:
    """Closed or dropped, in a cycle or not, with batches kept or not; with the iterator, in mid-epoch."""
    script = f"""{SEEN}
    def once(number):
        loader = fastpipe.loader(sys.argv[1], 2, size=128, num_workers=3, prefetch_factor=1 + number % 4)
        batches = iter(loader)
        kept = [next(batches) for _ in range(number % 5)]
        if number % 3 == 0:
            loader.close()
        elif number % 3 == 1:
            loader._itself = loader, batches
        del loader, batches
        return kept

    once(4)
    gc.collect()
    before = seen(threads_at_rest)
    figures = []
    for number in range(int(sys.argv[2])):
        once(number)
        if number % 20 == 19:
            gc.collect()
            figures.append(seen(threads_at_rest))
    print(json.dumps([before, figures]))
    """
    count = times(200, 2000)
    done = run_script(script, many_shards, count, timeout_s=2 * count)
    assert done.returncode == 0, done.stderr
    before, figures = json.loads(done.stdout)
    assert all(each[:2] == before[:2] for each in figures), (before, figures)
    resident = [each[2] for each in figures]
    assert max(resident[len(resident) // 2 :]) - max(resident[: len(resident) // 2]) < 8, resident
    tried(
        "a loader made, broken out of in mid-epoch, and dropped",
        count,
        "as many threads and open files as before",
    )


@frees_memory
def test_many_epochs(many_shards: Path, tried: Tried) -> None:
    script = f"""{SEEN}
    import torch
    torch.set_num_threads(1)
    augment = fastpipe.Augment.imagenet()
    with fastpipe.loader(sys.argv[1], 4, size=96, num_workers=2, augment=augment) as loader:
        figures = []
        for epoch in range(int(sys.argv[2])):
            for images, labels in loader:
                pass
            del images, labels
            figures.append(seen(threads))
    print(json.dumps(figures))
    """
    warm, count = 5, times(50, 500)
    done = run_script(script, many_shards, warm + count, timeout_s=10 * count)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)[warm:]
    assert len({tuple(each[:2]) for each in figures}) == 1, (
        "as many threads and open files after each epoch"
    )
    slope = np.polyfit(np.arange(count), [each[2] for each in figures], 1)[0]
    sys.stdout.write(f"{count} epochs: resident memory {slope:+.4f} MB an epoch (least squares)\n")
    assert slope < 1
    assert figures[-1][2] - figures[0][2] < 8
    tried(
        "epochs, one after the other",
        count,
        f"threads and open files unchanged; memory {slope:+.2f} MB an epoch",
    )
