"""Failure 15: the kernel ends one worker, mostly for want of memory, and the training ends with it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from support.programs.children import children_of_this, run

import fastpipe


def test_a_killed_worker_ends_the_epoch() -> None:
    script = """
        import os, signal, time
        from torch.utils.data import DataLoader, Dataset

        class Slow(Dataset):
            def __len__(self):
                return 400

            def __getitem__(self, number):
                time.sleep(0.02)
                return number, os.getpid()

        batches = iter(DataLoader(Slow(), batch_size=4, num_workers=2, multiprocessing_context="fork"))
        _, processes = next(batches)
        os.kill(int(processes[0]), signal.SIGKILL)  # as the kernel does when memory is short
        seen = 1
        for _ in batches:
            seen += 1
    """
    ended = run(script)
    assert ended.code == 1
    # "worker (pid(s) 7) exited unexpectedly" may come on top of it: that depends on where the signal finds the parent.
    # Where it is just receiving a batch from the worker, the lost connection is all that it says.
    killed = r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Killed\."
    assert re.search(rf"{killed}|ConnectionResetError: ", ended.complained)


def test_a_worker_that_wants_too_much_memory_ends_the_epoch() -> None:
    """The same with a limit of the process's own in place of the kernel's."""
    script = """
        import resource
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Large(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, number):
                return torch.ones(1_000_000_000)[:number]

        def limit(worker):
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 500_000_000,) * 2)

        list(DataLoader(Large(), batch_size=None, num_workers=1, worker_init_fn=limit, multiprocessing_context="fork"))
    """
    ended = run(script)
    assert ended.code == 1
    assert "in DataLoader worker process 0" in ended.complained
    assert "can't allocate memory" in ended.complained


def test_fastpipe_has_no_worker_to_kill(flat: Path) -> None:
    before = children_of_this()
    with fastpipe.loader(flat, 4, size=16, num_workers=3) as loader:
        batches = iter(loader)
        next(batches)
        assert children_of_this() == before, "nothing is there that could be ended alone"
        os.kill(os.getpid(), signal.SIGCHLD)  # and a signal about children is none of its business
        assert len(list(batches)) == len(loader) - 1
