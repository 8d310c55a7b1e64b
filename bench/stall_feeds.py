"""An order on standard input -> how long each step of a pretended training waited for its batch: one process a run.

The training is a pause as long as a GPU would take; it leaves the CPUs to the loader, as a GPU does.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import turbojpeg
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, default_collate

import fastpipe
from bench.peers.contender import photo_files
from bench.peers.crop_law import random_crop
from bench.stall_data import FORMS

LABELS = {
    "single": "A: no workers",
    "workers": "B: a worker a CPU, prefetch_factor=4, persistent_workers=True",
    "refused": "C: prefetch_factor=4, persistent_workers=True, but num_workers=0",
    "restarted": "C': a worker a CPU, prefetch_factor=1, persistent_workers=False",
    "overloaded": "D: 8 workers a CPU, each with OpenCV's threads",
    "dataset": "fastpipe.Dataset in B's DataLoader",
    "fastpipe": "fastpipe, a thread a CPU",
}
_PREFETCH = 4
_TOO_MANY = 8
_LEAST_STEPS = 4
_SLOW_SHARE, _SLOW_TIMES = 0.01, 75


class Augmentation:
    """A random-resized crop, mirrored half of the time, by OpenCV; then perhaps something heavy. Array to tensor."""

    def __init__(self, size: int, *, heavy: bool) -> None:
        self._size = (size, size)
        self._heavy = heavy

    def __call__(self, *, image: NDArray[np.uint8]) -> dict[str, torch.Tensor]:
        x, y, w, h = random_crop(image.shape[1], image.shape[0])
        picture = cv2.resize(
            image[y : y + h, x : x + w], self._size, interpolation=cv2.INTER_LINEAR
        )
        if random.random() < 0.5:
            picture = cv2.flip(picture, 1)
        if self._heavy:  # a few milliseconds; for one picture in a hundred, a few hundred
            for _ in range(_SLOW_TIMES if random.random() < _SLOW_SHARE else 1):
                picture = cv2.bilateralFilter(picture, 7, 40, 40)
        return {"image": torch.from_numpy(picture)}


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """Files, decoded by libjpeg-turbo: what a careful user writes. `opencv_threads` 0 keeps OpenCV to one thread."""

    def __init__(self, files: Path, transform: Augmentation, opencv_threads: int) -> None:
        self._files = photo_files(files)
        self._transform = transform
        self._opencv_threads = opencv_threads
        self._codec: turbojpeg.TurboJPEG | None = None

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        if self._codec is None:
            cv2.setNumThreads(self._opencv_threads)
            self._codec = turbojpeg.TurboJPEG()
        path, label = self._files[number]
        picture = self._codec.decode(Path(path).read_bytes(), pixel_format=turbojpeg.TJPF_RGB)
        return self._transform(image=picture)["image"], label


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch, seen as (N, 3, height, width)."""
    pictures, labels = default_collate(samples)
    return pictures.permute(0, 3, 1, 2), labels


def feed(order: dict[str, Any]) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """The loader of a run; C raises."""
    name, workers = order["feed"], order["workers"]
    if name == "fastpipe":
        return fastpipe.loader(
            order["packed"],
            order["batch_size"],
            size=order["size"],
            num_workers=workers,
            exact=True,
        )
    persistent: dict[str, Any] = {"prefetch_factor": _PREFETCH, "persistent_workers": True}
    options: dict[str, Any] = {
        "single": {"num_workers": 0},
        "workers": {"num_workers": workers, **persistent},
        "refused": {"num_workers": 0, **persistent},
        "restarted": {"num_workers": workers, "prefetch_factor": 1},
        "overloaded": {"num_workers": _TOO_MANY * workers, **persistent},
        "dataset": {"num_workers": workers, **persistent},
    }[name]
    transform = Augmentation(order["size"], heavy=FORMS[order["form"]].heavy)
    photos: Dataset[tuple[torch.Tensor, int]]
    if name == "dataset":
        photos = fastpipe.open(order["packed"]).with_transform(transform)
    else:  # -1: as many threads as OpenCV sees fit
        photos = Photos(
            Path(order["files"]), transform, opencv_threads=-1 if name == "overloaded" else 0
        )
    return DataLoader(
        photos,
        batch_size=order["batch_size"],
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        **options,
    )


def waits(
    batches: Iterable[Any], step_s: float, seconds: float
) -> Iterator[tuple[float, float, bool]]:
    """For each step: when it asked for its batch, how long it waited, and whether it began an epoch.

    The clock of `seconds` starts with the first batch; a few steps are made in any case.
    """
    began, end, left = time.perf_counter(), float("inf"), _LEAST_STEPS
    while True:
        asked = time.perf_counter()  # before the iterator: making it starts workers
        iterator, first = iter(batches), True
        while next(iterator, None) is not None:
            now = time.perf_counter()
            end, left = min(end, now + seconds), left - 1
            yield asked - began, now - asked, first
            if now >= end and left <= 0:
                return
            time.sleep(step_s)
            asked, first = time.perf_counter(), False


def main() -> None:
    """Runs the order and ends without waiting for workers that have batches left to send."""
    order = json.load(sys.stdin)
    try:
        batches = feed(order)
    except ValueError as problem:
        found: dict[str, Any] = {"refused": f"{type(problem).__name__}: {problem}"}
    else:
        found = {"steps": list(waits(batches, order["step_s"], order["seconds"]))}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
