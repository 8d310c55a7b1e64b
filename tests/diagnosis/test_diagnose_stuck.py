"""A loader that hangs: its caller never does, and is told which process hangs where, at which sample."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
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
from support.workers.diagnosed import FAULTS, Stuck, diagnosed, finding, line_of
from torch.utils.data import DataLoader

from fastpipe.diagnosis.stacks import catches_dumps, children, command_line, parent, stack_of

_MAPPED = torch.__config__.parallel_info() + Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(("method", "how"), [("fork", "sleep"), ("fork", "match"), ("spawn", "sleep")])
def test_the_stack_of_the_worker_that_hangs(method: str, how: str) -> None:
    """`match` keeps the GIL: no Python code could run to tell, but a signal's handler can."""
    before = set(children(os.getpid()))
    patience_s = (3.0 if method == "fork" else 5.0) * slowdown()  # a spawned worker imports torch first
    diagnosis = diagnosed(Stuck(how), num_workers=1, multiprocessing_context=method, stall_timeout=patience_s)
    found = finding(diagnosis, "stuck")
    assert diagnosis.findings[0] is found
    assert "is at sample 20, in never" in found.what
    line = line_of("return time.sleep(3600)" if how == "sleep" else "return re.match")
    assert found.where == f"{FAULTS}:{line}"
    (stack,) = [stack for stack in diagnosis.stacks if stack.role == "worker 0"]
    assert f'File "{FAULTS}", line {line} in never' in stack.text
    assert any("in __getitem__" in line for line in stack.lines)
    assert stack.status[0] == ("S" if how == "sleep" else "R")
    text = str(diagnosis)
    assert f"{FAULTS}:{line} in never" in text
    assert "stuck: no batch for" in text
    given_up = time.monotonic() + 60
    while (left := _workers(before)) and time.monotonic() < given_up:
        time.sleep(0.05)
    assert not left, "the worker is ended"
    assert not catches_dumps(os.getpid()), "the signal means again what it did"


def _workers(before: set[int]) -> list[int]:
    """Processes that came since, but for those of multiprocessing that stay."""
    return [
        pid
        for pid in set(children(os.getpid())) - before
        if b"resource_tracker" not in command_line(pid)
        and not (b"forkserver" in command_line(pid) and parent(pid) == os.getpid())
    ]


def test_workers_of_another_loader_are_left_alone() -> None:
    """They look like this loader's: forked from the same process, while it was diagnosed."""
    others: list[Any] = []

    def step(batch: Any) -> None:
        if not others:
            others.append(iter(DataLoader(faults.Numbers(), num_workers=2, multiprocessing_context="fork")))
            next(others[0])

    diagnosis = diagnosed(Stuck(), num_workers=1, stall_timeout=2.0, step=step)
    assert finding(diagnosis, "stuck")
    assert [stack.role for stack in diagnosis.stacks] == ["the main process", "worker 0"]
    assert all(worker.is_alive() for worker in others[0]._workers)
    assert len(list(others[0])) == 63


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
        diagnosis = diagnosed(faults.Numbers(), worker_init_fn=allocate, stall_timeout=2.0 * slowdown())
    finally:
        gc.enable()
        gc.collect()
    found = finding(diagnosis, "stuck")
    assert re.search(
        r"worker [01] \(pid \d+\) frees garbage, which does not end; the kernel says S: waiting", found.what
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
    said = subprocess.check_output([sys.executable, "-c", script, os.path.dirname(FAULTS)], text=True, timeout=60)
    what, where, seconds = json.loads(said)
    assert "the main process" in what
    assert "is at sample 20, in never" in what
    assert where.startswith(FAULTS)
    assert in_time(seconds, 10)


def test_a_worker_that_does_not_come_to_its_first_sample() -> None:
    found = finding(diagnosed(faults.Numbers(), worker_init_fn=faults.never_starts, stall_timeout=1.0), "stuck")
    assert "is in worker_init_fn, in never_starts" in found.what


@pytest.mark.skipif("libgomp" not in _MAPPED, reason="torch was built with another OpenMP than GNU's")
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
    said = subprocess.check_output([sys.executable, "-c", script, os.path.dirname(FAULTS)], text=True, timeout=60)
    assert json.loads(said) == ["stuck 1", "torch-threads 1"]


def test_a_dataset_that_hangs_while_it_is_unpickled() -> None:
    """The worker is there, but has not come as far as to be armed: the kernel's word is all there is."""
    found = finding(diagnosed(NeverThere(), num_workers=1, multiprocessing_context="spawn", stall_timeout=3.0), "stuck")
    assert "did not reach worker_init_fn" in found.what
    assert "the kernel says" in found.what


def _sleep() -> Any:
    time.sleep(3600)


class NeverThere(faults.Numbers):
    def __reduce__(self) -> Any:
        return _sleep, ()


def test_a_process_that_would_be_ended_by_the_signal_is_not_asked(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        (tmp_path / f"stacks-{process.pid}.txt").touch()
        stack = stack_of(process.pid, "a program", tmp_path)
        assert stack.text == ""
        assert process.poll() is None
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_a_timeout_of_the_loaders_own_is_a_stall() -> None:
    diagnosis = diagnosed(Stuck(), num_workers=1, timeout=1)
    found = finding(diagnosis, "stuck")
    assert "no batch for 1 s" in found.what
    assert "timeout=120" not in found.change
    assert diagnosis.stacks
