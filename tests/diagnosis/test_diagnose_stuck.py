"""A loader that hangs: its caller never does, and is told which process hangs where, at which sample."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import support.workers.diagnosed as faults
from support.running.patience import slowdown
from support.workers.diagnosed import Stuck, diagnosed, finding
from support.workers.hanging import check_the_stack
from torch.utils.data import DataLoader

from fastpipe.diagnosis.stacks import read_stack


def test_the_stack_of_the_worker_that_hangs() -> None:
    check_the_stack("fork", "sleep", 1.0 * slowdown())


def test_workers_of_another_loader_are_left_alone() -> None:
    """They look like this loader's: forked from the same process, while it was diagnosed."""
    others: list[Any] = []

    def step(batch: Any) -> None:
        if not others:
            others.append(
                iter(DataLoader(faults.Numbers(), num_workers=2, multiprocessing_context="fork"))
            )
            next(others[0])

    diagnosis = diagnosed(Stuck(), num_workers=1, stall_timeout=1.0 * slowdown(), step=step)
    assert finding(diagnosis, "stuck")
    assert [stack.role for stack in diagnosis.stacks] == ["the main process", "worker 0"]
    assert all(worker.is_alive() for worker in others[0]._workers)
    assert len(list(others[0])) == 63


def test_a_lock_that_is_held_as_a_worker_is_forked() -> None:
    diagnosis = diagnosed(faults.Locked(), num_workers=1, stall_timeout=1.0 * slowdown())
    assert "The worker's copy stays locked" in finding(diagnosis, "stuck").why


def test_a_worker_that_does_not_come_to_its_first_sample() -> None:
    found = finding(
        diagnosed(faults.Numbers(), worker_init_fn=faults.never_starts, stall_timeout=1.0), "stuck"
    )
    assert "is in worker_init_fn, in never_starts" in found.what


def test_a_process_that_would_be_ended_by_the_signal_is_not_asked(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "300"]) as process:
        (tmp_path / f"stacks-{process.pid}.txt").touch()
        stack = read_stack(process.pid, "a program", tmp_path)
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
