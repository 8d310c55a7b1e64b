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
import torch
import turbojpeg
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
    "fastpipe": "fastpipe, a thread a CPU",
}
_PREFETCH = 4
_TOO_MANY = 8
_LEAST_STEPS = 4
_SLOW_SHARE, _SLOW_TIMES = 0.01, 75


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """Files, decoded by libjpeg-turbo, cropped, resized and mirrored by OpenCV: what a careful user writes.

    `opencv_threads` is 0 to keep OpenCV to the worker's own thread; `heavy` blurs, one picture in a hundred 75 times.
    """

    def __init__(self, files: Path, size: int, *, opencv_threads: int, heavy: bool) -> None:
        self._files = photo_files(files)
        self._size = size
        self._opencv_threads = opencv_threads
        self._heavy = heavy
        self._codec: turbojpeg.TurboJPEG | None = None

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        if self._codec is None:
            cv2.setNumThreads(self._opencv_threads)
            self._codec = turbojpeg.TurboJPEG()
        path, label = self._files[number]
        picture = self._codec.decode(Path(path).read_bytes(), pixel_format=turbojpeg.TJPF_RGB)
        x, y, w, h = random_crop(picture.shape[1], picture.shape[0])
        picture = cv2.resize(picture[y : y + h, x : x + w], (self._size, self._size), interpolation=cv2.INTER_LINEAR)
        if random.random() < 0.5:
            picture = cv2.flip(picture, 1)
        if self._heavy:
            picture = heavy(picture)
        return torch.from_numpy(picture), label


def heavy(picture: Any) -> Any:
    """A transform of a few milliseconds; for one picture in a hundred, of a few hundred."""
    for _ in range(_SLOW_TIMES if random.random() < _SLOW_SHARE else 1):
        picture = cv2.bilateralFilter(picture, 7, 40, 40)
    return picture


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch, seen as (N, 3, height, width)."""
    pictures, labels = default_collate(samples)
    return pictures.permute(0, 3, 1, 2), labels


def feed(order: dict[str, Any]) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """The loader of a run; C raises."""
    name, workers = order["feed"], order["workers"]
    if name == "fastpipe":
        return fastpipe.loader(
            order["packed"], order["batch_size"], size=order["size"], num_workers=workers, exact=True
        )
    persistent: dict[str, Any] = {"prefetch_factor": _PREFETCH, "persistent_workers": True}
    options: dict[str, Any] = {
        "single": {"num_workers": 0},
        "workers": {"num_workers": workers, **persistent},
        "refused": {"num_workers": 0, **persistent},
        "restarted": {"num_workers": workers, "prefetch_factor": 1},
        "overloaded": {"num_workers": _TOO_MANY * workers, **persistent},
    }[name]
    threads = -1 if name == "overloaded" else 0  # -1: as many as OpenCV sees fit
    photos = Photos(Path(order["files"]), order["size"], opencv_threads=threads, heavy=FORMS[order["form"]].heavy)
    return DataLoader(
        photos, batch_size=order["batch_size"], shuffle=True, drop_last=True, collate_fn=collate, **options
    )


def waits(batches: Iterable[Any], step_s: float, seconds: float) -> Iterator[tuple[float, float, bool]]:
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
