"""torch's DataLoader over torchvision's ImageFolder, with Pillow: what most people write."""

from __future__ import annotations

import contender
from import_torchvision import torchvision, training_transform
from torch.utils.data import DataLoader


def read(task: contender.Task) -> contender.Loader:
    return DataLoader(
        torchvision.datasets.ImageFolder(str(task.data), training_transform(task.size)),
        batch_size=task.batch_size,
        shuffle=True,
        num_workers=task.workers,
        drop_last=True,
        persistent_workers=True,
    )


if __name__ == "__main__":
    contender.main(("torch", "torchvision", "pillow"), read)
