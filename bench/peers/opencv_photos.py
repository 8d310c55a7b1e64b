"""torch's DataLoader over the photos' files, with a JPEG decoder and OpenCV: what a careful user writes.

Pictures stay as they are decoded, (height, width, 3): the batch is collated from them and seen as (N, 3, height,
width), which is channels_last. Turning each to (3, height, width) first costs a copy more. OpenCV's linear resize is
not antialiased, so it is less work than what the others do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contender
import cv2
import torch
from crop_law import random_crop
from torch.utils.data import DataLoader, Dataset, default_collate

Sample = tuple[torch.Tensor, int]
Decoder = Callable[[bytes], Any]  # a file's bytes -> (height, width, 3) uint8, RGB


class Photos(Dataset[Sample]):
    """Files in one folder a class; each worker makes its own decoder."""

    def __init__(self, folder: Path, size: int, decoder: Callable[[], Decoder]) -> None:
        self._files = contender.photo_files(folder)
        self._size = size
        self._decoder = decoder
        self._decode: Decoder | None = None

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> Sample:
        if self._decode is None:
            cv2.setNumThreads(0)
            self._decode = self._decoder()
        path, label = self._files[number]
        with open(path, "rb") as file:
            picture = self._decode(file.read())
        x, y, w, h = random_crop(picture.shape[1], picture.shape[0])
        picture = cv2.resize(
            picture[y : y + h, x : x + w], (self._size, self._size), interpolation=cv2.INTER_LINEAR
        )
        if random.random() < 0.5:
            picture = cv2.flip(picture, 1)
        return torch.from_numpy(picture), label


def collate(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch, seen as (N, 3, height, width)."""
    pictures, labels = default_collate(samples)
    return pictures.permute(0, 3, 1, 2), labels


def read(task: contender.Task, decoder: Callable[[], Decoder]) -> contender.Loader:
    """The loader, with what makes a worker's decoder."""
    return DataLoader(
        Photos(task.data, task.size, decoder),
        batch_size=task.batch_size,
        shuffle=True,
        num_workers=task.workers,
        collate_fn=collate,
        drop_last=True,
        persistent_workers=True,
    )
