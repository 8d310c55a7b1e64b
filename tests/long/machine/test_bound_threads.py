"""A program of its own whose main thread OpenMP binds: the loader's threads have all CPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys
import torch
import fastpipe

def masks():
    return {thread: sorted(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}

before = masks()
with fastpipe.loader(sys.argv[1], 4, size=8) as loader:
    started = [mask for thread, mask in masks().items() if thread not in before]
    print(json.dumps([loader.stats().threads, started, sorted(os.sched_getaffinity(0))]))
"""


@pytest.mark.parametrize("variable", [{"OMP_PROC_BIND": "close"}, {"OMP_PROC_BIND": "spread"}, {}])
def test_threads_have_the_cpus_that_the_process_had(flat: Path, variable: dict[str, str]) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU")
    command = [sys.executable, "-c", PROGRAM, flat]
    environment = {**os.environ, **variable, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    threads, started, main = json.loads(done.stdout)
    assert threads == len(cpus)
    assert started == [cpus] * len(started) != []
    assert len(main) < len(cpus) or not variable
