"""Tests of the native engine's threads and jobs: an orderly end whatever happens, and never a write too late."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from support.batches.engine_jobs import images_for, plan_all, wait_done
from support.programs import warm
from support.programs.scripts import run_script
from support.running.patience import in_time
from support.running.process_state import threads, threads_at_rest
from support.running.soak import Tried, times

from fastpipe.engine.engine import Engine
from fastpipe.errors import EngineError
from fastpipe.format.index import Index


@pytest.fixture
def pool(large: Path) -> Iterator[Engine]:
    made = Engine(Index(large), 2)
    yield made
    made.close()


def test_close_twice_and_use_after_close(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    pool.close()
    pool.close()
    with pytest.raises(EngineError, match=r"closed; create a new loader with fastpipe\.loader"):
        pool.submit(plan, (images_for(plan), True))
    with pytest.raises(EngineError, match="closed"):
        pool.check_usable()
    assert pool.figures()["images_decoded"] == 0


def test_closing_cancels_what_waits(large: Path) -> None:
    index = Index(large)
    pool = Engine(index, 1)
    plan = plan_all(index)
    jobs = [pool.submit(plan, (images_for(plan), True)) for _ in range(50)]
    started = time.monotonic()
    pool.close()
    assert in_time(time.monotonic() - started, 2)
    for job in jobs:
        assert job.wait(0)
    assert jobs[-1].errors() == [(row, "cancelled before it ran") for row in range(len(plan))]


def test_a_dropped_job_never_writes_to_its_images_again(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    for _ in range(20):
        images = images_for(plan)
        job = pool.submit(plan, (images, True))
        job.wait(0.001)
        del job
        images[...] = 9
        time.sleep(0.002)
        assert (images == 9).all()


def test_jobs_are_dropped_in_any_order(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
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
    plan = plan_all(Index(large))
    job = pool.submit(plan, (images_for(plan), True))
    job.cancel()
    job.cancel()
    assert job.wait(0)
    assert {reason for _, reason in job.errors()} <= {"cancelled before it ran"}


def test_the_images_live_as_long_as_the_job(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    jobs = [pool.submit(plan, (images_for(plan), True)) for _ in range(4)]
    gc.collect()
    assert all(wait_done(job) == [] for job in jobs)


def test_wait_gives_up_after_its_time(large: Path) -> None:
    index = Index(large)
    pool = Engine(index, 1)
    plan = plan_all(index)
    jobs = [pool.submit(plan, (images_for(plan), True)) for _ in range(60)]
    started = time.monotonic()
    assert not jobs[-1].wait(0.05)
    waited = time.monotonic() - started
    assert waited > 0.04
    assert in_time(waited, 1)
    pool.close()


def test_wait_lets_other_python_threads_run(pool: Engine, large: Path) -> None:
    plan = plan_all(Index(large))
    jobs = [pool.submit(plan, (images_for(plan), True)) for _ in range(8)]
    waiting = [threading.Thread(target=wait_done, args=(job,)) for job in jobs]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(60)
        assert not thread.is_alive()


def test_threads_end_with_close(large: Path) -> None:
    before = threads_at_rest()
    pool = Engine(Index(large), 7)
    assert threads() == before + 7 + 1  # one reads ahead
    pool.close()
    assert threads_at_rest() == before


def test_threads_that_the_system_refuses(large: Path, tried: Tried) -> None:
    script = """
        import resource, sys
        from pathlib import Path
        from fastpipe.engine.engine import Engine
        from fastpipe.errors import EngineError
        from fastpipe.format.index import Index
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)  # no room for the stacks
        try:
            Engine(Index(sys.argv[1]), 1024)
        except EngineError as problem:
            print(problem)
    """
    done = run_script(script, large)
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
    done = warm.run_script(script, large, timeout_s=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    tried("a fork in mid-epoch", 2, "an EngineError in the child, which ends; the parent's epoch goes on")


def test_daemon_threads_that_use_it_do_not_abort_the_program(flat: Path, tried: Tried) -> None:
    script = """
        import sys, threading, time
        import numpy as np
        from fastpipe.plan.crops import Resize
        from fastpipe.engine.engine import Engine
        from fastpipe.errors import EngineError
        from fastpipe.format.index import Index
        from fastpipe.plan.content import Content
        from fastpipe.plan.epoch import EpochPlan
        from fastpipe.plan.recipe import Recipe
        index = Index(sys.argv[1])
        engine = Engine(index, 2)
        plan = EpochPlan(Recipe(8, (64, 64), Resize(), 0.0, True, False, 0, Content.of(index)), 0).batch(0)
        def run():
            images = np.empty((8, 64, 64, 3), np.uint8)
            try:
                while True:
                    engine.submit(plan, (images, True)).wait(1)
            except EngineError:
                pass
        for _ in range(3):
            threading.Thread(target=run, daemon=True).start()
        time.sleep(0.2)
    """
    rounds = times(4, 40)
    for _ in range(rounds):
        done = run_script(script, flat, timeout_s=60)
        assert (done.returncode, done.stderr) == (0, "")
    tried("the end of a program whose daemon threads use the engine", rounds, "the program's exit code, no word more")


def test_daemon_threads_that_decode_and_transcode_do_not_abort_the_program(flat: Path, tried: Tried) -> None:
    script = """
        import sys, threading, time
        import fastpipe
        from fastpipe import _engine
        record = (index := fastpipe.open(sys.argv[1]).index).records[0]
        with open(index.shards[0].path, "rb") as file:
            file.seek(int(record["offset"]))
            jpeg = file.read(int(record["size"]))
        def run(work):
            while True:
                work(jpeg)
        for work in (_engine.decode, _engine.transcode, _engine.decode):
            threading.Thread(target=run, args=(work,), daemon=True).start()
        time.sleep(0.1)
    """
    rounds = times(4, 40)
    for _ in range(rounds):
        done = run_script(script, flat, timeout_s=60)
        assert (done.returncode, done.stderr) == (0, "")
    tried("the end of a program whose daemon threads pack", rounds, "the program's exit code, no word more")


@pytest.mark.skipif(sys.platform != "linux", reason="of other systems' linkers nothing is known")
def test_a_libjpeg_that_a_program_loads_for_all_is_not_called(flat: Path, tmp_path: Path) -> None:
    """As Python's ctypes and some plugins do. It is another libjpeg, or one of another version."""
    names = ("jpeg_CreateDecompress", "jpeg_std_error", "jpeg_read_header", "jpeg_CreateCompress")
    (tmp_path / "fake.c").write_text(
        "void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in names)
    )
    subprocess.run(["cc", "-shared", "-fPIC", "fake.c", "-o", "fake.so"], cwd=tmp_path, check=True)
    script = f"""
        import ctypes, sys
        ctypes.CDLL({str(tmp_path / "fake.so")!r}, ctypes.RTLD_GLOBAL)
        import fastpipe
        from fastpipe import _engine
        record = (index := fastpipe.open(sys.argv[1]).index).records[0]
        with open(index.shards[0].path, "rb") as file:
            file.seek(int(record["offset"]))
            jpeg = file.read(int(record["size"]))
        assert _engine.decode(jpeg, method="libjpeg").any()
        assert _engine.transcode(jpeg)[0]
    """
    done = run_script(script, flat, timeout_s=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lack_of_memory_in_a_call_without_the_gil_is_a_memory_error(tmp_path: Path) -> None:
    """It leaves C++ with the GIL held; without it, Python's objects may not be touched."""
    script = """
        import resource, sys
        from pathlib import Path
        import fastpipe
        from fastpipe import _engine

        jpeg = Path(sys.argv[1]).read_bytes()
        status = Path("/proc/self/status").read_text().splitlines()
        now = int(next(line.split()[1] for line in status if line.startswith("VmSize"))) << 10
        resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 20),) * 2)
        try:
            _engine.transcode(jpeg)
        except MemoryError as problem:
            print(problem)
    """
    Image.effect_noise((4000, 3000), 90).save(tmp_path / "large.jpg")
    done = run_script(script, tmp_path / "large.jpg", timeout_s=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "std::bad_alloc\n")
