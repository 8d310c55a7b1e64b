"""What tests of a program's habits share: loaders, a training, and a log as in a new process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import fastpipe
from fastpipe.dataset import other_order
from fastpipe.device import image_batch
from fastpipe.loading import (
    evaluated_on_training,
    pairs,
    programs,
    trained_again,
)


def forget_the_program() -> None:
    """What warnings know of the loaders and epochs that this process had, as in a new process."""
    programs._looked_at.clear()
    programs._first_epochs.clear()
    image_batch.names_read.clear()
    trained_again._trained.clear()
    evaluated_on_training.forget_all()
    other_order._read.clear()
    other_order._evaluated.clear()
    pairs.forget_all()


def loader_of(data: Any, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, 4, size=8, num_workers=1, **options)


def train(loader: fastpipe.Loader, epochs: int = 1) -> None:
    for _ in range(epochs):
        for _ in loader:
            pass


@torch.no_grad()
def evaluate(loader: fastpipe.Loader) -> None:
    list(loader)


class Training:
    """A parameter, and steps of an optimizer that has a state after the first one, with momentum."""

    def __init__(self, momentum: float = 0.9) -> None:
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1, momentum=momentum)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.weight.square().sum().backward()
        self.optimizer.step()


def class_folders(folder: Path, size: tuple[int, int] = (20, 20)) -> Path:
    """Three classes of 8 images, which lie class by class."""
    for number, name in enumerate(["ant", "bee", "cat"]):
        (folder / name).mkdir(parents=True)
        for image in range(8):
            Image.new("RGB", size, (number, image, 0)).save(folder / name / f"{image}.png")
    return folder


def write_grays(folder: Path, names: list[str]) -> Path:
    """A dataset of one image of each name, in an order of its own."""
    with fastpipe.Writer(folder) as writer:
        for number, name in enumerate(names):
            writer.add(np.full((9, 9, 3), number, np.uint8), key=name)
    return folder


def pack_pictures(
    folder: Path, classes: list[str], shape: tuple[int, ...], seed: int = 0, **options: Any
) -> Path:
    """Packs noise of a shape: two pictures of each class. Returns the dataset's folder."""
    random = np.random.default_rng(seed)
    for number, name in enumerate(classes * 2):
        file = folder / "photos" / name / f"{seed}-{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, shape, dtype=np.uint8)).save(file)
    fastpipe.pack(folder / "photos", folder / "data", **options)
    return folder / "data"


class Call(torch.nn.Module):
    """A user's module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: torch.Tensor) -> Any:
        return self.function(images)
