"""A packed dataset -> an endless stream of batches, by fastpipe and by what people use with PyTorch today.

All do one task: a random-resized crop (scale 0.08 to 1, ratio 3/4 to 4/3) to `size` pixels, mirrored half of the time,
collated to a uint8 batch (N, 3, size, size), channels_last, on the CPU, with integer labels. All read the same images
from the shards and decode them at full size (fastpipe: exact=True).
The PyTorch ones are what a careful user writes: one process a worker, workers kept alive, library threads limited.
"""

from __future__ import annotations

import io
import math
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from fastpipe.bench.measure import Task
from fastpipe.loading.factory import loader
from fastpipe.loading.loader import Loader
from fastpipe.sources.scan.opening import open_data

Batch = tuple[torch.Tensor, torch.Tensor]
_JPEG = b"\xff\xd8\xff"


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
