"""Pixels of masks that come from outside the image have one id: padded, turned in, erased, or of no mask at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kornia.augmentation as k
import numpy as np
import pytest
import torch
from kornia.constants import DataKey
from torch import Tensor
from torch.nn import functional

import fastpipe
from fastpipe.errors import ConfigError

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT = 9
MOVING = {
    "rotation": lambda: k.RandomRotation(60.0, p=1.0),
    "affine": lambda: k.RandomAffine(40.0, (0.3, 0.3), p=1.0),
    "affine that fills": lambda: k.RandomAffine(
        40.0, p=1.0, padding_mode="fill", fill_value=torch.zeros(3)
    ),
    "perspective": lambda: k.RandomPerspective(0.7, p=1.0),
    "shear": lambda: k.RandomShear(40.0, p=1.0),
    "translation": lambda: k.RandomTranslate((0.3, 0.4), (0.3, 0.4), p=1.0),
    "crop": lambda: k.RandomCrop((24, 24), padding=9, p=1.0),
    "padding": lambda: k.PadTo((30, 30)),
    "elastic": lambda: k.RandomElasticTransform(alpha=(40.0, 40.0), p=1.0),
    "erasing": lambda: k.RandomErasing((0.2, 0.3), p=1.0),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright images; masks of the ids 1 to 4, never 0, and 1,000 times as much; every third sample has none."""
    folder = tmp_path_factory.mktemp("fill") / "data"
    rng = np.random.default_rng(2)
    with fastpipe.Writer(folder, fields={"mask": "mask", "wide": "mask"}) as writer:
        for number in range(COUNT):
            mask = rng.integers(1, 5, (40, 50), dtype=np.uint8)
            given = {"mask": mask, "wide": mask * np.uint16(1000)} if number % 3 else {}
            writer.add(rng.integers(130, 256, (40, 50, 3), dtype=np.uint8), number % 2, **given)
    return folder


def augment_of(*modules: torch.nn.Module, **options: Any) -> fastpipe.Augment:
    moved = k.AugmentationSequential(*modules, data_keys=["input", "mask"], **options)
    return fastpipe.Augment(moved, mean=None, std=None)


def batch_of(data: Path, crop: Any, augment: fastpipe.Augment | None = None) -> dict[str, Any]:
    fields = ("image", "id", "mask", "wide")
    with fastpipe.loader(
        data, COUNT, size=24, crop=crop, augment=augment, fields=fields, num_workers=1
    ) as loader:
        (batch,) = loader
        return dict(batch)


def inside(flags: Tensor) -> Tensor:
    """The pixels whose neighbours are all set, too: at a border images are mixed and masks are not."""
    padded = functional.pad(flags[:, None].float(), (2, 2, 2, 2), value=1.0)
    return -functional.max_pool2d(-padded, 5, 1)[:, 0] > 0


def check_filled(batch: dict[str, Any], fill: int) -> None:
    none = batch["id"] % 3 == 0
    mask, wide = batch["mask"], batch["wide"]
    assert (mask.dtype, wide.dtype) == (torch.uint8, torch.int32)
    assert (mask[none] == fill).all()
    assert (wide[none] == fill).all()
    images, mask, wide = (batch[name][~none] for name in ("image", "mask", "wide"))
    black = (images == 0).all(1)
    assert set(mask.unique().tolist()) == {1, 2, 3, 4, fill}
    filled = mask == fill
    assert filled[inside(black)].all()
    assert black[inside(filled)].all()
    assert inside(black).any() or filled.float().mean() < 0.1  # thin strips
    assert torch.equal(wide, torch.where(filled, fill, mask.int() * 1000))


@pytest.mark.parametrize("fill", [255, 0])
@pytest.mark.parametrize("name", MOVING)
def test_pixels_that_a_module_brings_in(data: Path, name: str, fill: int) -> None:
    crop = fastpipe.RandomResizedCrop(mask_fill=fill)
    check_filled(batch_of(data, crop, augment_of(MOVING[name]())), fill)


def test_one_module_after_the_other(data: Path) -> None:
    augment = augment_of(
        k.RandomRotation(60.0, p=0.7),
        k.RandomErasing((0.1, 0.2), p=0.5),
        k.RandomRotation(60.0, p=0.7),
    )
    check_filled(batch_of(data, fastpipe.Resize(mask_fill=255), augment), 255)


def test_what_a_module_puts_into_images_is_no_id(data: Path) -> None:
    """kornia would put it into masks, too: a half is refused elsewhere, and a whole number would be a class."""
    for module in (
        k.RandomCrop((24, 24), padding=9, fill=1, p=1.0),
        k.PadTo((30, 30), pad_value=1.0),
    ):
        batch = batch_of(data, fastpipe.Resize(mask_fill=255), augment_of(module))
        assert set(batch["wide"].unique().tolist()) == {1000, 2000, 3000, 4000, 255}
    with pytest.raises(
        ConfigError, match=r"no fill of masks; pass mask_fill= to the loader's crop"
    ):
        augment_of(
            k.RandomCrop((24, 24), padding=9),
            extra_args={DataKey.MASK: {"resample": "nearest", "fill": 255}},
        )


@pytest.mark.parametrize("padding_mode", ["constant", "edge"])
def test_padding_and_modules_fill_alike(data: Path, padding_mode: str) -> None:
    crop = fastpipe.Letterbox(padding_mode=padding_mode, mask_fill=7)
    padded = batch_of(data, crop)
    there = padded["id"] % 3 != 0
    assert (padded["mask"][~there] == 7).all()
    assert bool((padded["mask"][there][:, 0] == 7).all()) == (padding_mode == "constant")
    turned = batch_of(data, crop, augment_of(k.RandomRotation((45.0, 45.0), p=1.0)))
    assert (turned["mask"][:, 0, 0] == 7).all()


def test_single_samples(data: Path) -> None:
    crop = fastpipe.CenterCrop(mask_fill=255)
    dataset = fastpipe.open(data).with_fields(("mask", "wide")).cropped(crop, size=16)
    assert (dataset[3]["mask"] == 255).all()
    assert (dataset[3]["wide"] == 255).all()
    assert set(np.unique(dataset[1]["mask"])) <= {1, 2, 3, 4}


def test_a_loader_says_whose_option_it_is(data: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"mask_fill.*crop=fastpipe.RandomResizedCrop\(mask_fill=255\)"
    ):
        fastpipe.loader(data, 4, size=24, mask_fill=255)  # type: ignore[call-arg]
