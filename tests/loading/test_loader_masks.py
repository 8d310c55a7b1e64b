"""Masks and second pictures, from fastpipe.Writer to a batch: ids and pixels of the same crops; failures are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.pictures.torchvision_masks import torchvisions

import fastpipe
from fastpipe.dataset.format.fields import FIELD_IMAGE_DTYPE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.plan.content import Content
from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

COUNT, SIZE = 30, (40, 36)
NAMES = ("id", "image", "mask", "depth", "wide")
SHAPE = (48, 60)


def mask_of(number: int, dtype: type = np.uint8) -> NDArray[Any]:
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return ((y * 131 + x * 29 + number * 7) % np.iinfo(dtype).max).astype(dtype)


def picture_of(number: int) -> NDArray[np.uint8]:
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return np.stack([y * 5, x * 4, np.full_like(x, number * 8)], axis=-1).astype(np.uint8)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("masks") / "data"
    with fastpipe.Writer(data, fields={"mask": "mask", "wide": "mask", "depth": "image"}) as writer:
        for number in range(COUNT):
            picture, wide = picture_of(number), mask_of(number, np.uint16)
            writer.add(
                picture,
                label=number % 2,
                key=str(number),
                mask=mask_of(number),
                wide=wide,
                depth=picture,
            )
    return data


@pytest.fixture
def keys(written: Path) -> list[int]:
    """Of each sample, the number that it was written with."""
    return [int(sample["key"]) for sample in fastpipe.open(written).with_fields(("key",))]


CROPS = [fastpipe.RandomResizedCrop(), fastpipe.CenterCrop(resize=44), fastpipe.Resize()]


@pytest.mark.parametrize("crop", CROPS, ids=lambda crop: type(crop).__name__)
def test_masks_are_those_of_torchvision(
    written: Path, keys: list[int], torchvision: ModuleType, crop: Any
) -> None:
    from torchvision.transforms import v2

    options = {"size": SIZE, "crop": crop, "seed": 3}
    content = Content.of(PackedIndex(written))
    recipe = Recipe(
        batch_size=8, flip=0.5, shuffle=True, drop_last=False, content=content, **options
    )
    plan = EpochPlan(recipe, 0)
    with fastpipe.loader(
        written, 8, fields=NAMES, drop_last=False, num_workers=2, **options
    ) as loader:
        for number, batch in enumerate(loader):
            assert tuple(batch) == NAMES
            rows = plan.batch(number)
            assert batch["id"].tolist() == rows.samples.tolist()
            assert (batch["mask"].dtype, batch["wide"].dtype) == (torch.uint8, torch.int32)
            for row, sample in enumerate(rows.samples.tolist()):
                one = slice(row, row + 1)
                where = Crops(rows.crops.boxes[one], rows.crops.bounds[one], SIZE)
                for name, dtype in (("mask", np.uint8), ("wide", np.uint16)):
                    ids = mask_of(keys[sample], dtype).astype(np.int32)
                    expected = torchvisions(v2, ids, crop, SIZE, where, bool(rows.flips[row]))
                    assert np.array_equal(batch[name][row].numpy(), expected)
    assert number == (COUNT - 1) // 8


def test_a_second_picture_that_is_the_first_gives_the_same_rows(written: Path) -> None:
    with fastpipe.loader(written, 8, size=SIZE, fields=NAMES, num_workers=2) as loader:
        for batch in loader:
            assert batch["depth"].shape == batch["image"].shape
            assert torch.equal(batch["depth"], batch["image"])


def test_a_dataset_gives_whole_masks(written: Path, keys: list[int]) -> None:
    dataset = fastpipe.open(written).with_fields(("id", "image", "mask", "wide", "depth"))
    for number in range(COUNT):
        sample = dataset[number]
        assert np.array_equal(np.asarray(sample["mask"]), mask_of(keys[number]))
        assert np.array_equal(np.asarray(sample["wide"]), mask_of(keys[number], np.uint16))
        assert torch.equal(torch.as_tensor(sample["depth"]), torch.as_tensor(sample["image"]))


def spoil_mask(data: Path, sample: int) -> None:
    """Overwrites the end of a mask with zeros."""
    index = PackedIndex(data)
    record = np.load(data / "fields" / "mask.npy").view(FIELD_IMAGE_DTYPE)[sample]
    with open(index.shards[int(index.records["shard"][sample])].path, "r+b") as file:
        file.seek(int(record["offset"]) + int(record["size"]) - 30)
        file.write(bytes(30))


def test_a_damaged_mask_is_the_samples_error(written: Path, copied: Callable[[Path], Path]) -> None:
    data = copied(written)
    spoil_mask(data, 11)
    with (
        fastpipe.loader(data, 6, size=SIZE, fields=("image", "mask")) as loader,
        pytest.raises(fastpipe.SampleError, match=r"sample 11 .*the PNG is"),
    ):
        list(loader)
    with fastpipe.loader(data, 6, size=SIZE, fields=("image", "depth")) as loader:
        assert len(list(loader)) == 5  # nobody asked for masks
    with pytest.raises(fastpipe.SampleError, match="the PNG is"):
        fastpipe.open(data).with_fields(("mask",))[11]


def test_a_sample_with_a_damaged_mask_is_replaced_in_whole(
    written: Path, keys: list[int], copied: Callable[[Path], Path]
) -> None:
    data = copied(written)
    spoil_mask(data, 11)
    options: dict[str, Any] = {
        "size": SHAPE,
        "crop": fastpipe.Resize(),
        "hflip": False,
        "on_error": "replace",
    }
    with fastpipe.loader(data, COUNT, fields=("id", "image", "mask", "wide"), **options) as loader:
        (batch,) = loader
    assert 11 not in batch["id"].tolist()
    for row, sample in enumerate(batch["id"].tolist()):
        assert np.array_equal(batch["mask"][row].numpy(), mask_of(keys[sample]))
        assert np.array_equal(batch["wide"][row].numpy(), mask_of(keys[sample], np.uint16))
