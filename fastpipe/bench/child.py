"""A task on standard input -> one contender's figures on standard output: the process that is measured.

A contender makes an endless stream of batches of a packed dataset: fastpipe, or what people use with PyTorch today.
All do one task: a random-resized crop (scale 0.08 to 1, ratio 3/4 to 4/3) to `size` pixels, mirrored half of the time,
collated to a uint8 batch (N, 3, size, size), channels_last, on the CPU, with integer labels. All read the same images
from the shards and decode them at full size (fastpipe: exact=True).
The PyTorch ones are what a careful user writes: one process a worker, workers kept alive, library threads limited.
"""

from __future__ import annotations

import io
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from fastpipe.bench.measure import Figures, Task
from fastpipe.errors import FastpipeError
from fastpipe.loading.factory import loader
from fastpipe.loading.loader import Loader
from fastpipe.sources.scan.opening import open_data

Batch = tuple[torch.Tensor, torch.Tensor]
_JPEG = b"\xff\xd8\xff"
_MIN_BATCHES = 4


def fastpipe_loader(task: Task) -> Loader:
    """fastpipe's own loader for the task; every epoch takes all samples."""
    return loader(
        task.data,
        task.batch_size,
        size=task.size,
        seed=task.seed,
        num_workers=task.workers,
        exact=True,
        drop_last=len(open_data(task.data)) >= task.batch_size,
    )


def torch_batches(contender: str, task: Task) -> Iterator[Batch]:
    """torch.utils.data.DataLoader: "torch-pil" with Pillow, as torchvision's ImageFolder recipe does it; "torch-cv2"
    with PyTurboJPEG to decode and OpenCV to resize, which also decodes what is no JPEG.
    """
    dataset, draw = _DATASETS[contender](task), torch.Generator().manual_seed(task.seed)
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=task.batch_size,
        # Random permutations, one after the other: no pauses between epochs.
        sampler=RandomSampler(dataset, num_samples=len(dataset) * 10**9, generator=draw),
        num_workers=task.workers,
        persistent_workers=True,
    )
    # Rows are collated as decoders give them, (height, width, 3), and the batch is seen as (N, 3, height, width).
    for images, labels in batches:
        yield images.permute(0, 3, 1, 2), labels


class _Shards(Dataset[Any]):
    """Reads samples' bytes from the shards by the index, as cheaply as Python can."""

    def __init__(self, task: Task) -> None:
        self._index = open_data(task.data)
        self._size = task.size
        self._files: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._index)

    def _read(self, sample: int) -> tuple[bytes, int]:
        record = self._index.records[sample]
        shard = int(record["shard"])
        if not self._index.packed:  # as ImageFolder does
            with open(self._index.shards[shard].path, "rb") as file:
                file.seek(int(record["offset"]))
                return file.read(int(record["size"])), int(record["label"])
        if shard not in self._files:
            self._files[shard] = os.open(self._index.shards[shard].path, os.O_RDONLY)
        data = os.pread(self._files[shard], int(record["size"]), int(record["offset"]))
        return data, int(record["label"])


class _PilDataset(_Shards):
    def __getitem__(self, sample: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        data, label = self._read(sample)
        image = Image.open(io.BytesIO(data)).convert("RGB")
        x, y, w, h = _random_crop(*image.size)
        image = image.crop((x, y, x + w, y + h)).resize((self._size, self._size), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)), label


class _Cv2Dataset(_Shards):
    _turbo: Any = None

    def __getitem__(self, sample: int) -> tuple[torch.Tensor, int]:
        import cv2
        import turbojpeg

        from fastpipe.sources.picture.jpeg import open_turbojpeg

        if self._turbo is None:
            cv2.setNumThreads(0)
            self._turbo = open_turbojpeg()
        data, label = self._read(sample)
        if data.startswith(_JPEG):
            image = self._turbo.decode(data, pixel_format=turbojpeg.TJPF_RGB)
        else:
            how = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
            decoded = cv2.imdecode(np.frombuffer(data, np.uint8), how)
            if decoded is None:
                raise ValueError(f"sample {sample}: OpenCV cannot decode it; bench without --against, or pack first")
            image = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
        x, y, w, h = _random_crop(image.shape[1], image.shape[0])
        crop = image[y : y + h, x : x + w]
        out = cv2.resize(crop, (self._size, self._size), interpolation=cv2.INTER_LINEAR)
        if random.random() < 0.5:
            out = cv2.flip(out, 1)
        return torch.from_numpy(out), label


_DATASETS: dict[str, type[_Shards]] = {"torch-pil": _PilDataset, "torch-cv2": _Cv2Dataset}


def _random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop.get_params, with Python's generator, which is quicker than torch's."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def measure(contender: str, task: Task, warmup_s: float, seconds: float) -> Figures:
    """Runs one contender in this process."""
    asked = time.perf_counter()
    ours = fastpipe_loader(task) if contender == "fastpipe" else None
    batches = chain.from_iterable(repeat(ours)) if ours else torch_batches(contender, task)
    next(batches)
    first_batch_s = time.perf_counter() - asked
    _run(batches, warmup_s)

    before, cpu_before = ours.stats() if ours else None, _of_all(_cpu_seconds)
    images, took = _run(batches, seconds)
    cpu_after, after = _of_all(_cpu_seconds), ours.stats() if ours else None
    figures = Figures(
        images_per_s=images / took,
        first_batch_s=first_batch_s,
        cpus=None if cpu_before is None or cpu_after is None else (cpu_after - cpu_before) / took,
        memory_mb=_of_all(_memory_mb),
    )
    if ours is None or before is None or after is None:
        return figures
    decoded = after.images_decoded - before.images_decoded
    ours.close()
    return replace(
        figures,
        read_us=1e6 * (after.read_s - before.read_s) / decoded,
        decode_us=1e6 * (after.decode_s - before.decode_s) / decoded,
        resize_us=1e6 * (after.resize_s - before.resize_s) / decoded,
        plan_us=1e6 * (after.plan_s - before.plan_s) / (after.samples - before.samples),
    )


def _run(batches: Iterator[Batch], seconds: float) -> tuple[int, float]:
    """Takes batches for about `seconds`; returns images and the seconds they took."""
    started = time.perf_counter()
    images = count = 0
    while True:
        images += len(next(batches)[1])
        count += 1
        took = time.perf_counter() - started
        if took >= seconds and count >= _MIN_BATCHES:
            return images, took


def _of_all(of: Callable[[Path], float]) -> float | None:
    """The sum over this process and its children; None where /proc is not Linux's."""
    processes = [os.getpid()]
    try:
        for process in processes:
            for task in Path(f"/proc/{process}/task").glob("*/children"):
                processes.extend(map(int, task.read_text().split()))
        return sum(of(Path(f"/proc/{process}")) for process in processes)
    except (OSError, IndexError, ValueError):
        return None


def _cpu_seconds(process: Path) -> float:
    """User and system time so far."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(process: Path) -> float:
    lines = (process / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def main() -> None:
    """Reads the order, measures, and ends without waiting for worker processes that have batches left to send."""
    order = json.load(sys.stdin)
    try:
        figures = measure(order["contender"], Task(**order["task"]), order["warmup_s"], order["seconds"])
    except FastpipeError as problem:
        sys.exit(str(problem))
    sys.stdout.write(json.dumps(asdict(figures)) + "\n")


if __name__ == "__main__":
    main()
