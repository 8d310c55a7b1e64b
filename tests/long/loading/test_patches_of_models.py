"""Patches as the processors of models make them: Qwen2-VL's of transformers, and timm's NaFlex loader."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures.drawn import smooth_noise
from support.running.soak import Tried, times

import fastpipe

COUNT = times(40, 2000)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """PNGs of many shapes."""
    folder = tmp_path_factory.mktemp("images")
    draws = np.random.default_rng(0)
    paths = []
    for number in range(COUNT):
        width, height = (int(side) for side in draws.integers(30, 500, 2))
        path = folder / f"{number:05}.png"
        smooth_noise(width, height, seed=number).save(path, compress_level=1)
        paths.append(path)
    return paths


@pytest.fixture(scope="module")
def data(images: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "data"
    with fastpipe.Writer(folder) as writer:
        for number, path in enumerate(images):
            writer.add(path, label=number % 7, key=path.name)
    return folder


@pytest.mark.usefixtures("torchvision")
def test_qwens_pixel_values(data: Path, images: list[Path], tried: Tried) -> None:
    pytest.importorskip("transformers")
    module = "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl"
    processor = importlib.import_module(module).Qwen2VLImageProcessorPil()
    processor.size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 96}
    size = fastpipe.Patches(14, max_tokens=96, min_tokens=4, merge=2, channels_first=True, frames=2)
    augment = fastpipe.Augment(mean=processor.image_mean, std=processor.image_std)
    levels = fastpipe.loader(data, 8, size=size, train=False)
    normalised = fastpipe.loader(data, 8, size=size, train=False, augment=augment)
    seen = 0
    for raw, batch in zip(levels, normalised, strict=True):
        pictures = []
        for number in raw.ids.tolist():
            with Image.open(images[number]) as picture:
                pictures.append(picture.convert("RGB"))
        plain = {"do_rescale": False, "do_normalize": False}
        expected = processor(pictures, return_tensors="pt", **plain)
        assert torch.equal(expected["image_grid_thw"][:, 1:], raw.grids)
        assert torch.equal(expected["pixel_values"].float(), raw.patches.float())
        expected = processor(pictures, return_tensors="pt")
        torch.testing.assert_close(batch.patches, expected["pixel_values"], atol=5e-7, rtol=0)
        seen += len(pictures)
    assert seen == COUNT
    tried("patches of Qwen2-VL", COUNT, "levels equal, normalised within 5e-7")


class PictureFiles(torch.utils.data.Dataset[Any]):
    """For timm's wrapper, which sets the transform."""

    transform: Any = None

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        with Image.open(self.paths[number]) as picture:
            return self.transform(picture.convert("RGB")), number % 7


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_timms_naflex_batches(
    data: Path, images: list[Path], interpolation: str, tried: Tried
) -> None:
    naflex = pytest.importorskip("timm.data.naflex_loader")
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    theirs = naflex.create_naflex_loader(
        PictureFiles(images),
        patch_size=16,
        max_seq_len=100,
        batch_size=8,
        is_training=False,
        interpolation=interpolation,
        mean=mean,
        std=std,
        num_workers=0,
        use_prefetcher=False,
        pin_memory=False,
        persistent_workers=False,
        device="cpu",
    )
    size = fastpipe.Patches(
        16, max_tokens=100, enlarge=True, form="padded", interpolation=interpolation
    )
    augment = fastpipe.Augment(mean=mean, std=std)
    ours = fastpipe.loader(data, 8, size=size, train=False, augment=augment)
    for (inputs, labels), batch in zip(theirs, ours, strict=True):
        assert torch.equal(inputs["patch_coord"], batch.coords)
        assert torch.equal(inputs["patch_valid"], batch.patch_valid)
        assert torch.equal(labels, batch.labels)
        torch.testing.assert_close(batch.patches, inputs["patches"], atol=1e-6, rtol=0)
    tried("batches of timm's NaFlex loader", COUNT, "equal, patches within 1e-6")
