"""Loaders that hang in ways that take long to see, or a Python of their own."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import support.workers.diagnosed as faults
import torch
from support.running.patience import in_time, slowdown
from support.workers.diagnosed import FAULTS, diagnosed, finding
from support.workers.hanging import check_the_stack

_MAPPED = torch.__config__.parallel_info() + Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    ("method", "how", "patience_s"), [("fork", "match", 3.0), ("spawn", "sleep", 5.0)]
)
def test_the_stack_of_a_worker_that_keeps_the_gil_or_is_spawned(
    method: str, how: str, patience_s: float
) -> None:
    """`match` keeps the GIL: no Python code could run to tell, but a signal's handler can."""
    check_the_stack(method, how, patience_s * slowdown())


class Pool:
    """Waits, as it is freed, for threads that a forked process does not have."""

    def __init__(self) -> None:
        self.pid, self.itself = os.getpid(), self

    def __del__(self) -> None:
        if os.getpid() != self.pid:
            threading.Event().wait()


def allocate(worker: int) -> None:
    gc.enable()
    assert len([[] for _ in range(10_000)])  # enough for the garbage collector to begin


def test_garbage_of_the_main_process_that_a_worker_cannot_free() -> None:
    gc.collect()
    gc.disable()
    try:
        Pool()
        diagnosis = diagnosed(
            faults.Numbers(), worker_init_fn=allocate, stall_timeout=2.0 * slowdown()
        )
    finally:
        gc.enable()
        gc.collect()
    found = finding(diagnosis, "stuck")
    assert re.search(
        r"worker [01] \(pid \d+\) frees garbage, which does not end; the kernel says S: waiting",
        found.what,
    )
    assert "an object of the main process" in found.why
    assert "gc.collect()" in found.change
    assert 'multiprocessing_context="forkserver"' in found.change


def test_without_workers_the_caller_goes_on() -> None:
    """In a process of its own: the thread that hangs stays until its end."""
    script = """if True:
        import json, sys, time
        sys.path.insert(0, sys.argv[1])
        from support.workers.diagnosed import Stuck, diagnosed, finding

        began = time.monotonic()
        found = finding(diagnosed(Stuck(), num_workers=0, stall_timeout=1.0), "stuck")
        print(json.dumps([found.what, found.where, time.monotonic() - began]))
    """
    said = subprocess.check_output(
        [sys.executable, "-c", script, os.path.dirname(FAULTS)], text=True, timeout=600
    )
    what, where, seconds = json.loads(said)
    assert "the main process" in what
    assert "is at sample 20, in never" in what
    assert where.startswith(FAULTS)
    assert in_time(seconds, 10)


@pytest.mark.skipif(
    "libgomp" not in _MAPPED, reason="torch was built with another OpenMP than GNU's"
)
def test_threads_that_did_not_live_through_fork() -> None:
    """Failure 1, in a process of its own, since it needs OpenMP's threads before the fork."""
    script = """if True:
        import json, sys
        sys.path.insert(0, sys.argv[1])
        import torch
        from support.workers.diagnosed import Sums, diagnosed, torch_threads

        torch.set_num_threads(4)
        (torch.ones(3000, 3000) * 2).sum()
        diagnosis = diagnosed(Sums(), num_workers=1, stall_timeout=3.0, worker_init_fn=torch_threads)
        print(json.dumps([f"{finding.name} {finding.section}" for finding in diagnosis.findings]))
    """
    said = subprocess.check_output(
        [sys.executable, "-c", script, os.path.dirname(FAULTS)], text=True, timeout=600
    )
    assert json.loads(said) == ["stuck 1", "torch-threads 1"]


def test_a_dataset_that_hangs_while_it_is_unpickled() -> None:
    """The worker is there, but has not come as far as to be armed: the kernel's word is all there is."""
    found = finding(
        diagnosed(NeverThere(), num_workers=1, multiprocessing_context="spawn", stall_timeout=3.0),
        "stuck",
    )
    assert "did not reach worker_init_fn" in found.what
    assert "the kernel says" in found.what


def _sleep() -> Any:
    time.sleep(3600)


class NeverThere(faults.Numbers):
    def __reduce__(self) -> Any:
        return _sleep, ()
