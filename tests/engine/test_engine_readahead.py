"""Tests of the thread that has ranges read ahead: they come into the page cache, and nothing that it meets breaks."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.batches.engine_jobs import images_for, plan_all, wait_done
from support.running.patience import in_time

import fastpipe
from fastpipe import SampleError
from fastpipe.engine.engine import Engine
from fastpipe.format.index import Index
from fastpipe.plan.order import RANGE_DTYPE

PAGE = mmap.PAGESIZE


def ranges(*parts: tuple[int, int, int]) -> NDArray[np.void]:
    """Of (shard, offset, size) each."""
    return np.array(list(parts), dtype=RANGE_DTYPE)


def in_page_cache(path: Path) -> NDArray[np.bool_]:
    """Which pages of a file are in memory."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
        pages = -(-len(mapped) // PAGE)
        known = (ctypes.c_ubyte * pages)()
        view = ctypes.c_char.from_buffer(mapped)
        mincore = ctypes.CDLL(None, use_errno=True).mincore
        failed = mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(len(mapped)), known)
        del view
        assert failed == 0, os.strerror(ctypes.get_errno())
        return (np.frombuffer(known, np.uint8) & 1).astype(bool)


def forget(path: Path) -> None:
    """Drops a file from the page cache; skips the test where that cannot be."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)  # os.fsync does nothing in tests
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    if in_page_cache(path).any():
        pytest.skip(f"{path} stays in memory: its file system has no other place")


def comes(condition: Callable[[], bool], within_s: float = 10) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def big(flat: Path, copied: Callable[[Path], Path]) -> Path:
    """A dataset whose shard goes on for 12 MB after its samples."""
    dataset = copied(flat)
    shard = dataset / "shard-000000.tar"
    with open(shard, "ab") as file:
        file.write(bytes(range(256)) * (12 * 4096))
    size_bytes = shard.stat().st_size
    description = (dataset / "dataset.json").read_text()
    old = Index(flat).shards[0].size_bytes
    assert description.count(f'"size_bytes": {old}') == 1
    (dataset / "dataset.json").write_text(description.replace(f'"size_bytes": {old}', f'"size_bytes": {size_bytes}'))
    return dataset


@pytest.fixture
def pool(big: Path) -> Iterator[Engine]:
    made = Engine(Index(big), 1)
    yield made
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's page cache")
def test_a_range_comes_into_the_page_cache_and_its_surroundings_do_not(big: Path, pool: Engine) -> None:
    shard = big / "shard-000000.tar"
    forget(shard)
    first, count = 1024, 1280  # pages: 5 MB from the fourth on
    pool.read_ahead(ranges((0, first * PAGE, count * PAGE)), restart=True)
    assert comes(lambda: bool(in_page_cache(shard)[first : first + count].all())), "all of it, however large"
    cached = in_page_cache(shard)
    assert not cached[: first - 16].any()
    assert not cached[first + count + 16 :].any()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's page cache")
def test_what_cannot_be_hinted_does_not_keep_the_next_range_waiting(big: Path, pool: Engine) -> None:
    shard = big / "shard-000000.tar"
    forget(shard)
    odd = [(7, 0, 4096), (2**32 - 1, 0, 4096), (0, 2**63, 4096), (0, 2**64 - 1, 2**20), (0, 2**40, 4096), (0, 0, 0)]
    pool.read_ahead(ranges(*odd, (0, 0, 4096)), restart=True)
    assert comes(lambda: bool(in_page_cache(shard)[0]))
    plan = plan_all(Index(big))
    images = images_for(plan)
    assert wait_done(pool.submit(plan, (images, True))) == []
    assert all(image.any() for image in images)


def test_a_shard_that_is_missing_or_no_file_is_left_to_the_read_to_tell(
    many_shards: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(many_shards)
    index = Index(dataset)
    index.shards[1].path.unlink()
    index.shards[2].path.unlink()
    os.mkfifo(index.shards[2].path)
    with fastpipe.loader(dataset, 4, size=16, num_workers=2, on_error="replace", drop_last=False) as loader:
        assert sum(len(labels) for _ in range(3) for _, labels in loader) == 3 * len(index)
        assert loader.stats().replaced > 0
    with (
        fastpipe.loader(dataset, 4, size=16, num_workers=2, train=False) as loader,
        pytest.raises(SampleError, match=r"cannot be opened: No such file(.|\n)*shard-000001\.tar"),
    ):
        list(loader)


@pytest.mark.serial
def test_closing_drops_what_has_not_been_asked_for(big: Path) -> None:
    pool = Engine(Index(big), 1)
    everything = (0, 0, Index(big).shards[0].size_bytes)
    pool.read_ahead(ranges(*[everything] * 100_000), restart=True)  # 1.2 TB: minutes, even from memory
    time.sleep(0.05)
    started = time.monotonic()
    pool.close()
    assert in_time(time.monotonic() - started, 2)


@pytest.mark.serial
@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's page cache")
def test_a_restart_drops_what_has_not_been_asked_for(big: Path, pool: Engine) -> None:
    shard = big / "shard-000000.tar"
    forget(shard)
    pool.read_ahead(ranges(*[(0, 0, 4 * 2**20)] * 100_000), restart=True)
    pool.read_ahead(ranges((0, 2048 * PAGE, PAGE)), restart=False)
    time.sleep(0.05)
    assert not in_page_cache(shard)[2048], "it waits for its turn"
    pool.read_ahead(ranges((0, 2304 * PAGE, PAGE)), restart=True)
    assert comes(lambda: bool(in_page_cache(shard)[2304]), within_s=60)
    time.sleep(0.05)
    assert not in_page_cache(shard)[2048], "it was dropped"


@pytest.mark.serial
def test_asking_never_waits(big: Path, pool: Engine) -> None:
    everything = (0, 0, Index(big).shards[0].size_bytes)
    pool.read_ahead(ranges(*[everything] * 100_000), restart=True)
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        pool.read_ahead(ranges((0, 0, 4096)), restart=False)
        seconds.append(time.perf_counter() - started)
    assert in_time(float(np.median(seconds)), 0.02)


@pytest.mark.serial
def test_dropping_loaders_in_mid_window_is_quick(many_shards: Path) -> None:
    started = time.monotonic()
    for _ in range(30):
        loader = fastpipe.loader(many_shards, 2, size=16, num_workers=1)
        with contextlib.closing(loader):
            next(iter(loader))
    assert in_time(time.monotonic() - started, 20)
