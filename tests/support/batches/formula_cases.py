"""The modules of kornia that fastpipe carries out itself -> their images by both ways, to compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kornia.augmentation
import torch
from torch import Tensor

from fastpipe.device.augment.formulas import find_formula

k: Any = kornia.augmentation
RGB = (3,)
ANY = (1, 3, 4)


@dataclass(frozen=True)
class Case:
    """A module with some options.

    Attributes:
        make: the module, with options such as p=.
        channels: the numbers of channels that kornia takes.
    """

    make: Callable[..., Any]
    channels: tuple[int, ...] = ANY


CASES: dict[str, Case] = {
    "ColorJitter": Case(lambda **options: k.ColorJitter(0.4, 0.4, 0.4, 0.5, **options), RGB),
    "ColorJitter, brightness only": Case(lambda **options: k.ColorJitter(0.9, **options), RGB),
    "ColorJitter, fixed order": Case(
        lambda **options: k.ColorJitter(0.4, 0.4, 0.4, 0.1, order=(2, 0, 3, 1), **options), RGB
    ),
    "ColorJiggle": Case(lambda **options: k.ColorJiggle(0.4, 0.4, 0.4, 0.5, **options), RGB),
    "RandomBrightness": Case(lambda **options: k.RandomBrightness((0.4, 1.9), **options)),
    "RandomContrast": Case(lambda **options: k.RandomContrast((0.1, 2.5), **options)),
    "RandomSaturation": Case(lambda **options: k.RandomSaturation((0.0, 3.0), **options), RGB),
    "RandomHue": Case(lambda **options: k.RandomHue((-0.5, 0.5), **options), RGB),
    "RandomGamma": Case(lambda **options: k.RandomGamma((0.3, 3.0), (0.5, 2.0), **options)),
    "RandomGrayscale": Case(lambda **options: k.RandomGrayscale(**options), RGB),
    "RandomSolarize": Case(lambda **options: k.RandomSolarize(0.4, 0.3, **options)),
    "RandomPosterize": Case(lambda **options: k.RandomPosterize((0, 8), **options)),
    "RandomEqualize": Case(lambda **options: k.RandomEqualize(**options)),
    "RandomAutoContrast": Case(lambda **options: k.RandomAutoContrast(**options)),
    "RandomInvert": Case(lambda **options: k.RandomInvert(0.8, **options)),
    "RandomGaussianNoise": Case(lambda **options: k.RandomGaussianNoise(0.1, 0.3, **options)),
    "Normalize": Case(
        lambda p=1.0, same_on_batch=True: k.Normalize(
            torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.4]), p=p
        ),
        RGB,
    ),
    "Normalize, one number": Case(lambda p=1.0, same_on_batch=True: k.Normalize(0.4, 0.2, p=p)),
    "RandomErasing": Case(lambda **options: k.RandomErasing(value=0.4, **options)),
    "RandomErasing, high": Case(
        lambda **options: k.RandomErasing((0.3, 0.9), (2.0, 9.0), **options)
    ),
    "RandomSharpness": Case(lambda **options: k.RandomSharpness((0.0, 3.0), **options)),
    "RandomGaussianBlur": Case(
        lambda **options: k.RandomGaussianBlur((5, 5), (0.1, 2.0), **options)
    ),
    "RandomGaussianBlur, wide": Case(
        lambda **options: k.RandomGaussianBlur((3, 7), (0.5, 5.0), "replicate", **options)
    ),
    "RandomGaussianBlur, in one": Case(
        lambda **options: k.RandomGaussianBlur(
            (3, 3), (0.1, 2.0), "circular", separable=False, **options
        )
    ),
    "RandomBoxBlur": Case(k.RandomBoxBlur),
    "RandomBoxBlur, even": Case(lambda **options: k.RandomBoxBlur((4, 2), "constant", **options)),
    "RandomBoxBlur, in one": Case(
        lambda **options: k.RandomBoxBlur((5, 3), "circular", normalized=False, **options)
    ),
    "RandomMotionBlur": Case(lambda **options: k.RandomMotionBlur(5, 60.0, 0.7, **options)),
    "RandomMotionBlur, several sizes": Case(
        lambda **options: k.RandomMotionBlur((3, 7), 90.0, 1.0, "reflect", "bilinear", **options)
    ),
    "RandomHorizontalFlip": Case(k.RandomHorizontalFlip),
    "RandomVerticalFlip": Case(k.RandomVerticalFlip),
    "RandomAffine": Case(
        lambda **options: k.RandomAffine(25.0, (0.2, 0.3), (0.7, 1.4), 15.0, **options)
    ),
    "RandomAffine, nearest": Case(
        lambda **options: k.RandomAffine(
            180.0, (0.2, 0.2), resample="nearest", padding_mode="border", **options
        )
    ),
    "RandomAffine, corners": Case(
        lambda **options: k.RandomAffine(
            60.0,
            scale=(0.5, 2.0),
            resample="bicubic",
            padding_mode="reflection",
            align_corners=True,
            **options,
        )
    ),
    "RandomRotation": Case(lambda **options: k.RandomRotation(90.0, **options)),
    "RandomRotation, nearest": Case(
        lambda **options: k.RandomRotation(90.0, "nearest", align_corners=False, **options)
    ),
    "RandomRotation90": Case(lambda **options: k.RandomRotation90((-1, 2), **options)),
    "RandomShear": Case(lambda **options: k.RandomShear((-20.0, 20.0, -10.0, 10.0), **options)),
    "RandomTranslate": Case(
        lambda **options: k.RandomTranslate((-0.3, 0.3), (-0.2, 0.4), "nearest", **options)
    ),
    "RandomPerspective": Case(lambda **options: k.RandomPerspective(0.6, **options)),
    "RandomPerspective, nearest": Case(
        lambda **options: k.RandomPerspective(
            0.5, "nearest", align_corners=True, sampling_method="area_preserving", **options
        )
    ),
    "RandomResizedCrop": Case(lambda **options: k.RandomResizedCrop((9, 11), **options)),
    "RandomResizedCrop, half pixels": Case(
        lambda **options: k.RandomResizedCrop((20, 9), align_corners=False, **options)
    ),
    "RandomResizedCrop, nearest": Case(
        lambda **options: k.RandomResizedCrop((7, 30), resample="nearest", **options)
    ),
    "Resize": Case(lambda p=1.0, same_on_batch=True: k.Resize((9, 14), p=p)),
    "Resize, one side": Case(
        lambda p=1.0, same_on_batch=True: k.Resize(11, "long", "nearest", p=p)
    ),
    "LongestMaxSize": Case(
        lambda p=1.0, same_on_batch=True: k.LongestMaxSize(10, align_corners=False, p=p)
    ),
    "AutoAugment": Case(lambda p=1.0, same_on_batch=False: k.auto.AutoAugment(), RGB),
    "AutoAugment, svhn": Case(lambda p=1.0, same_on_batch=False: k.auto.AutoAugment("svhn"), RGB),
    "RandAugment": Case(lambda p=1.0, same_on_batch=False: k.auto.RandAugment(3, 12), RGB),
    "TrivialAugment": Case(lambda p=1.0, same_on_batch=False: k.auto.TrivialAugment(), RGB),
    "SmallestMaxSize": Case(
        lambda p=1.0, same_on_batch=True: k.SmallestMaxSize(10, "bicubic", p=p)
    ),
}


def colours(count: int, channels: int, height: int, width: int, seed: int) -> Tensor:
    """Random colours, with many that are grey, black, white or have equal channels.

    One image is flat, and one has few tones.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (count, channels, height, width)
    levels = torch.randint(0, 256, shape, generator=generator)
    images = levels.float() / 255
    kind = torch.randint(0, 8, (count, 1, height, width), generator=generator)
    images = torch.where(kind == 0, images[:, :1], images)  # grey
    images = torch.where(kind == 1, torch.zeros(()), images)
    images = torch.where(kind == 2, torch.ones(()), images)
    images[-1] = images[-1, :, :1, :1]
    images[0] = (images[0] * 3).round() / 3
    # The first two channels are equal in some pixels.
    second = images[:, 1 % channels]
    images[:, 0] = torch.where(kind[:, 0] == 3, second, images[:, 0])
    return images.contiguous()


def is_carried_out(module: Any, size: tuple[int, int], channels: int) -> bool:
    """Whether fastpipe has a formula of the module for such images."""
    formula = find_formula(module)
    return formula is not None and formula.fits(size, channels)


def both_ways(module: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    """The results of the formula and of the module, with the same parameters."""
    formula = find_formula(module)
    assert formula is not None
    count, channels, height, width = images.shape
    assert formula.fits((height, width), channels)
    parameters = module.forward_parameters(images.shape)
    expected = module(images.clone(), params=parameters)
    prepared = formula.prepare(parameters, images.shape)
    assert prepared is not None
    for tensor in prepared.tensors.values():
        assert len(tensor) == count
        assert tensor.dtype in (torch.float32, torch.int64)
    with torch.no_grad():
        result = formula.change(images.clone(), prepared.tensors, prepared.host)
    return result, expected


def assert_kornias(name: str, module: Any, images: Tensor, note: object) -> None:
    """Asserts that both ways give the same images.

    The nearest pixel is the same pixel. Else values differ by less than 1e-5. A policy may round
    such values to tones, and a few come to lie on the other side of an edge.
    """
    result, expected = both_ways(module, images)
    assert result.shape == expected.shape, note
    differences = (result - expected).abs()
    if "Augment" in name:
        share = float((differences > 1e-5).float().mean())
        assert share < 1e-3, note
        return
    most = 0 if "nearest" in name else 1e-5
    assert float(differences.max()) <= most, note
