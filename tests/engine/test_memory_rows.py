"""Tests of the engine's rows from memory: what its binding refuses, and its errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support.pictures.jpegs import noise_jpeg

from fastpipe import _engine

WIDTH, HEIGHT, SIDE = 60, 50, 16
DATA = noise_jpeg(WIDTH, HEIGHT, "420")


def tasks(count: int, **values: Any) -> np.ndarray:
    made = np.zeros(count, dtype=_engine.TASK_DTYPE)
    made["box"] = made["bounds"] = (0, 0, WIDTH, HEIGHT)
    made["width"], made["height"], made["size"] = WIDTH, HEIGHT, len(DATA)
    made["out_row"] = np.arange(count)
    for name, value in values.items():
        made[name] = value
    return made


def room(rows: int) -> np.ndarray:
    return np.zeros((rows, SIDE, SIDE, 3), dtype=np.uint8)


def test_rows_do_not_depend_on_threads_or_layout() -> None:
    jpegs = [
        noise_jpeg(WIDTH, HEIGHT, sampling) for sampling in ("420", "444", "422", "gray", "440")
    ]
    sizes = [len(jpeg) for jpeg in jpegs]
    expected = room(5)
    for row, jpeg in enumerate(jpegs):
        expected[row] = _engine.resize(_engine.decode(jpeg), SIDE, SIDE)
    order = np.array([3, 0, 4, 1, 2])
    given = tasks(5, out_row=order, size=[sizes[row] for row in order])
    for threads, planar in itertools.product([1, 2, 8], [False, True]):
        out = np.zeros((5, 3, SIDE, SIDE) if planar else (5, SIDE, SIDE, 3), dtype=np.uint8)
        assert (
            _engine.fill_rows([jpegs[row] for row in order], given, out, True, threads, planar)
            == []
        )
        assert np.array_equal(out.transpose(0, 2, 3, 1) if planar else out, expected), (
            threads,
            planar,
        )


@pytest.mark.parametrize("threads", [1, 3])
def test_a_damaged_row_leaves_the_others(threads: int) -> None:
    cut = DATA[: len(DATA) // 2]
    given = tasks(4, size=[len(DATA), len(cut), len(DATA), len(DATA)])
    given["width"][3] = WIDTH + 1
    out = room(4)
    failed = _engine.fill_rows([DATA, cut, DATA, DATA], given, out, True, threads)
    assert [row for row, _ in failed] == [1, 3]
    assert "truncated" in failed[0][1]
    assert np.array_equal(out[0], out[2])
    assert out[0].any()


def test_no_rows() -> None:
    assert _engine.fill_rows([], tasks(0), room(0), True, 2) == []


@pytest.mark.parametrize(
    ("pictures", "given", "out", "words"),
    [
        ([DATA], tasks(2), room(2), "one for each picture"),
        ([DATA], tasks(1, size=len(DATA) + 1), room(1), "size differs"),
        ([DATA], tasks(1, out_row=1), room(1), "out_row lies beyond"),
        ([DATA], tasks(1), room(1)[0], "images: expected"),
        ([DATA], tasks(1), room(1)[:, ::2], "images: expected"),
        ([DATA], tasks(1), np.zeros((1, 3, SIDE, SIDE), np.uint8), "images: expected"),
    ],
)
def test_what_would_leave_memory_is_refused(
    pictures: Any, given: Any, out: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        _engine.fill_rows(pictures, given, out, True)


def test_threads_and_memory_that_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="threads must be at least 1"):
        _engine.fill_rows([DATA], tasks(1), room(1), True, 0)
    fixed = room(1)
    fixed.setflags(write=False)
    with pytest.raises(ValueError, match="not writeable"):
        _engine.fill_rows([DATA], tasks(1), fixed, True)
    with pytest.raises(TypeError):
        _engine.fill_rows([bytearray(DATA)], tasks(1), room(1), True)
