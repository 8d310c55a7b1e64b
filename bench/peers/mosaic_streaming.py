"""MosaicML Streaming: MDS shards of the photos' own JPEGs, decoded by Pillow, torchvision's transforms."""

from __future__ import annotations

from typing import Any

import contender
from import_torchvision import training_transform
from PIL import Image
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader


class Photos(StreamingDataset):
    """Samples, transformed as its documentation shows."""

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__(**options)
        self._transform = training_transform(size)

    def __getitem__(self, at: int) -> Any:
        sample = super().__getitem__(at)
        return self._transform(sample["image"].convert("RGB")), sample["label"]


def write(making: contender.Making) -> None:
    """MDS shards, whose "jpeg" stores a file's own bytes; its writer has one process."""
    with MDSWriter(
        out=str(making.destination), columns={"image": "jpeg", "label": "int"}
    ) as shards:
        for path, label in contender.photo_files(making.photos):
            with Image.open(path) as image:
                shards.write({"image": image, "label": label})


def read(task: contender.Task) -> contender.Loader:
    clean_stale_shared_memory()  # what a run that was killed left in /dev/shm
    photos = Photos(task.size, local=str(task.data), shuffle=True, batch_size=task.batch_size)
    return DataLoader(
        photos,
        batch_size=task.batch_size,
        num_workers=task.workers,
        drop_last=True,
        persistent_workers=True,
    )


if __name__ == "__main__":
    contender.main(
        ("mosaicml-streaming", "torch", "torchvision", "pillow"),
        read,
        write,
        clean_stale_shared_memory,
    )
