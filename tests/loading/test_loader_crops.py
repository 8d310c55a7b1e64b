"""Tests of padded crops and of several crops of an image in a loader's batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kornia.augmentation as k
import numpy as np
import pytest
import torch
from PIL import Image
from support.datasets.packed import damage
from support.pictures.drawn import smooth_noise

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, SampleError

SIDE = 40


def whole(dataset: fastpipe.Dataset, sample: int) -> Image.Image:
    return Image.fromarray(dataset[sample][0].permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    "crop",
    [fastpipe.Letterbox(fill=114), fastpipe.Letterbox(centered=False, interpolation="bicubic")],
)
def test_a_letterbox_shows_all_of_the_image(textured: Path, crop: fastpipe.Letterbox) -> None:
    dataset = fastpipe.open(textured)
    with fastpipe.loader(
        textured, 5, size=(SIDE, 56), crop=crop, train=False, num_workers=2
    ) as loader:
        images = torch.cat([images for images, _ in loader]).permute(0, 2, 3, 1).numpy()
    for sample, image in enumerate(images):
        picture = whole(dataset, sample)
        scale = min(56 / picture.width, SIDE / picture.height)
        fitted = int(picture.width * scale + 1e-9), int(picture.height * scale + 1e-9)
        left, top = ((56 - fitted[0]) // 2, (SIDE - fitted[1]) // 2) if crop.centered else (0, 0)
        expected = Image.new("RGB", (56, SIDE), crop.fill[:3])
        expected.paste(
            picture.resize(fitted, Image.Resampling[crop.interpolation.upper()]), (left, top)
        )
        assert np.array_equal(image, np.asarray(expected))


@pytest.mark.parametrize(("kind", "rows"), [("FiveCrop", 5), ("TenCrop", 10)])
def test_several_crops_of_each_image(
    textured: Path, torchvision: Any, kind: str, rows: int
) -> None:
    dataset, crop = fastpipe.open(textured), getattr(fastpipe, kind)
    transforms = torchvision.transforms
    expected = transforms.Compose([transforms.Resize(50), getattr(transforms, kind)(SIDE)])
    with fastpipe.loader(
        textured, 4, size=SIDE, crop=crop(resize=50), train=False, num_workers=2
    ) as loader:
        batches = list(loader)
        assert loader.batch_size == 4
        stats = loader.stats()
    assert [tuple(images.shape) for images, _ in batches[:-1]] == [(4, rows, 3, SIDE, SIDE)] * (
        len(batches) - 1
    )
    images, labels = (torch.cat(each) for each in zip(*batches, strict=True))
    assert len(images) == len(labels) == len(dataset) == stats.samples
    assert labels.tolist() == [dataset[sample][1] for sample in range(len(dataset))]
    for sample, crops in enumerate(images):
        for ours, theirs in zip(crops, expected(whole(dataset, sample)), strict=True):
            assert np.array_equal(ours.permute(1, 2, 0).numpy(), np.asarray(theirs))


def test_random_crops_of_each_image_lie_anywhere(textured: Path) -> None:
    """Each is the part of the whole picture that "crop_box" names, mirrored by a draw of its own."""
    dataset = fastpipe.open(textured)
    crop = fastpipe.RandomCrop(count=6, pad_if_needed=True)
    fields = ("image", "label", "id", "crop_box", "mirrored")
    with fastpipe.loader(textured, 4, size=SIDE, crop=crop, fields=fields, num_workers=2) as loader:
        epochs = [list(loader), list(loader)]
        stats = loader.stats()
    places = set()
    mirrored = []
    for batch in epochs[0]:
        assert batch["image"].shape == (4, 6, 3, SIDE, SIDE)
        assert batch["label"].shape == (4,)
        for row, number in enumerate(batch["id"].tolist()):
            image = dataset[number][0]
            for patch in range(6):
                x, y, right, bottom = map(int, batch["crop_box"][row, patch].tolist())
                expected = image[:, max(y, 0) : bottom, max(x, 0) : right]
                image_row = batch["image"][row, patch]
                if batch["mirrored"][row, patch]:
                    image_row = image_row.flip(2)
                inside = image_row[:, max(-y, 0) :, max(-x, 0) :]
                inside = inside[:, : expected.shape[1], : expected.shape[2]]
                assert torch.equal(inside, expected)
                places.add((number, x, y))
        mirrored += batch["mirrored"].flatten().tolist()
    assert len(places) > 80
    assert 0.3 < sum(mirrored) / len(mirrored) < 0.7
    for batch, other in zip(*epochs, strict=True):
        assert not torch.equal(batch["crop_box"], other["crop_box"])
    assert stats.images_decoded == 6 * stats.images_read, "each image is read once for all parts"


def test_one_random_crop_is_that_without_a_count(textured: Path) -> None:
    options: dict[str, Any] = {"size": 16, "num_workers": 1}
    with (
        fastpipe.loader(textured, 4, crop=fastpipe.RandomCrop(), **options) as plain,
        fastpipe.loader(textured, 4, crop=fastpipe.RandomCrop(count=1), **options) as counted,
    ):
        for batch, other in zip(plain, counted, strict=True):
            assert torch.equal(batch.images, other.images)


def test_random_crops_are_augmented_by_draws_of_their_own(textured: Path) -> None:
    brightness = k.RandomBrightness((0.5, 1.5), p=1.0)
    augment = fastpipe.Augment(brightness, mean=None, std=None)
    crop = fastpipe.RandomCrop(count=5, pad_if_needed=True)
    options: dict[str, Any] = {"size": 24, "crop": crop, "num_workers": 1}
    with (
        fastpipe.loader(textured, 4, **options) as plain,
        fastpipe.loader(textured, 4, augment=augment, **options) as loader,
    ):
        before = next(iter(plain)).images.float().mean(dim=(2, 3, 4))
        after = next(iter(loader)).images.mean(dim=(2, 3, 4))
    factors = 255 * after / before
    assert factors.shape == (4, 5)
    assert all(len(set(row)) == 5 for row in factors.round(decimals=3).tolist())


def test_several_crops_are_normalised(textured: Path) -> None:
    options: dict[str, Any] = {
        "size": 16,
        "crop": fastpipe.TenCrop(),
        "train": False,
        "num_workers": 1,
    }
    augment = fastpipe.Augment(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    with (
        fastpipe.loader(textured, 3, **options) as plain,
        fastpipe.loader(textured, 3, augment=augment, **options) as loader,
    ):
        expected = (next(iter(plain)).images / 255 - 0.5) / 0.25
        normalised = next(iter(loader)).images
    assert normalised.shape == (3, 10, 3, 16, 16)
    assert torch.allclose(normalised, expected, atol=1e-5)


def test_a_bad_sample_of_several_crops_is_replaced_as_one(
    textured: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(textured)
    damage(dataset, 2)
    options: dict[str, Any] = {
        "size": 16,
        "crop": fastpipe.FiveCrop(),
        "train": False,
        "num_workers": 2,
    }
    with (
        fastpipe.loader(dataset, 4, **options) as loader,
        pytest.raises(SampleError, match="sample 2"),
    ):
        next(iter(loader))
    with fastpipe.loader(dataset, 4, on_error="replace", **options) as loader:
        batch = next(iter(loader))
        assert loader.stats().replaced == 1
    with fastpipe.loader(textured, 23, **options) as loader:
        good = next(iter(loader))
    other = int(batch.ids[2])
    assert other != 2
    assert torch.equal(batch.images, good.images[[0, 1, other, 3]])
    assert torch.equal(batch.labels, good.labels[[0, 1, other, 3]])


def test_a_damaged_mask_of_several_crops_names_its_sample(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with fastpipe.Writer(folder, {"mask": "mask"}) as writer:
        for number in range(6):
            mask = np.full((40, 50), number, dtype=np.uint8)
            writer.add(smooth_noise(50, 40, seed=number), mask=mask)
    index = PackedIndex(folder)
    record = np.load(folder / "fields" / "mask.npy")[3]
    with open(index.shards[int(index.records["shard"][3])].path, "r+b") as file:
        file.seek(int(record["offset"]))
        file.write(bytes(8))
    options: dict[str, Any] = {
        "size": 16,
        "crop": fastpipe.FiveCrop(),
        "train": False,
        "fields": ("image", "mask", "id"),
        "num_workers": 1,
    }
    with (
        fastpipe.loader(folder, 6, **options) as loader,
        pytest.raises(SampleError, match="sample 3"),
    ):
        next(iter(loader))
    with fastpipe.loader(folder, 6, on_error="replace", **options) as loader:
        ids = next(iter(loader))["id"].tolist()
    assert ids[:3] + ids[4:] == [0, 1, 2, 4, 5]
    assert ids[3] != 3


def test_what_does_not_go_with_several_crops(textured: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^hflip= does not go with crop= .*\(FiveCrop\): .* Pass hflip=False"
    ):
        fastpipe.loader(textured, 4, size=16, crop=fastpipe.FiveCrop())
    with pytest.raises(
        ConfigError, match=r"^hflip= does not go with .*Pass hflip=False, or train=False"
    ):
        fastpipe.loader(textured, 4, size=16, crop=fastpipe.FiveCrop(), train=False, hflip=True)
    augment = fastpipe.Augment(mixup=0.2, cutmix=0.0, num_classes=3)
    with pytest.raises(ConfigError, match=r"mixes images .* does not go with crop= .*\(TenCrop\)"):
        fastpipe.loader(textured, 4, size=16, crop=fastpipe.TenCrop(), train=False, augment=augment)
    ten = fastpipe.loader(textured, 4, size=16, crop=fastpipe.TenCrop(), train=False, num_workers=1)
    with (
        ten,
        pytest.raises(
            ConfigError, match="cannot draw crop=TenCrop: it shows one crop of each image, not 10"
        ),
    ):
        fastpipe.preview(ten, "nowhere.png")
    with pytest.raises(
        ConfigError, match=r"fastpipe\.wds gives one crop of each image, and FiveCrop has 5"
    ):
        fastpipe.wds.crop(16, crop=fastpipe.FiveCrop(), train=False)
    with pytest.raises(
        ConfigError, match=r"FiveCrop\(resize=20\) makes the image smaller than size="
    ):
        fastpipe.loader(textured, 4, size=32, crop=fastpipe.FiveCrop(resize=20), train=False)


SMALL = (
    r"crop: 2 of 37 images, resized and padded, are smaller than the output, 25 x 25\. "
    r"The first is sample \d+ \((?:ant|bee|cow)/\d+\.jpg, in .*shard-000000\.tar\): "
    r"(24 x 60|60 x 24) pixels\. Pass RandomCrop\(pad_if_needed=True\), a smaller size="
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"on_error": "replace"},
        {
            "size": 224,
            "views": [fastpipe.View(24), fastpipe.View(25, crop=fastpipe.RandomCrop())],
            "crop": None,
        },
        {"size": None, "size_choices": [20, 25]},
    ],
    ids=lambda options: ", ".join(options),
)
def test_images_smaller_than_a_random_crop_are_named_at_the_start(
    flat: Path, options: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"size": 25, "crop": fastpipe.RandomCrop(), "num_workers": 1, **options}
    with pytest.raises(ConfigError, match=SMALL):
        fastpipe.loader(flat, 4, **given)


def test_images_smaller_than_a_random_crop_can_be_left_out_or_padded(flat: Path) -> None:
    data = fastpipe.open(flat)
    fits = np.minimum(data["width"], data["height"]) >= 25
    given: dict[str, Any] = {"size": 25, "num_workers": 1, "drop_last": False}
    with fastpipe.loader(data.select(fits), 5, crop=fastpipe.RandomCrop(), **given) as loader:
        assert sum(len(labels) for _, labels in loader) == 35
        with pytest.raises(ConfigError, match="are smaller than the output, 26 x 26"):
            loader.set_size(26)
    with fastpipe.loader(flat, 5, crop=fastpipe.RandomCrop(pad_if_needed=True), **given) as loader:
        assert sum(len(labels) for _, labels in loader) == 37


def test_where_not_all_samples_are_looked_at_the_batch_names_the_image(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many millions, of those drawn by weights, and where a function gives the sizes."""
    named = r"4 of 37 images.*26 x 26.*sample \d+ \(\w+/\d+\.jpg, in .*shard-000000\.tar\): \d+ x \d+ pixels\. Pass"
    given: dict[str, Any] = {
        "crop": fastpipe.RandomCrop(),
        "num_workers": 1,
        "train": False,
        "on_error": "replace",
    }
    with fastpipe.loader(flat, 37, size=lambda epoch: 24 + 2 * epoch, **given) as loader:
        list(loader)
        with pytest.raises(ConfigError, match=named):
            list(loader)
    monkeypatch.setattr("fastpipe.plan.epoch._MAX_SAMPLES_CHECKED", 36)
    with (
        fastpipe.loader(flat, 37, size=26, **given) as loader,
        pytest.raises(ConfigError, match=named),
    ):
        next(iter(loader))


def test_an_unpacked_image_of_too_many_pixels_is_named_at_the_start(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        Image.new("RGB", (20 * number, 20)).save(tmp_path / f"{number}.jpg")
    with pytest.raises(
        fastpipe.DatasetError,
        match=r"1 of 3 samples have too many pixels: .*3\.jpg.* 60 x 20 pixels",
    ):
        fastpipe.loader(fastpipe.open(tmp_path, max_pixels=1000), 1)
    small = fastpipe.open(tmp_path, max_pixels=1000).select(
        lambda c: c["width"] * c["height"] <= 1000
    )  # as it says
    with fastpipe.loader(small, 2, size=8, num_workers=1) as loader:
        assert len(list(loader)) == 1
