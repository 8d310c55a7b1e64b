"""A loader's threads and open files: what it takes it gives back. Memory is measured in tests/long/loading."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
from support.running.process_state import open_files, threads, threads_at_rest

import fastpipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(autouse=True)
def no_threads_of_earlier_tests() -> None:
    """A loader of an earlier test that lies in a cycle keeps its threads until the collector runs."""
    gc.collect()


def test_breaking_out_leaks_nothing(large: Path) -> None:
    with fastpipe.loader(large, 2, size=64, num_workers=3, prefetch_factor=4) as loader:
        next(iter(loader))  # the shard is open from now on
        before = threads_at_rest(), open_files(large)
        for _ in range(50):
            for _batch in loader:
                break
        assert (threads_at_rest(), open_files(large)) == before
        assert len(list(loader)) == len(loader)


def test_no_thread_before_the_loader_and_none_after(textured: Path) -> None:
    before = threads_at_rest()
    with fastpipe.loader(textured, 4, size=24, num_workers=5) as loader:
        assert threads() == before + 5 + 1  # one reads ahead
        list(loader)
        assert threads() == before + 5 + 1
    assert threads_at_rest() == before


def test_loaders_that_are_dropped_give_all_back(many_shards: Path) -> None:
    """Closed or not, in a cycle or not, with batches kept or not; each in mid-epoch."""
    with fastpipe.loader(many_shards, 2, size=16) as loader:
        list(loader)
    del loader
    gc.collect()
    before = threads_at_rest(), open_files(many_shards)
    kept = []
    for number in range(6):
        loader = fastpipe.loader(
            many_shards, 2, size=64, num_workers=3, prefetch_factor=1 + number % 4
        )
        batches = iter(loader)
        kept.append([next(batches) for _ in range(number % 3)])
        if number % 3 == 0:
            loader.close()
        elif number % 3 == 1:
            loader._itself = loader, batches
        del loader, batches
    gc.collect()
    assert (threads_at_rest(), open_files(many_shards)) == before
