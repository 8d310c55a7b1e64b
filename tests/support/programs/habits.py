"""What tests of a program's habits share: loaders, a training, and a log as in a new process."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastpipe
from fastpipe import warnings_once
from fastpipe.dataset import other_order
from fastpipe.device import image_batch
from fastpipe.loading import (
    evaluated_on_training,
    optimizer_steps,
    pairs,
    programs,
    trained_again,
)


@pytest.fixture
def warned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: each warning comes once."""
    warnings_once.forget_all()
    # It looks at all objects of the process.
    warnings_once.remember("begun")
    monkeypatch.setattr(programs, "_looked_at", [])
    monkeypatch.setattr(programs, "names_read", set())
    monkeypatch.setattr(image_batch, "names_read", programs.names_read)
    optimizer_steps.forget_looks()
    monkeypatch.setattr(trained_again, "_trained", {})
    monkeypatch.setattr(programs, "_first_epochs", Counter())
    monkeypatch.setattr(evaluated_on_training, "_rounds", evaluated_on_training._Rounds())
    monkeypatch.setattr(other_order, "_read", set())
    monkeypatch.setattr(other_order, "_evaluated", {})
    pairs.forget_all()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "fastpipe")
    caplog.set_level(logging.WARNING, "fastpipe.pack")
    return caplog


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
