"""A packed dataset -> loaders of it, and the images/s at which batches come to a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fastpipe


class Loads:
    """Makes loaders of one dataset and runs them against the clock.

    Args:
        data: that `fastpipe pack` wrote.
        batch_size: samples.
        size: of the output in pixels.
        seconds: that each run takes.
    """

    def __init__(self, data: Path, batch_size: int, size: int, seconds: float) -> None:
        self._data = data
        self._batch_size = batch_size
        self._size = size
        self._seconds = seconds

    def loader(self, device: torch.device, threads: int, **options: Any) -> fastpipe.Loader:
        """A training loader."""
        return fastpipe.loader(
            self._data,
            self._batch_size,
            size=self._size,
            device=device,
            num_workers=threads,
            **options,
        )

    def images_per_s(self, device: torch.device, threads: int) -> float:
        """Batches as fast as they come, with nothing done to them, after a second to warm up."""
        with self.loader(device, threads) as loader:
            batches = endless(loader)
            _for_seconds(batches, 1.0, device)
            images, took_s = _for_seconds(batches, self._seconds, device)
        return images / took_s


def endless(loader: fastpipe.Loader) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of one epoch after the other."""
    while True:
        yield from loader


def finish(device: torch.device) -> None:
    """Waits until the device has done all that was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _for_seconds(
    batches: Iterator[tuple[Tensor, Tensor]], seconds: float, device: torch.device
) -> tuple[int, float]:
    finish(device)
    started, images = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        images += len(next(batches)[0])
    finish(device)
    return images, time.perf_counter() - started


def by_threads(loads: Loads, device: torch.device, threads: Sequence[int]) -> dict[int, float]:
    """images/s on the device for each number of threads."""
    return {count: round(loads.images_per_s(device, count), 1) for count in threads}


def against_cpu(loads: Loads, device: torch.device, threads: int, rounds: int) -> dict[str, Any]:
    """images/s on the device and on the CPU, in turn; the ratio is the median of the rounds'."""
    there, here = [], []
    for _ in range(rounds):
        there.append(loads.images_per_s(device, threads))
        here.append(loads.images_per_s(torch.device("cpu"), threads))
    ratios = [one / other for one, other in zip(there, here, strict=True)]
    return {"device": there, "cpu": here, "ratio": statistics.median(ratios)}
