"""torch's DataLoader over torchvision's ImageFolder, with Pillow: what most people write.

The variant "small" is its CIFAR: an array in memory, each picture moved by up to 4 pixels.
"""

from __future__ import annotations

import contender
import numpy as np
from import_torchvision import torchvision, training_transform
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import Compose, PILToTensor, RandomCrop, RandomHorizontalFlip


class Arrays:
    """As torchvision.datasets.CIFAR10."""

    def __init__(self, folder) -> None:
        self._images, self._labels = (
            np.load(folder / "images.npy"),
            np.load(folder / "labels.npy").tolist(),
        )
        self._transform = Compose(
            [RandomCrop(32, padding=4), RandomHorizontalFlip(), PILToTensor()]
        )

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, number: int):
        return self._transform(Image.fromarray(self._images[number])), self._labels[number]


def write(making: contender.Making) -> None:
    files = contender.photo_files(making.photos)
    making.destination.mkdir(parents=True)
    np.save(
        making.destination / "images.npy",
        np.stack([np.asarray(Image.open(path)) for path, _ in files]),
    )
    np.save(making.destination / "labels.npy", np.array([label for _, label in files]))


def read(task: contender.Task) -> contender.Loader:
    if task.variant == "small":
        pictures = Arrays(task.data)
    else:
        pictures = torchvision.datasets.ImageFolder(str(task.data), training_transform(task.size))
    return DataLoader(
        pictures,
        batch_size=task.batch_size,
        shuffle=True,
        num_workers=task.workers,
        drop_last=True,
        persistent_workers=True,
    )


if __name__ == "__main__":
    contender.main(("torch", "torchvision", "pillow"), read, write)
