"""Failure 1: a library's threads do not live through fork, and a worker process waits for them for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.programs.children import run

_MAPPED = torch.__config__.parallel_info() + Path("/proc/self/maps").read_text()

_LOADER = """
    import faulthandler, sys
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Sums(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, number):
            faulthandler.dump_traceback_later(3 if threads_in_worker else 300, exit=True)  # tells where it is stuck
            total = (torch.ones(2000, 2000) * number).sum()
            faulthandler.cancel_dump_traceback_later()
            return total

    torch.set_num_threads(4)
    (torch.ones(3000, 3000) * 2).sum()  # the threads of OpenMP are there from now on
    threads_in_worker = int(sys.argv[1])
    if threads_in_worker:
        start = lambda number: torch.set_num_threads(threads_in_worker)
    else:
        start = None
    batches = DataLoader(Sums(), num_workers=1, worker_init_fn=start, multiprocessing_context="fork")
    print(sum(float(batch) for batch in batches))
"""


@pytest.mark.skipif(
    "libgomp" not in _MAPPED, reason="torch was built with another OpenMP than GNU's"
)
def test_openmp_in_a_forked_worker_hangs() -> None:
    ended = run(_LOADER, 4)
    assert ended.code != 0
    assert "Timeout (0:00:03)!" in ended.complained
    assert 'script.py", line' in ended.complained
    assert "in __getitem__" in ended.complained
    assert "exited unexpectedly" in ended.complained


def test_torch_keeps_its_own_workers_to_one_thread() -> None:
    assert run(_LOADER, 0).figures() == 24_000_000


def test_fastpipe_beside_all_these_threads_and_in_a_fork(flat: Path) -> None:
    script = """
        import os, sys
        import cv2
        import numpy as np
        import torch
        import fastpipe

        torch.set_num_threads(4)
        cv2.setNumThreads(4)
        (torch.ones(3000, 3000) * 2).sum()
        cv2.resize(np.zeros((1500, 1500, 3), np.uint8), (700, 700))

        def labels_of_an_epoch():
            with fastpipe.loader(sys.argv[1], 8, size=16, train=False, num_workers=3) as loader:
                return sum(len(labels) for _, labels in loader)

        assert labels_of_an_epoch() == 37
        child = os.fork()
        if child == 0:
            os._exit(labels_of_an_epoch())
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run(script, flat).figures() == 37
