"""Tests of the thread that has ranges read ahead: they come into the page cache, and nothing that it meets breaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.batches.engine_jobs import images_for, plan_all, wait_done
from support.datasets.page_cache import PAGE, forget, in_page_cache, lengthened, ranges
from support.running.waiting import wait_until

import fastpipe
from fastpipe import SampleError
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine.engine import Engine


@pytest.fixture
def big(flat: Path, copied: Callable[[Path], Path]) -> Path:
    return lengthened(copied(flat))


@pytest.fixture
def pool(big: Path) -> Iterator[Engine]:
    made = Engine(PackedIndex(big), 1)
    yield made
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's page cache")
def test_a_range_comes_into_the_page_cache_and_its_surroundings_do_not(
    big: Path, pool: Engine
) -> None:
    shard = big / "shard-000000.tar"
    forget(shard)
    first, count = 1024, 1280  # pages: 5 MB from the fourth on
    pool.read_ahead(ranges((0, first * PAGE, count * PAGE)), restart=True)
    wait_until(
        lambda: bool(in_page_cache(shard)[first : first + count].all())
    )  # all of it, however large
    cached = in_page_cache(shard)
    assert not cached[: first - 16].any()
    assert not cached[first + count + 16 :].any()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's page cache")
def test_what_cannot_be_hinted_does_not_keep_the_next_range_waiting(
    big: Path, pool: Engine
) -> None:
    shard = big / "shard-000000.tar"
    forget(shard)
    odd = [
        (7, 0, 4096),
        (2**32 - 1, 0, 4096),
        (0, 2**63, 4096),
        (0, 2**64 - 1, 2**20),
        (0, 2**40, 4096),
        (0, 0, 0),
    ]
    pool.read_ahead(ranges(*odd, (0, 0, 4096)), restart=True)
    wait_until(lambda: bool(in_page_cache(shard)[0]))
    plan = plan_all(PackedIndex(big))
    images = images_for(plan)
    assert wait_done(pool.submit(plan, (images, True))) == []
    assert all(image.any() for image in images)


def test_a_shard_that_is_missing_or_no_file_is_left_to_the_read_to_tell(
    many_shards: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(many_shards)
    index = PackedIndex(dataset)
    index.shards[2].path.unlink()
    os.mkfifo(index.shards[2].path)
    loader_that_raises = fastpipe.loader(dataset, 4, size=16, num_workers=2, train=False)
    index.shards[1].path.unlink()
    with fastpipe.loader(
        dataset, 4, size=16, num_workers=2, on_error="replace", drop_last=False
    ) as loader:
        assert sum(len(labels) for _ in range(3) for _, labels in loader) == 3 * len(index)
        assert loader.stats().replaced > 0
    with (
        loader_that_raises as loader,
        pytest.raises(SampleError, match=r"cannot be opened: No such file(.|\n)*shard-000001\.tar"),
    ):
        list(loader)


def test_a_restart_and_the_end_drop_what_has_not_been_asked_for(big: Path, pool: Engine) -> None:
    def waiting() -> int:
        return int(pool.figures()["hints_waiting"])

    everything = (0, 0, PackedIndex(big).shards[0].size_bytes)
    many = ranges(*[everything] * 100_000)  # 1.2 TB: minutes, even from memory
    pool.read_ahead(many, restart=True)
    pool.read_ahead(ranges(everything, everything), restart=False)
    assert 10_000 < waiting() <= 100_002
    pool.read_ahead(many, restart=False)
    assert 100_002 < waiting() <= 200_002
    pool.read_ahead(ranges(everything, (0, 0, 1)), restart=True)
    assert waiting() <= 2
    wait_until(lambda: waiting() == 0)  # it goes on with what came last
