"""Golden tests: each operation and preset against torchvision, called with the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import differing, photos
from torch import Tensor

from fastpipe import Augment
from fastpipe.device.augment import effects, pixels
from fastpipe.device.augment.effects import _by_convolution, _by_shifts, gaussian_blur
from fastpipe.device.augment.operation import Draws
from fastpipe.device.augment.presets import PICKS, RANDAUGMENT, TRIVIAL_AUGMENT, Space, numbers_of
from fastpipe.plan.draws import Stream

SIZES = [(40, 48), (37, 50), (17, 19)]  # of the last, a step of equalize is 1
FACTORS = torch.tensor([0.0, 0.3, 1.0, 1.7, 0.5, 1.3])


@pytest.fixture(scope="module")
def v2(torchvision: ModuleType) -> Any:
    import torchvision.transforms.v2 as v2

    return v2


def unit(size: tuple[int, int]) -> Tensor:
    """Six float images in [0, 1]; the last is grey, the one before of a single tone."""
    images = photos(6, *size).to(torch.float32, memory_format=torch.contiguous_format) / 255
    images[4] = 0.5
    return images


Call = tuple[str, Callable[..., Tensor], Tensor | None, Callable[[Any, Tensor, float], Tensor]]
OPERATIONS: list[Call] = [
    (
        "brightness",
        effects.brightness,
        FACTORS,
        lambda f, image, value: f.adjust_brightness(image, value),
    ),
    (
        "contrast",
        effects.contrast,
        FACTORS,
        lambda f, image, value: f.adjust_contrast(image, value),
    ),
    (
        "saturation",
        effects.saturation,
        FACTORS,
        lambda f, image, value: f.adjust_saturation(image, value),
    ),
    (
        "hue",
        effects.hue,
        torch.tensor([-0.5, 0.5, 0.2, -0.13, 0.3, -0.4]),
        lambda f, image, value: f.adjust_hue(image, value),
    ),
    (
        "grayscale",
        effects.grayscale,
        None,
        lambda f, image, _: f.rgb_to_grayscale(image, len(image)),
    ),
    (
        "sharpness",
        effects.sharpness,
        FACTORS,
        lambda f, image, value: f.adjust_sharpness(image, value),
    ),
    (
        "posterize",
        effects.posterize,
        torch.tensor([2.0, 3, 4, 5, 6, 8]),
        lambda f, image, value: f.posterize(image, int(value)),
    ),
    (
        "solarize",
        effects.solarize,
        torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        lambda f, image, value: f.solarize(image, value),
    ),
    ("autocontrast", effects.autocontrast, None, lambda f, image, _: f.autocontrast(image)),
    ("equalize", effects.equalize, None, lambda f, image, _: f.equalize(image)),
]


@pytest.mark.parametrize("call", OPERATIONS, ids=[call[0] for call in OPERATIONS])
def test_an_operation_is_torchvisions(v2: Any, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ours, values, theirs = call
    numbers = [0.0] * 6 if values is None else values.tolist()
    for size, channels in product(SIZES, (1, 3)):
        images = unit(size)[:, :channels].contiguous()
        expected = [
            theirs(v2.functional, image, number)
            for image, number in zip(images, numbers, strict=True)
        ]
        for on_cpu in (True, False):
            monkeypatch.setattr(pixels, "on_cpu", lambda device, here=on_cpu: here)
            result = ours(images.clone()) if values is None else ours(images.clone(), values)
            torch.testing.assert_close(result, torch.stack(expected), atol=2e-6, rtol=0)


def test_blur_is_torchvisions(v2: Any) -> None:
    sigmas = torch.tensor([0.1, 0.5, 1.0, 1.5, 1.9, 2.0])
    for size, radius in product(SIZES, (1, 3, 11)):
        images, kernel = unit(size), [2 * radius + 1] * 2
        expected = [
            v2.functional.gaussian_blur(image, kernel, [float(sigma)] * 2)
            for image, sigma in zip(images, sigmas, strict=True)
        ]
        torch.testing.assert_close(
            gaussian_blur(images, sigmas, radius), torch.stack(expected), atol=2e-6, rtol=0
        )


def test_both_ways_to_blur_are_one() -> None:
    images, weights = unit((20, 31)), torch.rand(6, 4)
    for dimension in (2, 3):
        shifted, convolved = (
            way(images, weights, 3, dimension) for way in (_by_shifts, _by_convolution)
        )
        torch.testing.assert_close(shifted, convolved, atol=2e-6, rtol=0)


THEIR_NAMES = {
    "identity": "Identity",
    "shear_x": "ShearX",
    "shear_y": "ShearY",
    "translate_x": "TranslateX",
    "translate_y": "TranslateY",
    "rotate": "Rotate",
    "brightness": "Brightness",
    "saturation": "Color",
    "contrast": "Contrast",
    "sharpness": "Sharpness",
    "posterize": "Posterize",
    "solarize": "Solarize",
    "autocontrast": "AutoContrast",
    "equalize": "Equalize",
}


def their_magnitude(
    transform: Any, pick: str, bin_number: int, sign: int, size: tuple[int, int]
) -> float:
    """torchvision's magnitude of a bin, with the sign where it has one."""
    magnitudes, signed = transform._AUGMENTATION_SPACE[THEIR_NAMES[pick]]
    values = magnitudes(31, *size)
    if values is None:
        return 0.0
    # linspace may give 15.999998 for 16, which a translation cuts to 15.
    rounded = round(float(values[bin_number]), 4)
    return rounded * sign if signed else rounded


def their_result(v2: Any, transform: Any, image: Tensor, pick: str, magnitude: float) -> Tensor:
    nearest = v2.InterpolationMode.NEAREST
    result: Tensor = transform._apply_image_or_video_transform(
        image, THEIR_NAMES[pick], magnitude, interpolation=nearest, fill={}
    )
    return result


def their_transform(v2: Any, space: Space) -> Any:
    return v2.RandAugment() if space is RANDAUGMENT else v2.TrivialAugmentWide()


def test_picks_are_torchvisions(v2: Any) -> None:
    assert list(THEIR_NAMES) == list(PICKS)
    for space in (RANDAUGMENT, TRIVIAL_AUGMENT):
        assert list(their_transform(v2, space)._AUGMENTATION_SPACE) == [
            THEIR_NAMES[pick] for pick in PICKS
        ]


@pytest.mark.parametrize(
    "space", [RANDAUGMENT, TRIVIAL_AUGMENT], ids=["randaugment", "trivial_augment"]
)
def test_numbers_are_torchvisions_magnitudes(v2: Any, space: Space) -> None:
    transform, size = their_transform(v2, space), (224, 161)
    for pick in PICKS[6:12]:
        for step in range(31):
            number = numbers_of(pick, np.array([step / 30]), space, size)[0, 0]
            magnitude = their_magnitude(transform, pick, step, 1, size)
            assert number == pytest.approx(magnitude + (pick in PICKS[6:10]), abs=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("preset", ["randaugment", "trivial_augment"])
def test_policy_presets_are_torchvisions_sample_by_sample(
    v2: Any, preset: str, channels: int
) -> None:
    """Draws each sample's operations from the streams, and has torchvision do them."""
    size, count = (40, 48), 90
    images = photos(count, *size)[:, :channels]
    space, layers = (RANDAUGMENT, 3) if preset == "randaugment" else (TRIVIAL_AUGMENT, 1)
    options: dict[str, Any] = {"mean": None, "std": None}
    augment = (
        Augment.randaugment(3, 13, **options) if layers == 3 else Augment.trivial_augment(**options)
    )
    result = augment(images, seed=5, epoch=2, batch=0)
    draws = Draws(np.arange(count), seed=5, epoch=2, batch=0)
    transform, seen = their_transform(v2, space), set()
    for row in range(count):
        expected = images[row].float() / 255
        for layer in range(layers):
            pick = PICKS[int(draws.each(Stream.OPERATION + layer)[row] * 14)]
            step = 13 if layers == 3 else int(draws.each(Stream.MAGNITUDE + layer)[row] * 31)
            sign = -1 if draws.each(Stream.SIGN + layer)[row] < 0.5 else 1
            magnitude = their_magnitude(transform, pick, step, sign, size)
            expected = their_result(v2, transform, expected, pick, magnitude)
            seen.add(pick)
        assert differing(result[row], expected) < 0.03, row
    assert seen == set(PICKS)


def test_simclr_is_torchvisions_with_the_same_parameters(v2: Any) -> None:
    size, count = (64, 60), 40
    images = photos(count, *size)
    augment = Augment.simclr(strength=0.5, mean=None, std=None)
    result = augment(images, seed=1, batch=3)
    plan = augment.plan(np.arange(count) + 3 * count, size, seed=1, epoch=0, batch=3)
    jittered, factors = plan.arrays["0.rows"].tolist(), torch.from_numpy(plan.arrays["0.factors"])
    order, grey = plan.hosts[0][1], plan.arrays["1.rows"].tolist()
    blurred, sigmas = plan.arrays["2.rows"].tolist(), plan.arrays["2.sigmas"].tolist()
    assert (len(jittered) > 20, len(grey) > 2, len(blurred) > 10) == (True, True, True)

    adjust = v2.functional
    steps = (
        adjust.adjust_brightness,
        adjust.adjust_contrast,
        adjust.adjust_saturation,
        adjust.adjust_hue,
    )
    expected = list(images.float() / 255)
    for place, row in enumerate(jittered):
        for which in order:
            expected[row] = steps[which](expected[row], float(factors[place, which]))
    for row in grey:
        expected[row] = adjust.rgb_to_grayscale(expected[row], 3)
    for row, sigma in zip(blurred, sigmas, strict=True):
        expected[row] = adjust.gaussian_blur(expected[row], [7, 7], [sigma, sigma])
    torch.testing.assert_close(result, torch.stack(expected), atol=1e-5, rtol=0)


def test_the_blurs_kernel_is_a_tenth_of_the_shorter_side() -> None:
    for size, radius in (((224, 224), 11), ((96, 300), 4), ((32, 32), 1), ((5, 9), 1)):
        plan = Augment.simclr().plan(np.arange(9), size, seed=0, epoch=0, batch=0)
        assert plan.hosts[2][1] == radius


def test_shares_of_simclr_are_the_papers() -> None:
    plan = Augment.simclr().plan(np.arange(50_000), (224, 224), seed=3, epoch=1, batch=0)
    for stage, share in ((0, 0.8), (1, 0.2), (2, 0.5)):
        assert len(plan.arrays[f"{stage}.rows"]) / 50_000 == pytest.approx(share, abs=0.01)
    factors = plan.arrays["0.factors"]
    ranges = [(0.2, 1.8)] * 3 + [(-0.2, 0.2)]
    for column, (low, high) in enumerate(ranges):
        values = factors[:, column]
        assert low <= values.min() < low + 0.01
        assert high - 0.01 < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.01)
    sigmas = plan.arrays["2.sigmas"]
    assert (sigmas.min(), sigmas.max()) == (
        pytest.approx(0.1, abs=0.01),
        pytest.approx(2.0, abs=0.01),
    )
    orders = {
        Augment.simclr().plan(np.arange(1), (9, 9), seed=0, epoch=0, batch=b).hosts[0][1]
        for b in range(400)
    }
    assert len(orders) == 24
