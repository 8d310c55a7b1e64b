"""Tests of the native engine's threads and jobs: an orderly end whatever happens, and never a write too late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.batches.engine_jobs import images_for, plan_all, wait_done
from support.programs import warm
from support.running.process_state import threads, threads_at_rest
from support.running.soak import Tried

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine.engine import Engine
from fastpipe.errors import EngineError


@pytest.fixture
def pool(large: Path) -> Iterator[Engine]:
    made = Engine(PackedIndex(large), 2)
    yield made
    made.close()


def test_close_twice_and_use_after_close(pool: Engine, large: Path) -> None:
    plan = plan_all(PackedIndex(large))
    pool.close()
    pool.close()
    with pytest.raises(EngineError, match=r"closed; create a new loader with fastpipe\.loader"):
        pool.submit(plan, (images_for(plan), True))
    with pytest.raises(EngineError, match="closed"):
        pool.check_usable()
    assert pool.figures()["images_decoded"] == 0


def test_closing_cancels_what_waits(large: Path) -> None:
    index = PackedIndex(large)
    pool = Engine(index, 1)
    plan = plan_all(index)
    jobs = [pool.submit(plan, (images_for(plan), True)) for _ in range(50)]
    pool.close()
    for job in jobs:
        assert job.wait(0)
    assert jobs[-1].errors() == [(row, "cancelled before it ran") for row in range(len(plan))]


def test_a_dropped_job_never_writes_to_its_images_again(pool: Engine, large: Path) -> None:
    plan = plan_all(PackedIndex(large))
    for _ in range(10):
        images = images_for(plan)
        job = pool.submit(plan, (images, True))
        job.wait(0.001)
        del job
        images[...] = 9
        assert wait_done(pool.submit(plan, (images_for(plan), True))) == [], (
            "meanwhile the threads work on"
        )
        assert (images == 9).all()


def test_jobs_are_dropped_in_any_order(pool: Engine, large: Path) -> None:
    plan = plan_all(PackedIndex(large))
    for number in range(10):
        jobs = [pool.submit(plan, (images_for(plan), True)) for _ in range(6)]
        del jobs[number % 6]
        del jobs[number % 3]
        assert wait_done(jobs[number % 4]) == []
    del jobs
    images = images_for(plan)
    assert wait_done(pool.submit(plan, (images, True))) == []
    assert all(image.any() for image in images)


def test_a_cancelled_job_is_done(pool: Engine, large: Path) -> None:
    plan = plan_all(PackedIndex(large))
    job = pool.submit(plan, (images_for(plan), True))
    job.cancel()
    job.cancel()
    assert job.wait(0)
    assert {reason for _, reason in job.errors()} <= {"cancelled before it ran"}


def test_wait_gives_up_after_its_time(large: Path) -> None:
    index = PackedIndex(large)
    pool = Engine(index, 1)
    plan = plan_all(index)
    jobs = [pool.submit(plan, (images_for(plan), True)) for _ in range(200)]
    started = time.monotonic()
    assert not jobs[-1].wait(0.03)
    assert time.monotonic() - started > 0.029
    pool.close()
    assert jobs[-1].wait(0)


def test_threads_end_with_close(large: Path) -> None:
    before = threads_at_rest()
    pool = Engine(PackedIndex(large), 7)
    assert threads() == before + 7 + 1  # one reads ahead
    pool.close()
    assert threads_at_rest() == before


def test_threads_that_the_system_refuses(large: Path, tried: Tried) -> None:
    script = """
        import resource, sys
        from pathlib import Path
        from fastpipe.engine.engine import Engine
        from fastpipe.errors import EngineError
        from fastpipe.dataset.format.packed_index import PackedIndex
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)  # no room for the stacks
        try:
            Engine(PackedIndex(sys.argv[1]), 1024)
        except EngineError as problem:
            print(problem)
    """
    done = warm.run_script(script, large, timeout_s=300)
    assert done.returncode == 0, done.stderr
    assert "cannot start 1024 threads" in done.stdout
    assert "pass a smaller num_workers" in done.stdout
    tried("the system refuses threads", 1, "an EngineError that says what to change")


def test_a_forked_child_gets_an_error_and_ends(large: Path, tried: Tried) -> None:
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
    done = warm.run_script(script, large, timeout_s=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    tried(
        "a fork in mid-epoch",
        2,
        "an EngineError in the child, which ends; the parent's epoch goes on",
    )
