"""fastpipe.timm in place of timm.data: the batches are those of fastpipe.loader; what is timm's, is as there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.device.streams import Stream
from fastpipe.timm import TimmLoader, create_dataset, create_loader
from fastpipe.timm.operations import rand_augment

pytestmark = [pytest.mark.usefixtures("one_thread")]

# As timm's train.py calls it, with its defaults.
COMMON = {
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "pin_memory": False,
    "img_dtype": torch.float32,
    "device": torch.device("cpu"),
    "distributed": False,
    "use_prefetcher": True,
}
TRAIN = {
    **COMMON,
    "batch_size": 6,
    "is_training": True,
    "no_aug": False,
    "re_prob": 0.0,
    "re_mode": "pixel",
    "re_count": 1,
    "re_split": False,
    "train_crop_mode": None,
    "scale": [0.08, 1.0],
    "ratio": [3 / 4, 4 / 3],
    "hflip": 0.5,
    "vflip": 0.0,
    "color_jitter": None,
    "color_jitter_prob": None,
    "grayscale_prob": 0.0,
    "gaussian_blur_prob": 0.0,
    "auto_augment": None,
    "num_aug_repeats": 0,
    "num_aug_splits": 0,
    "interpolation": "random",
    "num_workers": 4,
    "worker_seeding": "all",
    "input_size": (3, 32, 32),
    "input_size_choices": None,
    "batch_size_choices": None,
    "batch_choice_weights": None,
    "batch_choice_seed": 42,
    "batch_choice_schedule": "constant",
    "batch_schedule_epochs": None,
    "batch_schedule_spread": 0.65,
    "batch_schedule_random_mix": 0.1,
    "num_batches": None,
    "collate_fn": None,
    "use_multi_epochs_loader": False,
}


@pytest.fixture(scope="module")
def timm_data(torchvision: ModuleType) -> Any:
    return pytest.importorskip("timm.data")


@pytest.fixture
def data(flat: Path) -> fastpipe.Dataset:
    return create_dataset(
        "", root=flat, split="train", is_training=True, batch_size=6, seed=42, repeats=0
    )


def train(data: Any, **changed: Any) -> TimmLoader:
    return create_loader(data, **{**TRAIN, **changed})


def test_batches_are_those_of_the_loader(data: fastpipe.Dataset) -> None:
    ours = train(data)
    crop = fastpipe.RandomResizedCrop(interpolation="bicubic")
    direct = fastpipe.loader(
        data, 6, size=32, crop=crop, augment=fastpipe.Augment.imagenet(), seed=42
    )
    assert len(ours) == len(direct) == FLAT_IMAGES // 6
    for epoch in (3, 4):
        ours.dataset.set_epoch(epoch)  # as train.py does, of both
        ours.batch_sampler.set_epoch(epoch)
        direct.set_epoch(epoch)
        for (images, labels), (expected, classes) in zip(ours, direct, strict=True):
            assert torch.equal(images, expected)
            assert torch.equal(labels, classes)


def test_evaluation_is_timms(timm_data: Any, textured: Path) -> None:
    """Pillow's bicubic, rounded to bytes: within one of ours, and every sample once."""
    data = create_dataset(root=textured.parent, split=textured.name)
    options = {**COMMON, "batch_size": 4, "interpolation": "bicubic", "crop_pct": 0.9}
    batches = list(create_loader(data, input_size=(3, 40, 40), **options))
    assert sum(len(labels) for _, labels in batches) == len(data)
    transform = timm_data.create_transform((3, 40, 40), interpolation="bicubic", crop_pct=0.9)
    pictures = [
        Image.fromarray(data[number][0].permute(1, 2, 0).numpy()) for number in range(len(data))
    ]
    expected = torch.stack([transform(picture) for picture in pictures])
    assert (torch.cat([images for images, _ in batches]) - expected).abs().max() < 1.5 / 255 / 0.22


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 40, 40), (3, 40, 32)])
def test_a_border_is_timms(timm_data: Any, tmp_path: Path, interpolation: str, size: Any) -> None:
    """Of photos of many shapes: timm rounds the size of the resized photo, torchvision cuts it off."""
    random = np.random.default_rng(0)
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number in range(60):
        height, width = random.integers(20, 120, 2)
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / "a" / f"{number:02}.png")
    data = fastpipe.open(tmp_path / "photos")
    options = {
        **COMMON,
        "batch_size": 20,
        "crop_mode": "border",
        "crop_pct": 1.0,
        "interpolation": interpolation,
    }
    images = torch.cat([images for images, _ in create_loader(data, input_size=size, **options)])
    transform = timm_data.create_transform(
        size, crop_mode="border", crop_pct=1.0, interpolation=interpolation
    )
    expected = [transform(Image.fromarray(picture.permute(1, 2, 0).numpy())) for picture, _ in data]
    assert (images - torch.stack(expected)).abs().max() < 1.5 / 255 / 0.22


@pytest.mark.parametrize("size", [40, (40, 32)])
def test_training_without_augmentation_is_timms(timm_data: Any, textured: Path, size: Any) -> None:
    data = create_dataset(root=textured)
    batches = list(train(data, input_size=size, no_aug=True, interpolation="bilinear", re_prob=1.0))
    transform = timm_data.create_transform(
        size, is_training=True, no_aug=True, interpolation="bilinear"
    )
    expected = [transform(Image.fromarray(picture.permute(1, 2, 0).numpy())) for picture, _ in data]
    ids = [
        number
        for batch in train(data, input_size=size, no_aug=True).loader
        for number in batch.ids.tolist()
    ]
    images = torch.cat([images for images, _ in batches])
    assert (
        images - torch.stack([expected[number] for number in ids])
    ).abs().max() < 1.5 / 255 / 0.22


def test_erasing_comes_after_mixing_and_rows_are_mixed_from_the_end(
    timm_data: Any, data: fastpipe.Dataset
) -> None:
    mixup = timm_data.FastCollateMixup(
        mixup_alpha=1.0, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=3
    )
    loader = train(data, collate_fn=mixup, re_prob=1.0, re_mode="CONST")
    for batch in loader.loader:
        images, labels = batch
        assert (images == 0).all(1).flatten(1).any(1).all(), "each row has its box"
        own = torch.nn.functional.one_hot(torch.from_numpy(data.targets[batch.ids.numpy()]), 3)
        assert ((labels > 0) <= (own + own.flip(0) > 0)).all()


def test_mixing_ends_with_the_epoch_also_of_batches_made_ahead(
    timm_data: Any, data: fastpipe.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stream, "lookahead", 1)  # as on a GPU
    mixup = timm_data.FastCollateMixup(mixup_alpha=1.0, label_smoothing=0.0, num_classes=3)
    mixup.mixup_enabled = False
    loader = train(data, collate_fn=mixup)
    for enabled in (False, True, True, False):
        loader.mixup_enabled = enabled
        hard = [bool((labels.max(1).values == 1).all()) for _, labels in loader]
        assert hard == [not enabled] * len(loader)
        if enabled is False:
            assert not loader.mixup_enabled


@pytest.mark.parametrize("mode", ["batch", "elem"])
def test_mixup_has_timms_parameters(timm_data: Any, data: fastpipe.Dataset, mode: str) -> None:
    mixup = timm_data.FastCollateMixup(
        mixup_alpha=0.8,
        cutmix_alpha=1.0,
        prob=0.7,
        switch_prob=0.5,
        mode=mode,
        label_smoothing=0.1,
        num_classes=3,
    )
    loader = train(data, collate_fn=mixup)
    assert loader.mixup_enabled
    mixed, shares = 0, []
    for _ in range(6):
        for _, labels in loader:
            assert labels.sum(1) == pytest.approx(1)
            most = labels.max(1).values
            mixed += int((most < 0.93).any())
            shares.append(len({round(float(each), 4) for each in most[most < 0.93]}))
    assert mixed > 0
    assert mode == "elem" or mixed < len(shares) - 3, "a share of all batches is left out"
    assert (max(shares) > 2) == (mode == "elem"), "a share of its own, or one and its rest"
    loader.mixup_enabled = False
    assert not loader.mixup_enabled
    for _, labels in loader:
        assert labels.max(1).values == pytest.approx(1 - 0.1 + 0.1 / 3)
    loader.mixup_enabled = True
    assert loader.mixup_enabled


def test_sides_of_cutmix(timm_data: Any, data: fastpipe.Dataset) -> None:
    mixup = timm_data.FastCollateMixup(
        mixup_alpha=0.0, cutmix_minmax=(0.25, 0.5), label_smoothing=0.0, num_classes=3
    )
    seen = set()
    for _, labels in train(data, collate_fn=mixup):
        seen |= {round(float(1 - share) * 32 * 32) for share in labels.max(1).values if share < 1}
    assert seen
    assert all(8 * 8 <= pixels <= 16 * 16 for pixels in seen)


@pytest.mark.parametrize(
    "changed",
    [
        {"auto_augment": "rand-m9-mstd0.5-inc1"},
        {"color_jitter": 0.4},
        {"grayscale_prob": 0.5},
        {"gaussian_blur_prob": 0.5},
        {"vflip": 0.5},
        {"re_prob": 1.0, "re_mode": "const", "re_count": 3},
        {"re_prob": 1.0, "re_mode": "rand"},
        {"re_prob": 1.0, "re_mode": "pixel"},
        {"hflip": 0.0},
        {"scale": (0.5, 0.6)},
    ],
    ids=str,
)
def test_each_choice_changes_images_and_is_repeated(
    textured: Path, changed: dict[str, Any]
) -> None:
    data = create_dataset("", textured)
    plain, first, second = (list(train(data, **options)) for options in ({}, changed, changed))
    assert all(torch.equal(left[0], right[0]) for left, right in zip(first, second, strict=True))
    assert not all(torch.equal(left[0], right[0]) for left, right in zip(plain, first, strict=True))


def test_pixel_noise_is_normal_and_spares_the_first_split(data: fastpipe.Dataset) -> None:
    plain, erased = (
        torch.cat([images for images, _ in train(data, **more)]) for more in ({}, {"re_prob": 1.0})
    )
    noise = erased[erased != plain]
    assert len(noise) > 1000
    assert abs(float(noise.mean())) < 0.1
    assert abs(float(noise.std()) - 1) < 0.1
    half, whole = next(iter(train(data, re_prob=1.0, re_split=True)))[0], next(iter(train(data)))[0]
    assert [bool((half[row] != whole[row]).any()) for row in range(6)] == [False] * 3 + [True] * 3


def test_splits(timm_data: Any, data: fastpipe.Dataset) -> None:
    loader = train(
        timm_data.AugMixDataset(data, num_splits=3), num_aug_splits=3, auto_augment="rand-m9-n3"
    )
    clean = list(train(data))
    for (images, labels), (plain, classes) in zip(loader, clean, strict=True):
        first, second, third = images.split(6)
        assert torch.equal(first, plain)
        assert not torch.equal(second, third)
        assert torch.equal(labels, classes.repeat(3))


def test_splits_share_flips_and_re_split_spares_the_first(textured: Path) -> None:
    data = create_dataset("", textured)
    options = {"num_aug_splits": 3, "vflip": 0.5, "color_jitter": 1e-6}
    plain = list(train(data, vflip=0.0))
    turned = 0
    for (images, _), (upright, _) in zip(train(data, **options), plain, strict=True):
        first, second, third = images.split(6)
        assert (first - second).abs().max() < 1e-3
        assert (first - third).abs().max() < 1e-3
        turned += int((first != upright).flatten(1).any(1).sum())
    assert 0 < turned < 6 * len(plain)
    for spares in (True, False):
        for images, _ in train(data, **options, re_prob=1.0, re_mode="const", re_split=spares):
            erased = (images == 0).all(1).flatten(1).any(1)
            assert erased.tolist() == [not spares] * 6 + [True] * 12


def test_a_state_of_splits_goes_on(textured: Path) -> None:
    data = create_dataset("", textured)
    options = {"num_aug_splits": 2, "vflip": 0.5, "color_jitter": 0.4}
    loader, again = train(data, **options), train(data, **options)
    for _ in range(2):
        batches = iter(loader)
        next(batches)
        again.load_state_dict(loader.state_dict())
        rest = list(batches)
        assert len(rest) == len(loader) - 1 > 0
        assert all(torch.equal(left[0], right[0]) for left, right in zip(rest, again, strict=True))


def test_policies_have_timms_numbers() -> None:
    policy = rand_augment("rand-m15-n3-p0.7-mstd0.5-mmax9-inc1")
    assert (policy.layers, policy.probability) == (3, 0.7)
    assert [policy.magnitude, policy.spread, policy.most] == pytest.approx([45.0, 1.5, 27.0])
    assert rand_augment("rand-m5-mstd101").spread == float("inf")


def test_repeats_and_batches(data: fastpipe.Dataset) -> None:
    numbers = [batch.ids.tolist() for batch in train(data, num_aug_repeats=3).loader]
    assert len(numbers) == FLAT_IMAGES // 6
    assert len({number for batch in numbers for number in batch}) < FLAT_IMAGES / 2
    assert len(train(data, num_batches=4)) == 4
    sizes = {tuple(images.shape[2:]) for images, _ in train(data, input_size_choices=[24, 32])}
    assert sizes == {(24, 24), (32, 32)}
    assert next(iter(train(data, input_size=(1, 16, 24), mean=(0.5,), std=(0.5,))))[0].shape == (
        6,
        1,
        16,
        24,
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"train_crop_mode": "rkrc"}, "train_crop_mode='rkrc'"),
        ({"batch_size_choices": [4, 6]}, r"batch_size_choices=\[4, 6\]"),
        (
            {"input_size_choices": [32, 48], "batch_choice_schedule": "progressive"},
            "batch_choice_schedule='progressive'",
        ),
        ({"auto_augment": "original-mstd0.5"}, 'expected "rand-'),
        ({"auto_augment": "rand-w0"}, 'expected "rand-'),
        ({"tf_preprocessing": True}, "tf_preprocessing=True"),
        ({"is_training": False, "crop_mode": "border"}, "with crop_pct=1; got .* crop_pct=0.875"),
        ({"collate_fn": torch.stack}, "FastCollateMixup"),
        ({"auto_augment": "rand-m9-mmax30"}, "X of at most 10"),
        ({"auto_augment": "rand-m9-p1.5"}, "P of at most 1"),
        ({"is_training": False, "input_size": (3, 72, 64)}, "square input_size"),
        ({"re_mode": "random"}, "re_mode='random'"),
        ({"num_aug_repeats": 1.5}, "num_aug_repeats=1.5"),
        ({"shufle": False}, "shufle=False"),
        ({"input_size": (4, 32, 32)}, "1 or 3, height, width"),
        ({"num_aug_splits": 3, "input_size_choices": [24, 32]}, "num_aug_splits=3"),
    ],
)
def test_what_cannot_be_had_is_said(
    data: fastpipe.Dataset, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(fastpipe.ConfigError, match=said):
        train(data, **changed)


def test_datasets(flat: Path, tmp_path: Path) -> None:
    (tmp_path / "val").symlink_to(flat)
    assert len(create_dataset("", tmp_path, "validation")) == FLAT_IMAGES
    assert len(create_dataset("fastpipe", flat)) == FLAT_IMAGES
    with pytest.raises(fastpipe.ConfigError, match="got 'hfds/imagenet"):
        create_dataset("hfds/imagenet", flat)
    with pytest.raises(fastpipe.ConfigError, match="repeats"):
        create_dataset("", flat, repeats=3)
    with pytest.raises(fastpipe.ConfigError, match=r"without \[\.\.\.\]"):
        create_dataset("", flat, "train[:10]")
    with pytest.raises(fastpipe.DatasetError):
        create_dataset("", tmp_path, "validation", search_split=False)
