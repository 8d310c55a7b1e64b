"""Gray images, images with alpha, and 16 bits: each gets what RGB of 8 bits gets, with the same draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import differing, photos, tensors_of
from support.batches.kornia_cases import k
from support.devices.launches import launches_of
from support.devices.simulated_gpu import simulated
from test_augment_modules import Returns
from torch import Tensor

from fastpipe import Augment, ConfigError
from fastpipe.device.augment import pixels
from fastpipe.device.augment.pixels import IMAGENET_MEAN, IMAGENET_STD

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT, SIZE = 24, (30, 40)
LABELS = torch.arange(COUNT)
KEYS: dict[str, Any] = {"seed": 3, "epoch": 1, "batch": 2}
UNIT: dict[str, Any] = {"mean": None, "std": None}
MIXED: dict[str, Any] = {"erasing": 0.4, "mixup": 0.3, "cutmix": 1.0, "num_classes": COUNT}
COLOUR: dict[str, Callable[..., Augment]] = {"imagenet": Augment.imagenet, "simclr": Augment.simclr}
POLICIES: dict[str, Callable[..., Augment]] = {
    "randaugment": lambda **options: Augment.randaugment(3, 15, **options),
    "trivial_augment": Augment.trivial_augment,
}


def last_channels(*planes: Tensor) -> Tensor:
    """Joins channels, in channels_last."""
    return torch.cat([plane.permute(0, 2, 3, 1) for plane in planes], 3).permute(0, 3, 1, 2)


def rgba(seed: int = 0) -> tuple[Tensor, Tensor]:
    """RGB photos, and for each alpha (N, 1, height, width): 0, 255 and what lies between."""
    alpha = photos(COUNT, *SIZE, seed=seed + 1)[:, :1].clone()
    alpha[:, :, :10] = 0
    alpha[:, :, 20:] = 255
    return photos(COUNT, *SIZE, seed=seed), alpha


def wide(seed: int, channels: int) -> Tensor:
    """uint16 of all values, channels_last."""
    numbers = np.random.default_rng(seed).integers(
        0, 2**16, (COUNT, *SIZE, channels), dtype=np.uint16
    )
    return torch.from_numpy(numbers).permute(0, 3, 1, 2)


def unit(images: Tensor) -> Tensor:
    return images.to(torch.float32) / (65535 if images.dtype == torch.uint16 else 255)


@pytest.fixture(params=[True, False], ids=["cpu", "accelerator"])
def placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "on_cpu", lambda device: request.param)


LUMA = (0.299, 0.587, 0.114)
GRAY_MEAN, GRAY_STD = (
    sum(a * b for a, b in zip(LUMA, each, strict=True)) for each in (IMAGENET_MEAN, IMAGENET_STD)
)
MOMENTS: list[tuple[int, dict[str, Any], Any, Any]] = [
    (1, {}, [GRAY_MEAN], [GRAY_STD]),
    (4, {}, [*IMAGENET_MEAN, 0.0], [*IMAGENET_STD, 1.0]),
    (1, {"mean": (0.4,), "std": [0.3]}, [0.4], [0.3]),
    (1, {"mean": 0.4, "std": 0.3}, [0.4], [0.3]),
    (3, {"mean": 0.4, "std": 0.3}, [0.4] * 3, [0.3] * 3),
    (4, {"mean": 0.4, "std": (1, 2, 3, 4)}, [0.4] * 4, [1.0, 2.0, 3.0, 4.0]),
    (
        4,
        {"mean": (0.1, 0.2, 0.3, 0.4), "std": (1, 2, 3)},
        [0.1, 0.2, 0.3, 0.4],
        [1.0, 2.0, 3.0, 1.0],
    ),
    (1, UNIT, [0.0], [1.0]),
]


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16])
def test_normalising_is_the_plain_one(dtype: torch.dtype) -> None:
    for channels, options, mean, std in MOMENTS:
        images = (
            wide(0, channels) if dtype == torch.uint16 else last_channels(*rgba())[:, -channels:]
        )
        expected = (unit(images) - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(
            -1, 1, 1
        )
        for operations in ((), [torch.nn.Identity()]):
            augment = Augment(operations, **options)
            torch.testing.assert_close(augment(images), expected, atol=1e-6, rtol=0)
            torch.testing.assert_close(augment.moments(channels), (tuple(mean), tuple(std)))
        narrow = Augment(dtype=torch.bfloat16, **options)(images)
        assert torch.equal(narrow, Augment(**options)(images).to(torch.bfloat16))
        assert narrow.is_contiguous(memory_format=torch.channels_last)


def test_numbers_that_do_not_fit_the_channels_are_named() -> None:
    mistakes: list[tuple[int, dict[str, Any], str]] = [
        (
            3,
            {"mean": (0.5,), "std": (0.5,)},
            "mean: expected one number for all channels, or one per channel, and the images have 3",
        ),
        (
            1,
            {"mean": 0.5, "std": (1, 1, 1, 1)},
            "got (1.0, 1.0, 1.0, 1.0). Pass Augment(std=) as many",
        ),
        (4, {"mean": (0.5,), "std": 1}, "or load images with 1: fastpipe.loader(channels=)"),
    ]
    for channels, options, message in mistakes:
        augment = Augment(**options)
        with pytest.raises(ConfigError, match=re.escape(message)):
            augment(last_channels(*rgba())[:, :channels])
        with pytest.raises(ConfigError, match=re.escape(message)):
            augment.moments(channels)
        with pytest.raises(ConfigError, match=re.escape(message)):
            augment.plan(np.arange(2), SIZE, seed=0, epoch=0, batch=0, channels=channels)


def test_a_plan_of_other_channels_or_bits_is_refused() -> None:
    augment, images = Augment.imagenet(), photos(COUNT, *SIZE)
    for channels, bits in ((3, 16), (4, 8)):
        plan = augment.plan(
            np.arange(COUNT), SIZE, seed=0, epoch=0, batch=0, channels=channels, bits=bits
        )
        with pytest.raises(
            ConfigError, match=re.escape(f"({COUNT}, {channels}, 30, 40) of {bits} bits, got")
        ):
            augment.carry_out(images, LABELS, plan, tensors_of(plan))


def test_operations_get_all_16_bits() -> None:
    for channels in (1, 3, 4):
        seen: list[Tensor] = []
        images = wide(channels, channels)
        Augment(Returns(lambda images, seen=seen: seen.append(images.clone()) or images), **UNIT)(
            images
        )
        assert seen[0].dtype == torch.float32
        torch.testing.assert_close(seen[0], unit(images), atol=1e-7, rtol=0)
        assert torch.equal(seen[0].mul(65535).round().to(torch.int32), images.to(torch.int32))


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("name", [*COLOUR, *POLICIES])
def test_16_bits_of_the_same_pixels_give_the_same(name: str) -> None:
    preset = (COLOUR | POLICIES)[name]
    for channels in (1, 3, 4):
        narrow = last_channels(*rgba())[:, :channels]
        same = narrow.to(torch.int32).mul(257).to(torch.uint16)
        one, soft = preset(**MIXED)(narrow, LABELS, **KEYS)
        other, again = preset(**MIXED)(same, LABELS, **KEYS)
        # Where a pixel is at a threshold, or in the middle between two tones, its last bit decides.
        assert differing(one, other, by=1e-5) < 5e-3
        assert torch.equal(soft, again)


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("name", COLOUR)
def test_colour_leaves_alpha(name: str) -> None:
    rgb, alpha = rgba()
    augment = COLOUR[name]()
    result = augment(last_channels(rgb, alpha), **KEYS)
    assert torch.equal(result[:, :3], augment(rgb, **KEYS))
    torch.testing.assert_close(result[:, 3:], unit(alpha), atol=1e-7, rtol=0)


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("name", POLICIES)
def test_alpha_moves_with_the_pixels_and_else_stays(name: str) -> None:
    rgb, alpha = rgba()
    alpha[alpha < 100], alpha[alpha > 0] = 0, 255
    augment = POLICIES[name](**UNIT)
    result = augment(last_channels(rgb, alpha), **KEYS)
    assert torch.equal(result[:, :3], augment(rgb, **KEYS))
    numbers = np.arange(COUNT) + KEYS["batch"] * COUNT
    plan = augment.plan(numbers, SIZE, **KEYS, channels=4)
    expected = augment.move_shown(alpha[:, 0] > 0, plan, tensors_of(plan))
    assert torch.equal(result[:, 3] > 0.5, expected)
    assert not torch.equal(expected, alpha[:, 0] > 0)


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize(
    "options", [{"erasing": 0.7}, {"mixup": 0.4}, {"cutmix": 1.0}, MIXED], ids=str
)
def test_erasing_and_mixing_treat_all_channels_alike(options: dict[str, Any]) -> None:
    rgb, alpha = rgba()
    augment = Augment(**{**UNIT, "num_classes": COUNT, **options})
    result, soft = augment(last_channels(rgb, alpha), LABELS, **KEYS)
    for part, images in ((result[:, :3], rgb), (result[:, 3:], alpha)):
        alone, labels = augment(images, LABELS, **KEYS)
        torch.testing.assert_close(part, alone, atol=1e-7, rtol=0)
        assert torch.equal(soft, labels)
    assert not torch.equal(result[:, 3:], unit(alpha))


@pytest.mark.parametrize("name", [*COLOUR, *POLICIES])
def test_draws_depend_neither_on_channels_nor_on_bits(name: str) -> None:
    augment = (COLOUR | POLICIES)[name](**MIXED)
    plans = [
        augment.plan(np.arange(50), SIZE, **KEYS, channels=channels, bits=bits)
        for channels, bits in ((3, 8), (1, 8), (4, 16))
    ]
    for plan in plans[1:]:
        assert plan.arrays.keys() == plans[0].arrays.keys()
        for entry, array in plan.arrays.items():
            if not entry.endswith((".scale", ".shift")):
                np.testing.assert_array_equal(array, plans[0].arrays[entry], entry)


@pytest.mark.parametrize(
    ("name", "channels"), [("imagenet", 1), ("simclr", 4), ("randaugment", 1), ("randaugment", 4)]
)
def test_nothing_waits_for_the_device(name: str, channels: int) -> None:
    augment, images = (COLOUR | POLICIES)[name](**MIXED), wide(0, channels)
    plan = augment.plan(
        np.arange(COUNT), SIZE, seed=0, epoch=0, batch=0, channels=channels, bits=16
    )
    expected, _ = augment.carry_out(images, LABELS, plan, tensors_of(plan))
    with simulated() as gpu:
        there, labels, tensors = (
            images.to("cuda:0"),
            LABELS.to("cuda:0"),
            tensors_of(plan, "cuda:0"),
        )
        gpu.waits.clear()
        gpu.copies.clear()
        out, _ = augment.carry_out(there, labels, plan, tensors)
        assert gpu.waits == gpu.copies == gpu.races == []
        assert differing(out.cpu(), expected, by=1e-4) < 1e-3


def test_normalising_gray_is_one_kernel_and_16_bits_two() -> None:
    assert launches_of(Augment.imagenet(), photos(8, *SIZE)[:, :1]) == ["addcmul"]
    assert launches_of(Augment.imagenet(), wide(0, 4)) == ["_to_copy", "addcmul"]


@pytest.mark.parametrize(
    ("channels", "dtype"), [(1, torch.uint16), (3, torch.uint8), (4, torch.uint16)]
)
@pytest.mark.parametrize("kornias", [False, True], ids=["ours", "kornia's"])
def test_second_pictures_are_pasted_to_the_bit(
    kornias: bool, channels: int, dtype: torch.dtype
) -> None:
    cut = k.RandomCutMixV2(p=1.0, use_correct_lambda=True)
    augment = Augment(cut, num_classes=9) if kornias else Augment(cutmix=1.0, num_classes=9)
    pictures = wide(0, channels).permute(0, 2, 3, 1)
    pictures = (
        pictures
        if dtype == torch.uint16
        else pictures.to(torch.int32).bitwise_and(255).to(torch.uint8)
    )
    plan = augment.plan(np.arange(COUNT), SIZE, seed=0, epoch=0, batch=0, channels=channels)
    moved = augment.move_masks(pictures, plan, tensors_of(plan))
    assert moved.dtype == dtype
    partners, _ = augment.partners(plan)
    (boxes,) = (array for name, array in plan.arrays.items() if name.endswith(".boxes"))
    given, expected = pictures.numpy(), pictures.numpy().copy()
    for row, (top, left, bottom, right) in enumerate(boxes):
        expected[row, top:bottom, left:right] = given[partners[row], top:bottom, left:right]
    assert not np.array_equal(expected, given)
    np.testing.assert_array_equal(moved.numpy(), expected)


def test_masks_of_16_bits_move_to_the_bit() -> None:
    flips = k.AugmentationSequential(
        k.RandomHorizontalFlip(p=1.0), k.CenterCrop((20, 20)), data_keys=["input", "mask"]
    )
    augment, masks = Augment(flips), wide(0, 1)[:, 0]
    plan = augment.plan(np.arange(COUNT), SIZE, seed=0, epoch=0, batch=0, channels=1)
    for fill in (0, 255, 65535):
        moved = augment.move_masks(masks, plan, tensors_of(plan), fill)
        np.testing.assert_array_equal(moved.numpy(), masks.numpy()[:, 5:25, 10:30][:, :, ::-1])


MOVING = {
    "RandomAffine": lambda: k.RandomAffine(20.0, (0.1, 0.1), p=0.7),
    "RandomPerspective": lambda: k.RandomPerspective(p=0.7),
    "RandomErasing": lambda: k.RandomErasing(p=0.7),
    "RandomGaussianBlur": lambda: k.RandomGaussianBlur((3, 3), (0.1, 2.0)),
    "RandomMixUpV2": lambda: k.RandomMixUpV2(),
    "RandomMosaic": lambda: k.RandomMosaic(p=1.0),
}


@pytest.mark.parametrize("name", MOVING)
def test_kornias_modules_take_all_channels_alike(name: str) -> None:
    rgb, alpha = rgba()
    augment = Augment(MOVING[name](), num_classes=COUNT, **UNIT)
    result, _ = augment(last_channels(rgb, alpha), LABELS, **KEYS)
    for part, images in ((result[:, :3], rgb), (result[:, 3:], alpha)):
        alone, _ = augment(images, LABELS, **KEYS)
        torch.testing.assert_close(part, alone, atol=1e-5, rtol=0)
        assert not torch.allclose(alone, unit(images), atol=1e-2)


def test_maps_as_large_as_images_have_their_channels() -> None:
    augment = Augment(k.RandomGaussianNoise(std=0.2, p=0.5), **UNIT)
    for channels in (1, 4):
        images = photos(COUNT, 160, 170)[:, :1].expand(-1, channels, -1, -1)
        noise = augment(images, **KEYS) - unit(images)
        changed = noise.abs().amax((1, 2, 3)) > 1e-3
        assert 4 < changed.sum() < COUNT - 4
        assert noise[changed].std() == pytest.approx(0.2, abs=0.05)


def test_a_module_that_refuses_the_channels_is_named_when_it_is_planned() -> None:
    for module in (k.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1e-9), k.RandomRGBShift(p=1e-9)):
        for channels in (1, 4):
            said = f"{type(module).__name__} refused images (N, {channels}, height, width)"
            with pytest.raises(ConfigError, match=re.escape(said)):
                Augment(module).plan(
                    np.arange(2), SIZE, seed=0, epoch=0, batch=0, channels=channels
                )
        assert Augment(module).plan(np.arange(2), SIZE, seed=0, epoch=0, batch=0).channels == 3


def test_your_own_modules_get_the_channels() -> None:
    gray = photos(COUNT, *SIZE)[:, :1]
    assert Augment(torch.nn.Conv2d(1, 7, 3), **UNIT)(gray).shape == (COUNT, 7, 28, 38)
    with pytest.raises(
        ConfigError,
        match=re.escape("expected images (N, 1, height, width), with as many channels as"),
    ):
        Augment(torch.nn.Conv2d(1, 3, 1))(gray)
