"""Failure 2: libraries start a thread for every CPU in every worker process, and the threads fight for the CPUs."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import pytest
from support.programs.children import run

import fastpipe

# As on a machine of four CPUs: what these libraries start when nobody tells them otherwise.
_FOUR_CPUS = {"OPENCV_FOR_THREADS_NUM": "4", "OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "4"}


@pytest.mark.skipif(
    "pthreads" not in cv2.getBuildInformation(), reason="OpenCV was built with another threading"
)
def test_threads_in_each_worker() -> None:
    script = """
        import json, os
        import cv2
        import numpy as np
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Threads(Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, number):
                cv2.resize(np.zeros((1500, 1500, 3), np.uint8), (700, 700))
                np.ones((300, 300)) @ np.ones((300, 300))
                (torch.ones(2000, 2000) * 2).sum()
                return torch.get_num_threads(), cv2.getNumThreads(), len(os.listdir("/proc/self/task"))

        def limit(worker):
            cv2.setNumThreads(0)

        def seen(start):
            loader = DataLoader(
                Threads(), batch_size=None, num_workers=2, worker_init_fn=start, multiprocessing_context="fork"
            )
            return [[int(count) for count in each] for each in loader]

        print(json.dumps([seen(None), seen(limit)]))
    """
    as_it_is, limited = run(script, environment=_FOUR_CPUS).figures()
    for torch_threads, opencv_threads, all_threads in as_it_is:
        assert torch_threads == 1, "torch itself has been told"
        assert opencv_threads == 4
        assert all_threads >= 4
    for (_, opencv_threads, all_threads), (_, _, before) in zip(limited, as_it_is, strict=True):
        assert opencv_threads == 1
        assert all_threads < before


def test_fastpipe_starts_as_many_threads_as_asked_for(large: Path) -> None:
    before = len(os.listdir("/proc/self/task"))
    with fastpipe.loader(large, 2, size=200, num_workers=3) as loader:
        for _ in loader:
            assert len(os.listdir("/proc/self/task")) - before == 3 + 1, (
                "one more asks the kernel to read ahead"
            )
