"""A program for test_dataset_workers: reads a Dataset in worker processes, from a parent that is as busy as can be.

python dataset_in_workers.py DATA START_METHOD -> JSON: by number of workers, what came of each sample
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

import fastpipe

BATCH_SIZE = 5


class Look:
    """Tells how many threads libraries use that are put to work after the picture was read."""

    def __call__(self, image: torch.Tensor) -> dict[str, Any]:
        import cv2  # for the first time here, in workers that do not inherit it

        before = len(os.listdir("/proc/self/task"))
        cv2.GaussianBlur(torch.ones(2000, 2000).numpy(), (31, 31), 0)
        torch.ones(2_000_000).sin_()
        return {
            "in_worker": get_worker_info() is not None,
            "opencv_threads": cv2.getNumThreads(),
            "torch_threads": torch.get_num_threads(),
            "threads_begun": len(os.listdir("/proc/self/task")) - before,
        }


def as_it_is(samples: list[Any]) -> list[Any]:
    return samples


def be_busy(data: str) -> Any:
    """OpenCV, OpenMP and a loader in mid-iteration, all with threads of their own; the Dataset opened, too."""
    import cv2

    cv2.setNumThreads(4)
    torch.set_num_threads(4)
    cv2.GaussianBlur(torch.ones(2000, 2000).numpy(), (31, 31), 0)
    torch.ones(2_000_000).sin_()
    batches = iter(fastpipe.loader(data, 2, size=64, num_workers=2, prefetch_factor=4))
    next(batches)
    return batches


def main() -> None:
    data, start_method = sys.argv[1:]
    warnings.filterwarnings("error")
    warnings.filterwarnings(
        "ignore", "This process", DeprecationWarning
    )  # a fork where there are threads
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than CPUs
    multiprocessing.set_forkserver_preload(
        ["torch", "fastpipe.dataset.dataset"]
    )  # not anew in each worker
    batches = be_busy(data)
    dataset = fastpipe.open(data).with_transform(Look())
    dataset[0]
    found = {}
    for workers in (1, 2 if start_method == "spawn" else 4):  # a spawned one imports torch anew
        loader = DataLoader(
            dataset,
            BATCH_SIZE,
            num_workers=workers,
            collate_fn=as_it_is,
            multiprocessing_context=start_method,
            timeout=300,
        )
        found[workers] = [seen for samples in loader for seen, _ in samples]
    sys.stdout.write(json.dumps(found))
    if sum(1 for _ in batches) == 0:
        raise SystemExit("the parent's loader does not go on")


if __name__ == "__main__":
    main()
