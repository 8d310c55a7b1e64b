"""Tests of data.cropped(...): the loader's crops of single samples, for samplers of the user's own."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.datasets.field_scenes import write_scenes
from support.datasets.packed import damage

import fastpipe
from fastpipe.dataset import tensors
from fastpipe.errors import ConfigError, SampleError

SIZE = (36, 44)
CROPS = {
    "random": fastpipe.RandomResizedCrop(interpolation="bicubic"),
    "padded": fastpipe.RandomCrop(padding=20, pad_if_needed=True, fill=7, mask_fill=255),
    "centre": fastpipe.CenterCrop(resize=50),
    "letterbox": fastpipe.Letterbox(padding_mode="edge"),
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("scenes") / "data", 12)


@pytest.mark.parametrize("kind", CROPS)
def test_after_set_epoch_the_crops_are_the_loaders(large: Path, kind: str) -> None:
    options: dict[str, Any] = {"size": SIZE, "crop": CROPS[kind], "hflip": True, "seed": 4}
    dataset = fastpipe.open(large).cropped(**options)
    with fastpipe.loader(large, 6, shuffle=False, num_workers=2, **options) as loader:
        for epoch in range(2):
            dataset.set_epoch(epoch)
            images, labels = next(iter(loader))
            for sample in range(6):
                image, label = dataset[sample]
                assert torch.equal(image, images[sample])
                assert label == labels[sample]
                assert (
                    image.is_contiguous(memory_format=torch.channels_last) or image.stride(0) == 1
                )


@pytest.mark.parametrize("kind", CROPS)
def test_fields_are_cropped_with_the_image(
    torchvision: ModuleType, scenes: Path, kind: str
) -> None:
    tensors._tv_tensors.cache_clear()  # it remembers whether torchvision was there
    names = ("image", "mask", "boxes", "caption", "id")
    options: dict[str, Any] = {"size": SIZE, "crop": CROPS[kind], "hflip": 0.5}
    dataset = fastpipe.open(scenes).with_fields(names).cropped(**options)
    dataset.set_epoch(0)
    with fastpipe.loader(
        scenes, 12, shuffle=False, num_workers=2, fields=names, **options
    ) as loader:
        batch = next(iter(loader))
    for sample in range(12):
        one = dataset[sample]
        for name in ("image", "mask", "boxes", "boxes_labels"):
            assert torch.equal(torch.as_tensor(one[name]), batch[name][sample]), name
        assert one["caption"] == batch["caption"][sample]
        assert tuple(one["boxes"].canvas_size) == SIZE


def test_torch_decides_until_an_epoch_is_set(large: Path) -> None:
    dataset = fastpipe.open(large).cropped(fastpipe.RandomResizedCrop(), size=20)
    torch.manual_seed(3)
    first = [dataset[1][0], dataset[1][0]]
    torch.manual_seed(3)
    again = [dataset[1][0], dataset[1][0]]
    assert not torch.equal(*first)
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    whole = fastpipe.open(large).cropped(fastpipe.Resize(), size=20)
    torch.manual_seed(3)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    whole[0]
    assert torch.equal(torch.rand(1), drawn)  # nothing random takes nothing from the generator


def test_several_crops_and_transforms(large: Path) -> None:
    crop = fastpipe.FiveCrop()
    dataset = fastpipe.open(large).cropped(crop, size=16)
    with fastpipe.loader(large, 6, size=16, crop=crop, train=False, num_workers=1) as loader:
        images = next(iter(loader))[0]
    assert torch.equal(dataset[2][0], images[2])
    assert dataset[2][0].shape == (5, 3, 16, 16)
    doubled = (
        fastpipe.open(large).cropped(crop, size=16).with_transform(lambda image: image.float() * 2)
    )
    assert torch.equal(doubled[2][0], images[2] * 2.0)
    one = (
        fastpipe.open(large)
        .cropped(fastpipe.Resize())
        .with_transform(lambda image: image.float() * 2)
    )
    assert one[2][0].shape == (3, 224, 224)
    with_fields = fastpipe.open(large).with_fields(("image", "label")).cropped(crop, size=16)
    assert torch.equal(torch.as_tensor(with_fields[2]["image"]), images[2])


def test_errors(large: Path, scenes: Path, fielded: Path, copied: Any) -> None:
    wrong = {"size": 0, "hflip": torch.tensor([1, 0]), "exact": 0, "seed": False, "crop": "centre"}
    for option, value in wrong.items():
        with pytest.raises(
            ConfigError, match=f"{option}: expected|{option}=.*expected|expected .*got"
        ):
            fastpipe.open(large).cropped(**{"crop": fastpipe.Resize(), option: value})
    with pytest.raises(ConfigError, match="TenCrop is for evaluation"):
        fastpipe.open(large).cropped(fastpipe.TenCrop(), hflip=True)
    with pytest.raises(ConfigError, match="'joints' has points, and hflip mirrors images"):
        fastpipe.open(fielded).with_fields(("image", "joints")).cropped(
            fastpipe.Resize(), hflip=True
        )
    broken = copied(large)
    damage(broken, 1)
    dataset = fastpipe.open(broken).cropped(fastpipe.Resize(), size=16)
    assert dataset[0][0].shape == (3, 16, 16)
    with pytest.raises(SampleError, match="sample 1"):
        dataset[1]
    assert "crop=Resize(" in repr(dataset)


def test_an_image_smaller_than_a_random_crop_is_named(flat: Path) -> None:
    dataset = fastpipe.open(flat).cropped(fastpipe.RandomCrop(), size=200)
    with pytest.raises(
        ConfigError,
        match=r"smaller than the output, 200 x 200\. The first is sample 7: \d+ x \d+ pix",
    ):
        dataset[7]


def test_masks_are_no_column(scenes: Path) -> None:
    data = fastpipe.open(scenes)
    assert "mask" not in data.columns
    with pytest.raises(
        ConfigError,
        match=r"'mask' is not a column: .* mask .*with_fields\(\['mask'\]\)",
    ):
        data["mask"]
    assert data.with_fields(["mask"])[0]["mask"].ndim == 2


def test_a_dataset_says_how_its_samples_come(scenes: Path) -> None:
    cropped = (
        fastpipe.open(scenes).with_fields(["image", "caption"]).cropped(fastpipe.FiveCrop(), 8)
    )
    assert repr(cropped.with_transform(len)).endswith(
        ", transform=<built-in function len>, fields=['image', 'caption'], crop=FiveCrop(interpolation='bilinear', "
        "antialias=True, mask_fill=0, resize=None), size=(8, 8)>"
    )


@pytest.mark.usefixtures("warned_anew")
@pytest.mark.parametrize("is_set_each_time", [False, True])
def test_epochs_after_one_set_epoch(
    flat: Path, log: pytest.LogCaptureFixture, is_set_each_time: bool
) -> None:
    data = fastpipe.open(flat).cropped(fastpipe.RandomResizedCrop(), 8)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for _ in range(3):
        list(loader)
    data.set_epoch(0)
    for epoch in range(3):
        if is_set_each_time:
            data.set_epoch(epoch)
        list(loader)
    count = log.text.count("Call set_epoch(epoch) of the cropped dataset before each epoch")
    assert count == (0 if is_set_each_time else 1)
