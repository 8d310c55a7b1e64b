"""Random draws of a user's functions and modules: those that no seed decides are named in the log."""

from __future__ import annotations

import logging
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastpipe
from fastpipe import warnings_once

RNG = np.random.default_rng()


@pytest.fixture
def log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    warnings_once.forget_all()
    caplog.set_level(logging.WARNING, "fastpipe")
    return caplog


class Noise(torch.nn.Module):
    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.rng = generator

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * float(self.rng.random())


class TorchNoise(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = {"generators": [torch.Generator()]}
        self.generator = torch.Generator()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + torch.randn(images.shape, generator=self.generator)


class OfTheFile(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * RNG.uniform(0.9, 1.1)


class NewEachTime(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * np.random.default_rng().uniform(0.9, 1.1)


class Global(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * torch.rand(1) * random.random() * np.random.uniform()


class Reseeded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.generator.manual_seed(int(torch.randint(1 << 30, ())))
        return images + torch.randn(images.shape, generator=self.generator)


class SeededEachTime(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rng = np.random.default_rng(int(torch.randint(1 << 30, ())))
        return images * rng.uniform(0.9, 1.1)


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        (Noise(np.random.default_rng()), "Noise.rng"),
        (Noise(random.Random()), "Noise.rng"),
        (TorchNoise(), "TorchNoise.generator"),
        (torch.nn.Sequential(OfTheFile()), "RNG"),
        (NewEachTime(), "numpy.random.default_rng()"),
    ],
)
def test_a_module_with_a_generator_of_its_own(
    flat: Path, log: pytest.LogCaptureFixture, module: Any, attribute: str
) -> None:
    for _ in range(2):
        fastpipe.loader(flat, 4, size=8, num_workers=1, augment=[module]).close()
    assert log.text.count(f"draws from a generator of its own ({attribute})") == 1
    assert "Draw from the global generators" in log.text


@pytest.mark.parametrize("module", [Global(), Reseeded(), SeededEachTime()])
def test_modules_that_are_seeded(flat: Path, log: pytest.LogCaptureFixture, module: Any) -> None:
    fastpipe.loader(flat, 4, size=8, num_workers=1, augment=[module]).close()
    assert log.text == ""


def draw_of_python(entries: Any) -> Any:
    return {"tokens": [text if random.random() > 0.5 else "" for text in entries["id"]]}


def draw_of_torch(entries: Any) -> Any:
    return {"tokens": torch.rand(len(entries["id"]))}


def draw_of_numpy(entries: Any) -> Any:
    return {"tokens": np.random.permutation(len(entries["id"]))}


def draw_of_file(entries: Any) -> Any:
    return {"tokens": RNG.permutation(len(entries["id"]))}


def draw_by_another(entries: Any) -> Any:
    return {"tokens": draw_of_torch(entries)["tokens"] > 0.5}


class Drawing:
    def __call__(self, entries: Any) -> Any:
        return draw_of_numpy(entries)


def draw_by_seeds(entries: Any) -> Any:
    rng = np.random.default_rng(entries["seeds"])
    random.Random(int(entries["seeds"][0])).random()
    return {"tokens": rng.permutation(len(entries["id"]))}


def draw_by_generator(entries: Any) -> Any:
    generator = torch.Generator().manual_seed(int(entries["seeds"][0]))
    return {"tokens": torch.rand(4, generator=generator)}


def draw_nothing(entries: Any) -> Any:
    return {"tokens": torch.from_numpy(np.asarray(entries["id"])) + torch.zeros(1)}


@pytest.mark.parametrize(
    ("function", "draw"),
    [
        (draw_of_python, "random.random"),
        (draw_of_torch, "torch.rand"),
        (draw_of_numpy, "np.random.permutation"),
        (draw_of_file, "RNG"),
        (draw_by_another, "torch.rand"),
        (partial(draw_of_torch), "torch.rand"),
        (Drawing(), "np.random.permutation"),
        (lambda entries: {"tokens": random.choices(entries["id"])}, "random.choices"),
    ],
)
def test_a_prepare_that_draws(
    flat: Path, log: pytest.LogCaptureFixture, function: Any, draw: str
) -> None:
    fields = ("image", "id")
    fastpipe.loader(flat, 4, size=8, num_workers=1, fields=fields, prepare=function).close()
    assert f"draws random numbers ({draw}), which neither seed= nor the epoch" in log.text
    assert 'numpy.random.default_rng(entries["seeds"])' in log.text


@pytest.mark.parametrize("function", [draw_by_seeds, draw_by_generator, draw_nothing])
def test_a_prepare_whose_draws_are_seeded(
    flat: Path, log: pytest.LogCaptureFixture, function: Any
) -> None:
    fields = ("image", "id")
    fastpipe.loader(flat, 4, size=8, num_workers=1, fields=fields, prepare=function).close()
    assert log.text == ""


def test_a_size_that_is_drawn(flat: Path, log: pytest.LogCaptureFixture) -> None:
    fastpipe.loader(
        flat, 4, num_workers=1, size=lambda epoch: random.Random(epoch).choice([8, 16])
    ).close()
    fastpipe.loader(flat, 4, num_workers=1, size=lambda epoch: 8 + 8 * (epoch % 2)).close()
    assert log.text == ""
    fastpipe.loader(flat, 4, num_workers=1, size=lambda epoch: random.choice([8, 16])).close()
    assert "size: <lambda> draws random numbers (random.choice)" in log.text
