"""LitData: chunks of the photos' own bytes, decoded by Pillow, torchvision's transforms.

Its own JPEG type is decoded by torchvision's compiled operators, which do not exist for a torch without CUDA; they and
Pillow use the same decoder, libjpeg-turbo.
"""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import contender
import torch
from import_torchvision import training_transform
from litdata import StreamingDataLoader, StreamingDataset, optimize
from PIL import Image


def load(photo: tuple[str, int]) -> dict[str, Any]:
    path, label = photo
    return {"jpeg": Path(path).read_bytes(), "label": label}


def write(making: contender.Making) -> None:
    """Chunks of the size that is its default."""
    optimize(
        load,
        contender.photo_files(making.photos),
        str(making.destination),
        chunk_bytes="64MB",
        num_workers=making.workers,
        start_method="fork",
        verbose=False,
    )


def transformed(sample: dict[str, Any], transform: Any) -> tuple[torch.Tensor, int]:
    return transform(Image.open(io.BytesIO(sample["jpeg"])).convert("RGB")), sample["label"]


def read(task: contender.Task) -> contender.Loader:
    transform = functools.partial(transformed, transform=training_transform(task.size))
    photos = StreamingDataset(str(task.data), shuffle=True, drop_last=True, transform=transform)
    return StreamingDataLoader(
        photos,
        batch_size=task.batch_size,
        num_workers=task.workers,
        drop_last=True,
        persistent_workers=True,
    )


if __name__ == "__main__":
    contender.main(("litdata", "torch", "torchvision", "pillow"), read, write)
