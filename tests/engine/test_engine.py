"""Tests of the native engine by way of its Python side: right rows, and a status of its own for each that fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.batches.engine_jobs import SIZE, images_for, plan_all, run_all, wait_done
from support.datasets.packed import damage, pillow_picture
from support.running.process_state import open_shards

from fastpipe import _engine
from fastpipe.dataset.format.layout import INDEX_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine import limits
from fastpipe.engine.engine import Engine
from fastpipe.engine.tasks import tasks_of

Copy = Callable[[Path], Path]


def test_rows_are_the_pictures(textured: Path) -> None:
    index = PackedIndex(textured)
    images, errors = run_all(index)
    assert errors == []
    for sample, row in enumerate(images):
        picture = np.asarray(pillow_picture(index, sample))
        expected = _engine.resize(picture, *SIZE)
        assert np.abs(row.astype(int) - expected).mean() < 0.5


def test_rows_do_not_depend_on_the_threads(textured: Path) -> None:
    by_one, _ = run_all(PackedIndex(textured), 1)
    for workers in (2, 5):
        images, errors = run_all(PackedIndex(textured), workers)
        assert errors == []
        assert np.array_equal(images, by_one)


def test_few_threads_compute_for_one_cpu(large: Path) -> None:
    """As many as keep it busy, one more, and what reading takes; tests/long/engine/test_calling.py has slow reads."""
    index = PackedIndex(large)
    plan = plan_all(index)
    files = [(os.fsencode(shard.path), shard.size_bytes) for shard in index.shards]
    for cpus, least, most in ((1, 1, 6), (16, 4, 16)):
        engine = _engine.Engine(files, 16, 1, [], cpus)
        tasks = tasks_of(index, plan)
        images = images_for(plan, (448, 448))
        jobs = [_engine.Job(engine, tasks, [(images, True, {})], False) for _ in range(60)]
        assert jobs[14].wait(300), "by then it has measured what threads do"
        busy = []
        while not jobs[-1].wait(0):
            busy.append(engine.levels()["threads_busy"])
        engine.close(60)
        assert least <= max(busy), cpus
        # On a busy machine threads wait for a CPU, which at first looks like waiting for reads.
        settled = busy[len(busy) // 2 :]
        assert max(settled) <= most, cpus


def test_an_engine_can_be_closed_twice(textured: Path) -> None:
    engine = Engine(PackedIndex(textured), 2)
    assert engine._engine.close(60)
    assert engine._engine.close(60), "it is closed, so nothing is left to wait for"


def test_rows_can_go_anywhere_in_the_batch(textured: Path) -> None:
    index = PackedIndex(textured)
    whole, _ = run_all(index)
    plan = plan_all(index, batch_size=4)
    images = np.full((9, *SIZE, 3), 7, dtype=np.uint8)
    pool = Engine(index, 2)
    assert wait_done(pool.submit(plan, (images, True), places=np.array([8, 0, 3, 5]))) == []
    pool.close()
    assert np.array_equal(images[[8, 0, 3, 5]], whole[:4])
    assert (images[[1, 2, 4, 6, 7]] == 7).all()


def test_a_shard_that_is_missing_or_a_folder_fails_its_rows_only(
    many_shards: Path, copied: Copy
) -> None:
    index = PackedIndex(copied(many_shards))
    index.shards[1].path.unlink()
    index.shards[2].path.unlink()
    index.shards[2].path.mkdir()
    images, errors = run_all(index)
    shards = index.records["shard"]
    gone = np.flatnonzero((shards == 1) | (shards == 2)).tolist()
    assert [row for row, _ in errors] == gone
    missing = {reason for row, reason in errors if shards[row] == 1}
    assert missing == {"the shard cannot be opened: No such file or directory"}
    assert all(image.any() for row, image in enumerate(images) if row not in gone)


def test_a_shard_of_another_size_is_refused(many_shards: Path, copied: Copy) -> None:
    index = PackedIndex(copied(many_shards))
    shard = index.shards[2]
    for change in (-5000, -1, 1, 512):
        os.truncate(shard.path, shard.size_bytes + change)
        _, errors = run_all(index)
        assert [row for row, _ in errors] == np.flatnonzero(index.records["shard"] == 2).tolist()
        for _, reason in errors:
            assert reason.startswith("the shard has changed since it was packed: ")
            assert f"expected {shard.size_bytes} bytes, found {shard.size_bytes + change}" in reason


def test_a_bad_jpeg_fails_its_row_only(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    for sample in (4, 17):
        damage(dataset, sample)
    images, errors = run_all(PackedIndex(dataset))
    assert [row for row, _ in errors] == [4, 17]
    assert all(reason.startswith("the bytes are not a JPEG") for _, reason in errors)
    good = [row for row in range(len(images)) if row not in (4, 17)]
    assert np.array_equal(images[good], run_all(PackedIndex(textured))[0][good])


def test_a_jpeg_of_other_dimensions_than_the_index_has(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    records = np.load(dataset / INDEX_FILE)
    width, height = int(records["width"][3]), int(records["height"][3])
    records["width"][3] = width - 1
    np.save(dataset / INDEX_FILE, records)
    _, errors = run_all(PackedIndex(dataset))
    reason = (
        "the JPEG's dimensions differ from the index: "
        f"the index says {width - 1} x {height}, the image {width} x {height}"
    )
    assert errors == [(3, reason)]


def test_a_crop_outside_the_picture_is_a_failed_row(textured: Path) -> None:
    index = PackedIndex(textured)
    plan = plan_all(index, batch_size=3)
    pool = Engine(index, 1)
    nan = float("nan")
    for box in ((-1, 0, 5, 5), (0, 0, 1e6, 5), (0, 0, 0, 5), (0, 0, nan, 5), (nan, 0, 5, 5)):
        plan.crops.boxes[1] = box
        errors = wait_done(pool.submit(plan, (images_for(plan), True)))
        assert [row for row, _ in errors] == [1]
        assert errors[0][1].startswith("the crop is not inside the image")
    pool.close()


def test_few_shards_are_open_at_a_time(many_shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = PackedIndex(many_shards)
    expected, _ = run_all(index)
    monkeypatch.setattr(limits, "_MAX_OPEN_SHARDS", 2)
    plan = plan_all(index)
    pool = Engine(index, 3)
    assert open_shards(many_shards) == 0
    for _ in range(3):
        images = images_for(plan)
        assert wait_done(pool.submit(plan, (images, True))) == []
        assert np.array_equal(images, expected)
        assert 1 <= open_shards(many_shards) <= 2
    pool.close()
    assert open_shards(many_shards) == 0


def test_counters_count(large: Path) -> None:
    index = PackedIndex(large)
    plan = plan_all(index)
    pool = Engine(index, 2)
    for times in (1, 2):
        wait_done(pool.submit(plan, (images_for(plan), True)))
        counters = pool.figures()
        assert counters["images_read"] == counters["images_decoded"] == times * len(plan)
        assert counters["bytes_read"] == times * index.jpeg_bytes
        assert (
            1 <= counters["shards_opened"] <= 2
        )  # threads that find it closed at the same time each open it
        assert counters["images_failed"] == 0
        assert min(counters["read_s"], counters["decode_s"], counters["resize_s"]) > 0
    pool.close()


class TestBindings:
    """What the extension refuses before it starts anything."""

    def test_images_of_the_wrong_kind(self, large: Path) -> None:
        index = PackedIndex(large)
        plan = plan_all(index)
        pool = Engine(index, 1)
        good = images_for(plan)
        read_only = images_for(plan)
        read_only.flags.writeable = False
        wrong = [
            good[..., :2],
            good[:, :, ::2],
            good[0, 0, 0],
            good[:, :0],
            read_only,
            good[: len(plan) - 1],
        ]
        for images in wrong:
            with pytest.raises(ValueError, match=r"images|out_row|writ"):
                pool.submit(plan, (images, True))
        with pytest.raises(ValueError, match="images: expected"):
            pool.submit(plan, (good.astype(np.float32), True))  # type: ignore[arg-type]
        pool.close()

    def test_no_threads(self) -> None:
        with pytest.raises(ValueError, match="threads must be at least 1"):
            _engine.Engine([], 0, 1)

    def test_a_shard_that_is_not_listed(self, large: Path) -> None:
        index = PackedIndex(large)
        plan = plan_all(index, batch_size=1)
        plan.records["shard"][0] = 5
        pool = Engine(index, 1)
        errors = wait_done(pool.submit(plan, (images_for(plan), True)))
        assert errors == [(0, "the shard cannot be opened: the index names shard 5 of 1")]
        pool.close()
