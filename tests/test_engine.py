"""Tests of the native engine by way of its Python side: a status a row, and an orderly end whatever happens."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import damage, pillow_picture, run_script
from numpy.typing import NDArray

from fastpipe import _engine, engine
from fastpipe.config import Resize
from fastpipe.engine import Engine, Job
from fastpipe.errors import EngineError
from fastpipe.format import INDEX_FILE
from fastpipe.index import Index
from fastpipe.plan import BatchPlan, EpochPlan, Recipe

SIZE = (16, 20)
Copy = Callable[[Path], Path]


def plan_all(index: Index, batch_size: int | None = None) -> BatchPlan:
    """All samples (or the first few) in shard order, whole."""
    recipe = Recipe(
        batch_size=batch_size or len(index),
        size=SIZE,
        crop=Resize(),
        flip=0.0,
        shuffle=False,
        drop_last=False,
        seed=0,
    )
    return EpochPlan(index, recipe, 0).batch(0)


def images_for(plan: BatchPlan, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    return np.zeros((len(plan), *size, 3), dtype=np.uint8)


def wait_done(job: Job) -> list[tuple[int, str]]:
    deadline = time.monotonic() + 20
    while not job.wait(1.0):
        assert time.monotonic() < deadline, "the job does not end"
    return job.errors()


def run_all(index: Index, workers: int = 2) -> tuple[NDArray[np.uint8], list[tuple[int, str]]]:
    plan = plan_all(index)
    images = images_for(plan)
    pool = Engine(index, workers)
    errors = wait_done(pool.submit(plan, images, exact=True))
    pool.close()
    return images, errors


def open_shards() -> int:
    names = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            names.append(os.readlink(link))
        except OSError:
            continue
    return sum(name.endswith(".tar") for name in names)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def pool(large: Path) -> Iterator[Engine]:
    made = Engine(Index(large), 2)
    yield made
    made.close()


def test_rows_are_the_pictures(textured: Path) -> None:
    index = Index(textured)
    images, errors = run_all(index)
    assert errors == []
    for sample, row in enumerate(images):
        picture = np.asarray(pillow_picture(index, sample))
        expected = _engine.resize(picture, *SIZE)
        assert np.abs(row.astype(int) - expected).mean() < 0.5


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_rows_do_not_depend_on_the_threads(textured: Path, workers: int) -> None:
    images, errors = run_all(Index(textured), workers)
    assert errors == []
    assert np.array_equal(images, run_all(Index(textured), 1)[0])


def test_rows_can_go_anywhere_in_the_batch(textured: Path) -> None:
    index = Index(textured)
    whole, _ = run_all(index)
    plan = plan_all(index, batch_size=4)
    images = np.full((9, *SIZE, 3), 7, dtype=np.uint8)
    pool = Engine(index, 2)
    assert wait_done(pool.submit(plan, images, exact=True, rows=np.array([8, 0, 3, 5]))) == []
    pool.close()
    assert np.array_equal(images[[8, 0, 3, 5]], whole[:4])
    assert (images[[1, 2, 4, 6, 7]] == 7).all()


def test_a_missing_shard_fails_its_rows_only(many_shards: Path, copied: Copy) -> None:
    index = Index(copied(many_shards))
    index.shards[1].path.unlink()
    images, errors = run_all(index)
    gone = np.flatnonzero(index.records["shard"] == 1).tolist()
    assert [row for row, _ in errors] == gone
    assert {reason for _, reason in errors} == {"the shard cannot be opened: No such file or directory"}
    assert all(image.any() for row, image in enumerate(images) if row not in gone)


@pytest.mark.parametrize("change", [-1, -5000, 1, 512])
def test_a_shard_of_another_size_is_refused(many_shards: Path, copied: Copy, change: int) -> None:
    index = Index(copied(many_shards))
    shard = index.shards[2]
    os.truncate(shard.path, shard.size_bytes + change)
    _, errors = run_all(index)
    assert [row for row, _ in errors] == np.flatnonzero(index.records["shard"] == 2).tolist()
    for _, reason in errors:
        assert reason.startswith("the shard is not the one that was packed: ")
        assert f"expected {shard.size_bytes} bytes, found {shard.size_bytes + change}" in reason


def test_a_shard_that_is_a_folder(many_shards: Path, copied: Copy) -> None:
    index = Index(copied(many_shards))
    index.shards[0].path.unlink()
    index.shards[0].path.mkdir()
    _, errors = run_all(index)
    assert [row for row, _ in errors] == np.flatnonzero(index.records["shard"] == 0).tolist()


def test_a_bad_jpeg_fails_its_row_only(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    for sample in (4, 17):
        damage(dataset, sample)
    images, errors = run_all(Index(dataset))
    assert [row for row, _ in errors] == [4, 17]
    assert all(reason.startswith("the bytes are not a JPEG") for _, reason in errors)
    good = [row for row in range(len(images)) if row not in (4, 17)]
    assert np.array_equal(images[good], run_all(Index(textured))[0][good])


def test_a_jpeg_of_other_dimensions_than_the_index_has(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    records = np.load(dataset / INDEX_FILE)
    width, height = int(records["width"][3]), int(records["height"][3])
    records["width"][3] = width - 1
    np.save(dataset / INDEX_FILE, records)
    _, errors = run_all(Index(dataset))
    reason = (
        "the JPEG's dimensions are not those of the index: "
        f"the index says {width - 1} x {height}, the JPEG {width} x {height}"
    )
    assert errors == [(3, reason)]


@pytest.mark.parametrize(
    "box", [(-1, 0, 5, 5), (0, 0, 1e6, 5), (0, 0, 0, 5), (0, 0, float("nan"), 5), (float("nan"), 0, 5, 5)]
)
def test_a_crop_outside_the_picture_is_a_failed_row(textured: Path, box: tuple[float, ...]) -> None:
    index = Index(textured)
    plan = plan_all(index, batch_size=3)
    plan.crops.boxes[1] = box
    pool = Engine(index, 1)
    errors = wait_done(pool.submit(plan, images_for(plan), exact=True))
    pool.close()
    assert [row for row, _ in errors] == [1]
    assert errors[0][1].startswith("the crop does not lie inside the image")


def test_close_twice_and_use_after_close(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    pool.close()
    pool.close()
    with pytest.raises(EngineError, match=r"closed; make a new one with fastpipe\.loader"):
        pool.submit(plan, images_for(plan), exact=True)
    with pytest.raises(EngineError, match="closed"):
        pool.check_usable()
    assert pool.counters()["rows"] == 0


def test_closing_cancels_what_waits(large: Path) -> None:
    index = Index(large)
    pool = Engine(index, 1)
    plan = plan_all(index)
    jobs = [pool.submit(plan, images_for(plan), exact=True) for _ in range(50)]
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 2
    for job in jobs:
        assert job.wait(0)
    assert jobs[-1].errors() == [(row, "cancelled before it ran") for row in range(len(plan))]


def test_a_dropped_job_never_writes_to_its_images_again(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    for _ in range(20):
        images = images_for(plan)
        job = pool.submit(plan, images, exact=True)
        job.wait(0.001)
        del job
        images[...] = 9
        time.sleep(0.002)
        assert (images == 9).all()


def test_jobs_are_dropped_in_any_order(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    for number in range(10):
        jobs = [pool.submit(plan, images_for(plan), exact=True) for _ in range(6)]
        del jobs[number % 6]
        del jobs[number % 3]
        assert wait_done(jobs[number % 4]) == []
    del jobs
    images = images_for(plan)
    assert wait_done(pool.submit(plan, images, exact=True)) == []
    assert all(image.any() for image in images)


def test_a_cancelled_job_is_done(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    job = pool.submit(plan, images_for(plan), exact=True)
    job.cancel()
    job.cancel()
    assert job.wait(0)
    assert {reason for _, reason in job.errors()} <= {"cancelled before it ran"}


def test_the_images_live_as_long_as_the_job(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    jobs = [pool.submit(plan, images_for(plan), exact=True) for _ in range(4)]
    gc.collect()
    assert all(wait_done(job) == [] for job in jobs)


def test_wait_gives_up_after_its_time(large: Path) -> None:
    index = Index(large)
    pool = Engine(index, 1)
    plan = plan_all(index)
    jobs = [pool.submit(plan, images_for(plan), exact=True) for _ in range(60)]
    started = time.monotonic()
    assert not jobs[-1].wait(0.05)
    assert 0.04 < time.monotonic() - started < 1
    pool.close()


def test_wait_lets_other_python_threads_run(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    jobs = [pool.submit(plan, images_for(plan), exact=True) for _ in range(8)]
    waiting = [threading.Thread(target=wait_done, args=(job,)) for job in jobs]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(20)
        assert not thread.is_alive()


def test_few_shards_are_open_at_a_time(many_shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(many_shards)
    expected, _ = run_all(index)
    monkeypatch.setattr(engine, "_MOST_OPEN_SHARDS", 2)
    plan = plan_all(index)
    pool = Engine(index, 3)
    assert open_shards() == 0
    for _ in range(3):
        images = images_for(plan)
        assert wait_done(pool.submit(plan, images, exact=True)) == []
        assert np.array_equal(images, expected)
        assert open_shards() <= 2
    pool.close()
    del pool
    assert open_shards() == 0


def test_threads_end_with_close(large: Path) -> None:
    before = threads()
    pool = Engine(Index(large), 7)
    assert threads() == before + 7
    pool.close()
    assert threads() == before


def test_counters_count(pool: Engine, large: Path) -> None:
    index = Index(large)
    plan = plan_all(index)
    for times in (1, 2):
        wait_done(pool.submit(plan, images_for(plan), exact=True))
        counters = pool.counters()
        assert counters["rows"] == times * len(plan)
        assert counters["bytes"] == times * index.jpeg_bytes
        assert min(counters["read_s"], counters["decode_s"], counters["resize_s"]) > 0


def test_threads_that_the_system_refuses(large: Path) -> None:
    script = """
        import resource, sys
        from fastpipe.engine import Engine
        from fastpipe.errors import EngineError
        from fastpipe.index import Index
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))  # no room for the stacks
        try:
            Engine(Index(sys.argv[1]), 1024)
        except EngineError as problem:
            print(problem)
    """
    done = run_script(script, large)
    assert done.returncode == 0, done.stderr
    assert "cannot start 1024 threads" in done.stdout
    assert "pass a smaller num_workers" in done.stdout


def test_a_forked_child_gets_an_error_and_ends(large: Path) -> None:
    script = """
        import os, sys, threading
        import fastpipe
        from fastpipe.errors import EngineError
        loader = fastpipe.loader(sys.argv[1], 2, size=64, num_workers=2, prefetch_factor=3)
        batches = iter(loader)
        next(batches)
        for how in ("sys.exit", "os._exit"):
            child = os.fork()
            if child == 0:
                for use in (lambda: next(batches), lambda: next(iter(loader))):
                    try:
                        use()
                    except EngineError as problem:
                        assert f"forked child {os.getpid()}" in str(problem), problem
                    else:
                        os._exit(3)
                loader.stats()
                loader.close()
                del loader, batches
                sys.exit(7) if how == "sys.exit" else os._exit(7)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7, status
        assert sum(1 for _ in batches) == len(loader) - 1  # the parent's goes on
        print("done")
    """
    done = run_script(script, large, timeout_s=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


class TestBindings:
    """What the extension refuses before it starts anything."""

    def test_images_of_the_wrong_kind(self, large: Path) -> None:
        index = Index(large)
        plan = plan_all(index)
        pool = Engine(index, 1)
        good = images_for(plan)
        read_only = images_for(plan)
        read_only.flags.writeable = False
        wrong = [good[..., :2], good[:, :, ::2], good[0], good[:, :0], read_only, good[: len(plan) - 1]]
        for images in wrong:
            with pytest.raises(ValueError, match=r"images|out_row|writ"):
                pool.submit(plan, images, exact=True)
        with pytest.raises(TypeError):
            pool.submit(plan, good.astype(np.float32), exact=True)  # type: ignore[arg-type]
        pool.close()

    def test_no_threads(self) -> None:
        with pytest.raises(ValueError, match="threads must be at least 1"):
            _engine.Engine([], 0, 1)

    def test_a_shard_that_is_not_listed(self, large: Path) -> None:
        index = Index(large)
        plan = plan_all(index, batch_size=1)
        plan.records["shard"][0] = 5
        pool = Engine(index, 1)
        errors = wait_done(pool.submit(plan, images_for(plan), exact=True))
        assert errors == [(0, "the shard cannot be opened: the index names shard 5 of 1")]
        pool.close()
