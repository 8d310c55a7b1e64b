"""Tests of the interpolation of a loader's crops: the pixels that Pillow makes of the same part of the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastpipe
from fastpipe.tools.show.preview import preview_samples

CROPS = {"random": fastpipe.RandomResizedCrop, "whole": fastpipe.Resize}
SIDE = 40


def by_pillow(
    dataset: fastpipe.Dataset, sample: int, box: Any, interpolation: str
) -> np.ndarray[Any, Any]:
    picture = Image.fromarray(dataset[sample][0].permute(1, 2, 0).numpy())
    x, y, width, height = map(int, box)
    cropped = picture.crop((x, y, x + width, y + height))
    return np.asarray(cropped.resize((SIDE, SIDE), Image.Resampling[interpolation.upper()]))


@pytest.mark.parametrize("kind", CROPS)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
def test_batches_are_pillows(large: Path, kind: str, interpolation: str) -> None:
    crop = CROPS[kind](interpolation=interpolation)
    whole = fastpipe.open(large)
    with fastpipe.loader(
        large, 4, size=SIDE, crop=crop, hflip=False, exact=True, num_workers=2
    ) as loader:
        seen = preview_samples(loader, np.arange(len(whole)), 0)[0]
        batches = [images for images, _ in loader]
    assert len(batches) == len(whole) // 4
    for sample, image in enumerate(seen.images):
        expected = by_pillow(whole, sample, seen.plan.crops.boxes[sample], interpolation)
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)
    shown = {image.numpy().tobytes() for image in seen.images}
    assert {image.numpy().tobytes() for images in batches for image in images} <= shown


@pytest.mark.parametrize("interpolation", ["bicubic", "nearest"])
def test_evaluation_is_torchvisions(torchvision: Any, large: Path, interpolation: str) -> None:
    transforms = torchvision.transforms
    mode = transforms.InterpolationMode[interpolation.upper()]
    transform = transforms.Compose([transforms.Resize(71, mode), transforms.CenterCrop(SIDE)])
    whole = fastpipe.open(large)
    crop = fastpipe.CenterCrop(resize=71, interpolation=mode)
    with fastpipe.loader(large, 5, size=SIDE, train=False, crop=crop, num_workers=2) as loader:
        images = torch.cat([images for images, _ in loader])
    for sample, image in enumerate(images):
        expected = np.asarray(transform(Image.fromarray(whole[sample][0].permute(1, 2, 0).numpy())))
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_without_antialiasing_crops_are_those_of_torchvision_on_uint8_tensors(
    torchvision: Any, large: Path, interpolation: str
) -> None:
    """torchvision itself takes torch's uint8 kernel only where the machine has AVX2, else that of float32."""
    whole = fastpipe.open(large)
    pictures = [torch.as_tensor(whole[sample][0]) for sample in range(len(whole))]

    def by_torch(picture: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        return torch.nn.functional.interpolate(
            picture[None], size, mode=interpolation, antialias=False
        )[0]

    crops = {
        "random": fastpipe.RandomResizedCrop(interpolation=interpolation, antialias=False),
        "center": fastpipe.CenterCrop(resize=71, interpolation=interpolation, antialias=False),
    }
    for kind, crop in crops.items():
        with fastpipe.loader(large, 6, size=SIDE, crop=crop, hflip=False, num_workers=2) as loader:
            seen = preview_samples(loader, np.arange(len(whole)), 0)[0]
        for picture, image, box in zip(
            pictures, seen.images, seen.plan.crops.boxes.tolist(), strict=True
        ):
            if kind == "random":
                x, y, width, height = map(int, box)
                expected = by_torch(picture[:, y : y + height, x : x + width], (SIDE, SIDE))
            else:
                height, width = picture.shape[1:]
                shorter = min(height, width)
                resized = by_torch(picture, (71 * height // shorter, 71 * width // shorter))
                expected = torchvision.transforms.functional.center_crop(resized, [SIDE])
            assert torch.equal(image, expected)


@pytest.mark.parametrize("options", [{"interpolation": "nearest"}, {"antialias": False}])
def test_what_averages_nothing_is_never_decoded_at_reduced_size(
    large: Path, options: dict[str, Any]
) -> None:
    def first(exact: bool, **more: Any) -> torch.Tensor:
        crop = fastpipe.RandomResizedCrop(scale=(0.9, 1.0), **more)
        with fastpipe.loader(large, 6, size=16, crop=crop, exact=exact, num_workers=2) as loader:
            images: torch.Tensor = next(iter(loader))[0]
            return images

    assert torch.equal(first(False, **options), first(True, **options))
    assert not torch.equal(first(False), first(True))
    assert not torch.equal(first(True), first(True, **options))


def test_a_webdataset_pipeline_and_files_that_are_no_jpegs(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    (tmp_path / "photos").mkdir()
    Image.fromarray(noise).save(tmp_path / "photos" / "0.png")
    data = (tmp_path / "photos" / "0.png").read_bytes()
    crop = fastpipe.Resize(interpolation="bicubic")
    row = fastpipe.wds.crop(SIDE, crop=crop, hflip=False)({"__key__": "k", "png": data})["png"]
    expected = np.asarray(Image.fromarray(noise).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    assert np.array_equal(row.permute(1, 2, 0).numpy(), expected)
    rows = []
    for each in (crop, fastpipe.Resize()):
        with fastpipe.loader(
            tmp_path / "photos", 1, size=SIDE, crop=each, train=False, num_workers=1
        ) as loader:
            rows.append(next(iter(loader))[0][0].permute(1, 2, 0).numpy().astype(int))
    # The loader converts it to a JPEG of high quality first.
    assert np.abs(rows[0] - expected).mean() < 6 < np.abs(rows[1] - expected).mean()
