"""The process that is measured: a task on standard input -> figures on standard output.

A contender makes an endless stream of batches of a packed dataset: fastpipe, or what people use
with PyTorch today. All do one task: a random-resized crop (scale 0.08 to 1, ratio 3/4 to 4/3) to
`size` pixels, mirrored half of the time, collated to a uint8 batch (N, 3, size, size),
channels_last, on the CPU, with integer labels. All read the same images from the shards and decode
them at full size (fastpipe: exact=True). The PyTorch ones are what a careful user writes: one
process a worker, workers kept alive, library threads limited.
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

from fastpipe.errors import FastpipeError
from fastpipe.loading import factory
from fastpipe.loading.loader import Loader
from fastpipe.sources.scan.opening import open_data
from fastpipe.tools.bench.measure import Figures, Task

Batch = tuple[torch.Tensor, torch.Tensor]
_JPEG = b"\xff\xd8\xff"  # the first bytes of every JPEG
# A measurement of fewer batches would depend on what was made ahead.
_MIN_BATCHES = 4


def make_fastpipe_loader(task: Task) -> Loader:
    """fastpipe's own loader for the task; every epoch takes all samples."""
    return factory.loader(
        task.data,
        task.batch_size,
        size=task.size,
        seed=task.seed,
        num_workers=task.workers,
        exact=True,
        drop_last=len(open_data(task.data)) >= task.batch_size,
    )


def iterate_torch(contender: str, task: Task) -> Iterator[Batch]:
    """Batches of a torch.utils.data.DataLoader.

    "torch-pil" uses Pillow, as torchvision's ImageFolder recipe does it. "torch-cv2" decodes with
    PyTurboJPEG, and with OpenCV what is no JPEG, and resizes with OpenCV.
    """
    dataset = _DATASETS[contender](task)
    generator = torch.Generator().manual_seed(task.seed)
    # Random permutations, one after the other: no pauses between epochs.
    endless = len(dataset) * 10**9
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=task.batch_size,
        sampler=RandomSampler(dataset, num_samples=endless, generator=generator),
        num_workers=task.workers,
        persistent_workers=True,
    )
    # Rows are collated as decoders give them, (height, width, 3), and the batch is seen as (N, 3,
    # height, width).
    for images, labels in batches:
        yield images.permute(0, 3, 1, 2), labels


class _Shards(Dataset[Any]):
    """Reads the bytes of images from the shards, as cheaply as Python can."""

    def __init__(self, task: Task) -> None:
        self._index = open_data(task.data)
        self._size = task.size
        self._files: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._index)

    def _read(self, sample: int) -> tuple[bytes, int]:
        """Reads the bytes of an image, and its label."""
        record = self._index.records[sample]
        shard = int(record["shard"])
        offset = int(record["offset"])
        size_bytes = int(record["size"])
        label = int(record["label"])
        path = self._index.shards[shard].path
        if not self._index.packed:
            # A file for each image, opened each time as ImageFolder does.
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(size_bytes), label
        # A worker keeps each shard open.
        if shard not in self._files:
            self._files[shard] = os.open(path, os.O_RDONLY)
        return os.pread(self._files[shard], size_bytes, offset), label


class _PilDataset(_Shards):
    def __getitem__(self, sample: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        data, label = self._read(sample)
        image = Image.open(io.BytesIO(data)).convert("RGB")
        x, y, width, height = _draw_crop(*image.size)
        right = x + width
        bottom = y + height
        image = image.crop((x, y, right, bottom))
        size = (self._size, self._size)
        image = image.resize(size, Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image))  # (height, width, channels)
        return pixels, label


class _Cv2Dataset(_Shards):
    _turbo: Any = None

    def __getitem__(self, sample: int) -> tuple[torch.Tensor, int]:
        import cv2
        import turbojpeg

        from fastpipe.sources.picture.jpeg import open_turbojpeg

        if self._turbo is None:
            # Each worker has one CPU: OpenCV's own threads would only compete.
            cv2.setNumThreads(0)
            self._turbo = open_turbojpeg()
        data, label = self._read(sample)
        if data.startswith(_JPEG):
            image = self._turbo.decode(data, pixel_format=turbojpeg.TJPF_RGB)
        else:
            flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
            decoded = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
            if decoded is None:
                raise ValueError(
                    f"sample {sample}: OpenCV cannot decode it; "
                    "bench without --against, or pack first"
                )
            image = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
        image_height, image_width = image.shape[:2]
        x, y, width, height = _draw_crop(image_width, image_height)
        crop = image[y : y + height, x : x + width]
        resized = cv2.resize(
            crop, (self._size, self._size), interpolation=cv2.INTER_LINEAR
        )
        if random.random() < 0.5:
            resized = cv2.flip(resized, 1)
        return torch.from_numpy(resized), label


_DATASETS: dict[str, type[_Shards]] = {
    "torch-pil": _PilDataset,
    "torch-cv2": _Cv2Dataset,
}


def _draw_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Draws as torchvision's RandomResizedCrop.get_params, by Python's quicker generator.

    Returns:
        x, y, width and height of the crop, pixels.
    """
    least_log = math.log(3 / 4)
    greatest_log = math.log(4 / 3)
    for _ in range(10):
        share = random.uniform(0.08, 1.0)
        area = width * height * share
        log_ratio = random.uniform(least_log, greatest_log)
        ratio = math.exp(log_ratio)
        crop_width = round(math.sqrt(area * ratio))
        crop_height = round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            last_x = width - crop_width
            last_y = height - crop_height
            x = random.randint(0, last_x)
            y = random.randint(0, last_y)
            return x, y, crop_width, crop_height
    # After ten tries: the largest crop of an allowed ratio, in the middle.
    crop_width = min(width, round(height * 4 / 3))
    crop_height = min(height, round(width * 4 / 3))
    x = (width - crop_width) // 2
    y = (height - crop_height) // 2
    return x, y, crop_width, crop_height


def measure(contender: str, task: Task, warmup_s: float, seconds: float) -> Figures:
    """Runs one contender in this process."""
    if contender == "fastpipe":
        return _measure_fastpipe(task, warmup_s, seconds)
    began_s = time.perf_counter()
    batches = iterate_torch(contender, task)
    first_batch_s = _warm_up(batches, began_s, warmup_s)
    return _measure_speed(batches, first_batch_s, seconds)


def _measure_fastpipe(task: Task, warmup_s: float, seconds: float) -> Figures:
    """Measures fastpipe's loader, with the times of its stages."""
    began_s = time.perf_counter()
    loader = make_fastpipe_loader(task)
    batches = chain.from_iterable(repeat(loader))  # one epoch after the other
    first_batch_s = _warm_up(batches, began_s, warmup_s)
    before = loader.stats()
    figures = _measure_speed(batches, first_batch_s, seconds)
    after = loader.stats()
    loader.close()
    spent = after.since(before)
    # Images are decoded ahead, so more are decoded than handed out.
    us_per_decoded = 1e6 / spent.images_decoded
    us_per_planned = 1e6 / spent.samples
    return replace(
        figures,
        read_us=spent.read_s * us_per_decoded,
        decode_us=spent.decode_s * us_per_decoded,
        resize_us=spent.resize_s * us_per_decoded,
        plan_us=spent.plan_s * us_per_planned,
    )


def _warm_up(batches: Iterator[Batch], began_s: float, warmup_s: float) -> float:
    """Takes batches for `warmup_s`; returns the seconds from `began_s` to the first one."""
    next(batches)
    # The first batches fill caches and start threads, so they are not measured.
    first_batch_s = time.perf_counter() - began_s
    _run(batches, warmup_s)
    return first_batch_s


def _measure_speed(
    batches: Iterator[Batch], first_batch_s: float, seconds: float
) -> Figures:
    cpu_before_s = _sum_family(_read_cpu_s)
    image_count, elapsed_s = _run(batches, seconds)
    cpu_after_s = _sum_family(_read_cpu_s)
    cpus = None
    if cpu_before_s is not None and cpu_after_s is not None:
        cpus = (cpu_after_s - cpu_before_s) / elapsed_s
    return Figures(
        images_per_s=image_count / elapsed_s,
        first_batch_s=first_batch_s,
        cpus=cpus,
        memory_mb=_sum_family(_read_memory_mb),
    )


def _run(batches: Iterator[Batch], seconds: float) -> tuple[int, float]:
    """Takes batches for about `seconds`; returns the number of images and the seconds they took."""
    began_s = time.perf_counter()
    image_count = 0
    batch_count = 0
    while True:
        _, labels = next(batches)
        image_count += len(labels)
        batch_count += 1
        elapsed_s = time.perf_counter() - began_s
        if elapsed_s >= seconds and batch_count >= _MIN_BATCHES:
            return image_count, elapsed_s


def _sum_family(read: Callable[[Path], float]) -> float | None:
    """Sums a figure over this process and its children; None if /proc is not Linux's."""
    try:
        return sum(read(Path(f"/proc/{pid}")) for pid in _list_family())
    except (OSError, IndexError, ValueError):
        return None


def _list_family() -> list[int]:
    """Lists this process and the processes that it has started, and so on."""
    family = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        family.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += [int(child) for child in children.read_text().split()]
    return family


def _read_cpu_s(process: Path) -> float:
    """Reads the seconds of user and system time."""
    _, _, after_name = (process / "stat").read_text().rpartition(")")
    fields = after_name.split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_memory_mb(process: Path) -> float:
    """Reads the proportional set size: a page that n processes share counts 1/n for each."""
    # Pss:              123456 kB
    kilobytes = 0
    for line in (process / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            kilobytes += int(line.split()[1])
    return kilobytes / 1e3


def main() -> None:
    """Reads the order, measures, and ends without waiting for workers that send batches."""
    order = json.load(sys.stdin)
    task = Task(**order["task"])
    try:
        figures = measure(order["contender"], task, order["warmup_s"], order["seconds"])
    except FastpipeError as problem:
        sys.exit(str(problem))
    sys.stdout.write(json.dumps(asdict(figures)) + "\n")


if __name__ == "__main__":
    main()
