"""Several crops of one picture, decoded together, have the pixels of each crop decoded by itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.pictures.coefficient_sources import packed, sources
from support.pictures.jpegs import (
    PICTURES,
    WHOLE_ROWS,
    by_pillow,
    encoded,
    picture,
    random_region,
    tiled,
)
from support.pictures.pngs import RGB, png

from fastpipe import _engine
from fastpipe.sources.picture.png import encode_png

SIZES = ((16, 20), (24, 24), (9, 31), (40, 12))


def tasks_of(jpegs: list[bytes], crops: int, rng: np.random.Generator) -> NDArray[np.void]:
    """(pictures, crops) random crops, of files that lie one behind the other."""
    tasks = np.zeros((len(jpegs), crops), dtype=_engine.TASK_DTYPE)
    at = 0
    for row, jpeg in enumerate(jpegs):
        width, height = _engine.picture_size(jpeg)
        for crop in range(crops):
            task = tasks[row, crop]
            task["offset"], task["size"], task["out_row"] = at, len(jpeg), row
            task["width"], task["height"], task["flip"] = width, height, rng.integers(2)
            task["box"] = task["bounds"] = random_region(rng, width, height)
        at += len(jpeg)
    return tasks


def run(
    shard: Path, tasks: NDArray[np.void], outs: list[NDArray[np.uint8]], exact: bool
) -> list[tuple[int, str]]:
    """One job on one thread."""
    engine = _engine.Engine([(os.fsencode(shard), shard.stat().st_size)], 1, 1)
    job = _engine.Job(
        engine,
        np.ascontiguousarray(tasks).ravel(),
        [(out, exact, {}) for out in outs],
        False,
    )
    assert job.wait(60)
    errors = job.errors()
    engine.close(60)
    return errors


def room(rows: int) -> list[NDArray[np.uint8]]:
    return [np.zeros((rows, *size, 3), np.uint8) for size in SIZES]


def jpegs(rng: np.random.Generator) -> list[bytes]:
    """All layouts and tiles, no markers, and pictures that libjpeg decodes."""
    found = []
    for seed in range(120):
        width, height = (int(rng.integers(1, 220)) for _ in range(2))
        rgb = picture(width, height, PICTURES[seed % 4], seed)
        source = encoded(rgb, ("444", "422", "420", "440", "gray", "411")[int(rng.integers(6))])
        tile = int(rng.choice([-1, 0, 8, 16, 48, WHOLE_ROWS]))
        found.append(source if tile < 0 else tiled(source, tile))
    return found


def pngs(rng: np.random.Generator) -> list[bytes]:
    sides = rng.integers(1, 220, (60, 2)).tolist()
    pictures = [picture(*size, PICTURES[seed % 4], seed) for seed, size in enumerate(sides)]
    return [
        encode_png(pixels) if rng.integers(2) else png(pixels, color=RGB, filters=(4, 1, 3))
        for pixels in pictures
    ]


def coefficients(_: np.random.Generator) -> list[bytes]:
    return [packed(source)[1] for source in sources().values()]


@pytest.mark.parametrize("make", [jpegs, pngs, coefficients])
def test_crops_together_have_the_pixels_of_crops_apart(
    make: Callable[[np.random.Generator], list[bytes]], tmp_path: Path
) -> None:
    """All crops of each picture in one job, and each in a job of its own; they share much or nothing."""
    rng = np.random.default_rng(3)
    stored = make(rng)
    shard = tmp_path / "shard"
    shard.write_bytes(b"".join(stored))
    tasks = tasks_of(stored, len(SIZES), rng)
    tasks["coefficients"] = make is coefficients
    for exact in (True, False):
        together, apart = room(len(tasks)), room(len(tasks))
        assert run(shard, tasks, together, exact) == []
        for crop, out in enumerate(apart):
            exact_apart = exact or make is pngs  # PNGs are decoded at no smaller scale
            assert run(shard, tasks[:, crop], [out], exact_apart) == []
        for mine, alone in zip(together, apart, strict=True):
            assert mine.any()
            assert np.array_equal(mine, alone)


def test_a_picture_that_fails_is_named_once_and_leaves_the_others_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    good = [tiled(encoded(picture(90, 70, seed=seed)), 16) for seed in range(4)]
    spoilt = [
        good[0],
        good[1][:-400] + bytes(400),
        by_pillow(picture(90, 70), progressive=True),
        good[3],
    ]
    shard = tmp_path / "shard"
    shard.write_bytes(b"".join(spoilt))
    tasks = tasks_of(good, len(SIZES), rng)
    tasks["size"] = np.array([len(jpeg) for jpeg in spoilt])[:, None]
    tasks["offset"] = np.cumsum([0, *(len(jpeg) for jpeg in spoilt[:-1])])[:, None]
    tasks["box"] = tasks["bounds"] = (0, 0, 90, 70)
    outs, alone = room(4), room(4)
    assert [row for row, _ in run(shard, tasks, outs, True)] == [1, 2]
    for crop, out in enumerate(alone):
        assert [row for row, _ in run(shard, tasks[:, crop], [out], True)] == [1, 2]
        assert np.array_equal(out[[0, 3]], outs[crop][[0, 3]])


def test_tasks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    jpeg = encoded(picture(20, 20))
    shard = tmp_path / "shard"
    shard.write_bytes(jpeg)
    good = tasks_of([jpeg], len(SIZES), np.random.default_rng(0))
    for name, value, words in [
        ("offset", 1, "of one picture"),
        ("out_row", 1, "beyond the images"),
    ]:
        tasks = good.copy()
        tasks[0, 1][name] = value
        with pytest.raises(ValueError, match=words):
            run(shard, tasks, room(1), True)
    with pytest.raises(ValueError, match="one for each crop"):
        run(shard, good[0, :3], room(1), True)
