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


def test_fastpipe_has_no_worker_to_kill(flat: Path) -> None:
    before = children_of_this()
    with fastpipe.loader(flat, 4, size=16, num_workers=3) as loader:
        batches = iter(loader)
        next(batches)
        assert children_of_this() == before, "nothing is there that could be ended alone"
        os.kill(os.getpid(), signal.SIGCHLD)  # and a signal about children is none of its business
        assert len(list(batches)) == len(loader) - 1
