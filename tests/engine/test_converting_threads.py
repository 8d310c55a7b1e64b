"""Threads that convert rows which the engine cannot decode: as many as there are such rows at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from fastpipe.engine.conversions import Conversions
from fastpipe.native import _engine

PATIENCE_S = 300.0


@contextmanager
def opened(convert: Callable[[int], bytes], threads: int) -> Iterator[Conversions]:
    conversions = Conversions(convert, threads, np.zeros(16, dtype=np.bool_))
    try:
        yield conversions
    finally:
        conversions.close()


def refuses(sample: int) -> bytes:
    raise ValueError(f"sample {sample}")


def test_one_odd_row_after_another_takes_one_thread() -> None:
    with opened(refuses, 16) as conversions:
        for sample in range(5):
            (ended,) = conversions.begin([sample], np.zeros(1, _engine.TASK_DTYPE), [])
            assert "sample" in str(ended.result(PATIENCE_S))
            while conversions._worker.unfinished:
                pass
        assert conversions.levels()["threads"] == 1


@pytest.mark.parametrize(("rows", "most", "threads"), [(1, 4, 1), (3, 4, 3), (9, 4, 4)])
def test_rows_at_a_time_take_a_thread_each_up_to_the_most(
    rows: int, most: int, threads: int
) -> None:
    release = threading.Event()

    def waits(sample: int) -> bytes:
        release.wait(PATIENCE_S)
        return refuses(sample)

    with opened(waits, most) as conversions:
        found = conversions.begin(list(range(rows)), np.zeros(rows, _engine.TASK_DTYPE), [])
        assert conversions.levels()["threads"] == threads
        release.set()
        assert all(ended.result(PATIENCE_S) is not None for ended in found)
