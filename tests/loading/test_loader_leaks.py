"""A loader's threads and open files: what it takes it gives back. Memory is measured in tests/long/loading.

Each test is a program of its own: in a process with other tests, threads of servers and of obstore's runtime end
at times of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.programs.warm import run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BEGIN = """
    import gc, sys
    from pathlib import Path
    import fastpipe
    from support.running.process_state import open_files, threads, threads_at_rest

    folder = Path(sys.argv[1])
"""


def run(script: str, folder: Path) -> None:
    done = run_script(BEGIN + script, folder)
    assert done.returncode == 0, done.stderr


def test_breaking_out_leaks_nothing(large: Path) -> None:
    script = """
    with fastpipe.loader(folder, 2, size=64, num_workers=3, prefetch_factor=4) as loader:
        next(iter(loader))  # the shard is open from now on
        before = threads_at_rest(), open_files(folder)
        for _ in range(50):
            for _batch in loader:
                break
        assert (threads_at_rest(), open_files(folder)) == before
        assert len(list(loader)) == len(loader)
    """
    run(script, large)


def test_no_thread_before_the_loader_and_none_after(textured: Path) -> None:
    script = """
    with fastpipe.loader(folder, 4, size=24) as loader:
        list(loader)  # what a process has once is there from now on
    before = threads_at_rest()
    with fastpipe.loader(folder, 4, size=24, num_workers=5) as loader:
        assert threads() == before + 5 + 1  # one reads ahead
        list(loader)
        assert threads() == before + 5 + 1
    assert threads_at_rest() == before
    """
    run(script, textured)


def test_loaders_that_are_dropped_give_all_back(many_shards: Path) -> None:
    """Closed or not, in a cycle or not, with batches kept or not; each in mid-epoch."""
    script = """
    with fastpipe.loader(folder, 2, size=16) as loader:
        list(loader)
    del loader
    gc.collect()
    before = threads_at_rest(), open_files(folder)
    kept = []
    for number in range(6):
        loader = fastpipe.loader(folder, 2, size=64, num_workers=3, prefetch_factor=1 + number % 4)
        batches = iter(loader)
        kept.append([next(batches) for _ in range(number % 3)])
        if number % 3 == 0:
            loader.close()
        elif number % 3 == 1:
            loader._itself = loader, batches
        del loader, batches
    gc.collect()
    assert (threads_at_rest(), open_files(folder)) == before
    """
    run(script, many_shards)
