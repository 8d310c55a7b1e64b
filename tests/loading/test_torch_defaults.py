"""torch.set_default_device and set_default_dtype: batches and samples are those of a program that sets neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kornia.augmentation as k
import numpy as np
import pytest
import torch
from PIL import Image
from support.batches.asked_fields import asked

import fastpipe
from fastpipe import Augment

# What sets a default, to which value, and what it was before.
DEFAULTS: list[tuple[Callable[[Any], None], object, object]] = [
    (
        torch.set_default_device,
        "meta",
        None,
    ),  # tensors without data: what lands there by mistake fails
    (torch.set_default_dtype, torch.float64, torch.float32),
    (torch.set_default_dtype, torch.bfloat16, torch.float32),
]
PLACED = ("image", "mask", "boxes", "points", "label")


class Own(torch.nn.Module):
    """A module of a user: draws by sample, and makes tensors of no device and no dtype in particular."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (
            images * torch.rand(len(images), 1, 1, 1) + torch.tensor([0.1]) * torch.rand(())
        ).clamp(0, 1)


def turned() -> Augment:
    keys = ["input", "mask", "bbox_xyxy", "keypoints"]
    return Augment(
        k.AugmentationSequential(k.RandomRotation(40.0), k.ColorJitter(0.3, 0.3), data_keys=keys)
    )


CASES: dict[str, dict[str, Any]] = {
    "images": {},
    "fields": {"fields": (*PLACED, "tags", "score", "caption", "id", "valid")},
    "normalised": {"augment": lambda: Augment.imagenet(dtype=torch.bfloat16)},
    "mixed": {
        "augment": lambda: Augment.imagenet(mixup=0.2, cutmix=1.0, erasing=0.5, label_smoothing=0.1)
    },
    "simclr": {"augment": lambda: Augment.simclr(dtype=torch.bfloat16)},
    "randaugment": {"augment": lambda: Augment.randaugment(n=6)},
    "kornia": {"augment": turned, "fields": PLACED},
    "kornia's maps": {"augment": lambda: Augment(k.RandomElasticTransform())},
    "kornia's mixing": {"augment": lambda: Augment(k.RandomMixUpV2(p=1.0))},
    "own module": {"augment": lambda: Augment(Own())},
    "views": {"augment": Augment.imagenet, "views": 2},
    "buckets": {"size": "bucket", "fields": ("image", "mask", "image_size", "pixel_mask")},
    "crops": {"crop": fastpipe.FiveCrop(), "train": False},
    "mixture": {"both": True, "epoch_size": 16},
    "weights": {"sampler": fastpipe.Weighted(np.arange(1, 9.0))},
    "torch's sampler": {"sampler": torch.utils.data.RandomSampler(range(8))},
    "torch's weights": {"sampler": torch.utils.data.WeightedRandomSampler([1.0, 2.0] * 4, 8)},
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two datasets of 8 samples with fields of most kinds; every fourth has no mask."""
    folders = [tmp_path_factory.mktemp("defaults") / name for name in "ab"]
    kinds = {
        "mask": "mask",
        "boxes": "boxes",
        "points": "keypoints",
        "tags": "classes",
        "caption": "text",
    }
    for number, folder in enumerate(folders):
        rng = np.random.default_rng(number)
        with fastpipe.Writer(folder, fields=kinds | {"score": "floats"}) as writer:
            for place in range(8):
                height, width = 30 + place, 40 - place
                writer.add(
                    Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)),
                    place % 3,
                    mask=rng.integers(0, 5, (height, width), dtype=np.uint8) if place % 4 else None,
                    boxes={"boxes": [[1, 2, 20, 30]], "labels": [1]},
                    points=[[[3.0, 4.0, 1.0]]],
                    tags=[place % 3],
                    caption=f"number {place}",
                    score=[place / 7],
                )
    return folders


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [leaf for part in value for leaf in leaves(part)]
        if isinstance(value, (list, tuple))
        else [value]
    )


def batches(two: list[Path], options: dict[str, Any]) -> list[Any]:
    options = {"size": 24, **options}
    data: Any = fastpipe.mix(dict.fromkeys(two, 1.0)) if options.pop("both", False) else two[0]
    if "augment" in options:
        options["augment"] = options["augment"]()
    options["fields"] = asked(options.get("fields"), {"flip_pairs": []})
    with fastpipe.loader(data, 4, num_workers=1, **options) as loader:
        return [leaf for _ in range(2) for batch in loader for leaf in leaves(batch)]


def samples(two: list[Path], crop: Any) -> list[Any]:
    dataset = fastpipe.open(two[0]).cropped(crop, size=16).with_fields(PLACED)
    torch.manual_seed(3)
    found = leaves(dataset[1])  # torch's generator decides on its crop
    dataset.set_epoch(1)
    return [*found, *leaves(dataset.__getitems__([2, 4]))]


def check_equal(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, torch.Tensor):
            assert (one.device, one.dtype) == (other.device, other.dtype)
            assert torch.equal(one, other)
        else:
            assert one == other


@pytest.mark.parametrize("case", CASES)
def test_a_loader_ignores_them(two: list[Path], case: str) -> None:
    expected = batches(two, CASES[case])
    for put, value, before in DEFAULTS:
        put(value)
        try:
            found = batches(two, CASES[case])
            left = torch.empty(0)
        finally:
            put(before)
        check_equal(found, expected)
        assert value in (left.device.type, left.dtype), "the program's own tensors are as it says"


@pytest.mark.usefixtures(
    "torchvision"
)  # a Dataset's values are its tensors where it can be imported
@pytest.mark.parametrize("crop", [fastpipe.RandomResizedCrop(), fastpipe.FiveCrop()])
def test_a_dataset_ignores_them(two: list[Path], crop: Any) -> None:
    expected = samples(two, crop)
    for put, value, before in DEFAULTS:
        put(value)
        try:
            found = samples(two, crop)
        finally:
            put(before)
        check_equal(found, expected)
