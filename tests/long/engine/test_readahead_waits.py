"""The thread that has ranges read ahead keeps nobody waiting, whatever is still to be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.datasets.page_cache import lengthened, ranges
from support.running.patience import in_time

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


@pytest.mark.serial
def test_closing_drops_what_has_not_been_asked_for(big: Path) -> None:
    pool = Engine(PackedIndex(big), 1)
    everything = (0, 0, PackedIndex(big).shards[0].size_bytes)
    pool.read_ahead(
        ranges(*[everything] * 100_000), restart=True
    )  # 1.2 TB: minutes, even from memory
    time.sleep(0.05)
    started = time.monotonic()
    pool.close()
    assert in_time(time.monotonic() - started, 2)


@pytest.mark.serial
def test_asking_never_waits(big: Path, pool: Engine) -> None:
    everything = (0, 0, PackedIndex(big).shards[0].size_bytes)
    pool.read_ahead(ranges(*[everything] * 100_000), restart=True)
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        pool.read_ahead(ranges((0, 0, 4096)), restart=False)
        seconds.append(time.perf_counter() - started)
    assert in_time(float(np.median(seconds)), 0.02)
