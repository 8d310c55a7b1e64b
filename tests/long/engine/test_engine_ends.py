"""Programs that end, or run out of memory, while threads use the engine, and one that has a libjpeg of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from support.programs.scripts import run_script
from support.running.soak import Tried, times

USES = """
        import sys, threading, time
        import numpy as np
        from fastpipe import _engine
        from fastpipe.engine.engine import Engine
        from fastpipe.errors import EngineError
        from fastpipe.dataset.format.packed_index import PackedIndex
        from fastpipe.plan.content import Content
        from fastpipe.plan.crops import Resize
        from fastpipe.plan.epoch import EpochPlan
        from fastpipe.plan.recipe import Recipe
        index = PackedIndex(sys.argv[1])
        with open(index.shards[0].path, "rb") as file:
            file.seek(int(index.records[0]["offset"]))
            jpeg = file.read(int(index.records[0]["size"]))
        engine = Engine(index, 2)
        plan = EpochPlan(Recipe(8, (64, 64), Resize(), 0.0, True, False, 0, Content.of(index)), 0).batch(0)
        def fill():
            images = np.empty((8, 64, 64, 3), np.uint8)
            try:
                while True:
                    engine.submit(plan, (images, True)).wait(1)
            except EngineError:
                pass
        def decode():
            while True:
                _engine.decode(jpeg)
        def transcode():
            while True:
                _engine.transcode(jpeg)
        for work in WORKS:
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
"""


@pytest.mark.parametrize(
    ("works", "words"),
    [("fill, fill, fill", "use the engine"), ("decode, transcode, decode", "pack")],
    ids=["engine", "pack"],
)
def test_daemon_threads_that_use_it_do_not_abort_the_program(
    flat: Path, works: str, words: str, tried: Tried
) -> None:
    rounds = times(4, 40)
    for _ in range(rounds):
        done = run_script(USES.replace("WORKS", f"({works})"), flat, timeout_s=60)
        assert (done.returncode, done.stderr) == (0, "")
    tried(
        f"the end of a program whose daemon threads {words}",
        rounds,
        "the program's exit code, no word more",
    )


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
