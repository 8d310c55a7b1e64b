"""Programs that end with a loader in mid-iteration, in whatever shape: at once, in silence, with their exit code.

One program that ends with many of them, and one that forks, are in tests/loading/test_programs_with_a_loader.py.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.programs.forked import outcomes_of
from support.programs.scripts import run_script
from support.running.patience import in_time
from support.running.soak import Tried, times

BEGIN = """
import atexit, gc, os, sys, threading, time
import torch  # as training programs do; it cannot be imported while the main thread ends
import fastpipe

def make(**options):
    return fastpipe.loader(DATA, 2, size=256, num_workers=2, prefetch_factor=8, **options)

"""
# Python 3.12 warns of every fork in a process with threads; these programs mean it.
FORKS = "import warnings; warnings.filterwarnings('ignore', 'This process .* is multi-threaded', DeprecationWarning)\n"

# What the programs do when a loader and its iterators are there; "end" is said just before the program ends:
# `import torch` takes seconds, and is no part of what is timed.
SHAPES: dict[str, tuple[str, int]] = {
    "globals": ("loader = make(); batches = iter(loader); first = next(batches); say('end')", 0),
    "two loaders": ("one, two = make(), make(seed=1)\nfor a, b in zip(one, two): break", 0),
    "the iterator alone": ("batches = iter(make()); next(batches)", 0),
    "batches alone": ("kept = [images for images, _ in make()]", 0),
    "a cycle": (
        "loader = make(); loader._ring = [loader, iter(loader)]; next(loader._ring[1]); del loader",
        0,
    ),
    "a module's attribute": (
        "sys.modules['json'].loader = make(); next(iter(sys.modules['json'].loader))",
        0,
    ),
    "a daemon thread": (
        # Eight loaders of one seed bring a notice; these are of many.
        "def train():\n    seed = 0\n    while True:\n        seed += 1\n        for batch in make(seed=seed): pass\n"
        "threading.Thread(target=train, daemon=True).start(); time.sleep(0.2)",
        0,
    ),
    "a daemon thread with a loader of the main thread": (
        "loader = make()\ndef train():\n    while True:\n        for batch in loader: pass\n"
        "threading.Thread(target=train, daemon=True).start(); time.sleep(0.2)",
        0,
    ),
    "a thread that is waited for": (
        "def train():\n    for batch in make(): time.sleep(0.01)\nthreading.Thread(target=train).start()",
        0,
    ),
    "an atexit handler that closes": (
        "loader = make(); next(iter(loader)); atexit.register(loader.close)",
        0,
    ),
    "os._exit in the loop": ("for batch in make(): say('end'); os._exit(6)", 6),
    "an error in the loop": ("for batch in make(): say('end'); raise KeyError('mine')", 1),
    "an error that is kept": (
        "loader = make(); batches = iter(loader); next(batches); loader.close()\n"
        "try: next(batches)\nexcept fastpipe.EngineError as problem: kept = problem",
        0,
    ),
    "a forked child that goes on alone": (
        "loader = make(); batches = iter(loader); next(batches)\n"
        f"{FORKS}if os.fork() == 0:\n    loader = make(); assert len(list(loader)) == len(loader); batches = None\n"
        "else: assert os.waitstatus_to_exitcode(os.wait()[1]) == 0",
        0,
    ),
}


@pytest.fixture(scope="module")
def endings(large: Path) -> dict[str, list[dict[str, Any]]]:
    rounds = times(1, 10)
    programs = [{"code": f"{BEGIN}{code}\nsay('end')"} for code, _ in SHAPES.values()] * rounds
    outcomes = outcomes_of(programs, large, "fastpipe.loading.factory")
    return {shape: outcomes[number :: len(SHAPES)] for number, shape in enumerate(SHAPES)}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_program_ends_cleanly(
    endings: dict[str, list[dict[str, Any]]], tried: Tried, shape: str
) -> None:
    code = SHAPES[shape][1]
    for ended in endings[shape]:
        if shape.startswith("a daemon thread") and ended["code"] == -6:
            # Before Python 3.14 a thread that wants the GIL back in torch's C++ code at that moment ends the program so
            # (cpython#87135), with a loader or without.
            assert ended["stderr"].endswith("terminate called without an active exception\n"), ended
            continue
        assert ended["code"] == code, ended
        assert in_time(ended["seconds"], 2), ended
        assert not ended["left"], "a process of its was left"
        if code == 1:
            assert ended["stderr"].count("Traceback") == 1
            assert ended["stderr"].endswith("KeyError: 'mine'\n")
        elif shape.startswith("a daemon thread") and ended["stderr"]:
            # The loader was closed under it, and it may not have come to the end of saying so.
            assert ended["stderr"].startswith("Exception in thread")
            assert ended["stderr"].count("Traceback") <= 1
        else:
            assert ended["stderr"] == ""
    if shape.startswith("a daemon thread"):
        outcome = "it ends; before Python 3.14 torch may abort it (cpython#87135)"
        tried(
            "the end of a program whose daemon thread iterates a loader",
            len(endings[shape]),
            outcome,
        )
    else:
        outcome = "the program's exit code, no word more"
        tried("the end of a program with a loader in mid-epoch", len(endings[shape]), outcome)


def test_a_program_of_its_own(large: Path) -> None:
    """Not forked, and with all warnings as errors."""
    script = """
        import sys, time
        import fastpipe
        loader = fastpipe.loader(sys.argv[1], 2, size=512, num_workers=2, prefetch_factor=8)
        batches = [iter(loader) for _ in range(40)]
        for each in batches:
            next(each)  # two more are in the works
        print(time.time(), flush=True)
    """
    done = run_script(script, large, timeout_s=60)
    seconds = time.time() - float(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert in_time(seconds, 2)
