"""The colour modules of kornia that are carried out by our own formulas: the same images, within 1e-5."""

from __future__ import annotations

from typing import Any

import kornia.augmentation as k
import pytest
import torch

import fastpipe
from fastpipe.device.augment.kornia_formulas import find_formula, find_neutral

SAMPLES = 200
MODULES: dict[str, Any] = {
    "ColorJitter": lambda **options: k.ColorJitter(0.4, 0.4, 0.4, 0.5, **options),
    "ColorJitter, brightness only": lambda **options: k.ColorJitter(0.9, **options),
    "ColorJitter, fixed order": lambda **options: k.ColorJitter(
        0.4, 0.4, 0.4, 0.1, order=(2, 0, 3, 1), **options
    ),
    "ColorJiggle": lambda **options: k.ColorJiggle(0.4, 0.4, 0.4, 0.5, **options),
    "RandomBrightness": lambda **options: k.RandomBrightness((0.4, 1.9), **options),
    "RandomContrast": lambda **options: k.RandomContrast((0.1, 2.5), **options),
    "RandomSaturation": lambda **options: k.RandomSaturation((0.0, 3.0), **options),
    "RandomHue": lambda **options: k.RandomHue((-0.5, 0.5), **options),
    "RandomGamma": lambda **options: k.RandomGamma((0.3, 3.0), (0.5, 2.0), **options),
    "RandomGrayscale": lambda **options: k.RandomGrayscale(**options),
}


def images_of(count: int, height: int, width: int, seed: int) -> torch.Tensor:
    """Random colours, with many that are grey, black, white or have equal channels."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randint(0, 256, (count, 3, height, width), generator=generator)
    images = levels.float() / 255
    kind = torch.randint(0, 8, (count, 1, height, width), generator=generator)
    images = torch.where(kind == 0, images[:, :1], images)  # grey
    images = torch.where(kind == 1, torch.zeros(()), images)
    images = torch.where(kind == 2, torch.ones(()), images)
    equal = torch.stack([images[:, 0], images[:, 0], images[:, 2]], dim=1)
    return torch.where(kind == 3, equal, images).contiguous()


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (16, 12)])
@pytest.mark.parametrize("name", MODULES)
def test_images_are_kornias(name: str, size: tuple[int, int]) -> None:
    torch.manual_seed(7)
    module = MODULES[name](p=1.0)
    formula = find_formula(module)
    assert formula is not None
    for seed in range(SAMPLES // 50):
        images = images_of(50, *size, seed)
        parameters = module.forward_parameters(images.shape)
        expected = module(images.clone(), params=parameters)
        result = formula(images.clone(), parameters, find_neutral(parameters))
        assert (result - expected).abs().max() < 1e-5


@pytest.mark.parametrize("name", MODULES)
def test_a_loaders_augmentation_is_that_of_the_module(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a probability, for uint8 and float images, which stay as they are."""
    images = (images_of(16, 12, 10, 3) * 255).round().to(torch.uint8)

    def augmented(part: torch.Tensor) -> torch.Tensor:
        augment = fastpipe.Augment(MODULES[name](p=0.6), mean=None, std=None)
        result = augment(part)
        assert isinstance(result, torch.Tensor)
        return result

    before = images.clone()
    ours = augmented(images)
    assert torch.equal(images, before)
    monkeypatch.setattr("fastpipe.device.augment.kornia_operation.find_formula", lambda _: None)
    assert (ours - augmented(images)).abs().max() < 1e-5


def test_other_modules_go_through_kornia() -> None:
    class Own(k.ColorJitter):  # type: ignore[misc]
        pass

    hooked = k.RandomHue((-0.1, 0.1))
    hooked.register_forward_hook(lambda *_: None)
    weights = torch.tensor([0.2, 0.3, 0.5])
    for module in (
        Own(0.1),
        hooked,
        k.RandomGrayscale(rgb_weights=weights),
        k.RandomBrightness((0.5, 1.5), clip_output=False),
        k.RandomGaussianBlur((3, 3), (0.1, 2.0)),
        torch.nn.Identity(),
    ):
        assert find_formula(module) is None


def test_gray_images_go_through_kornia() -> None:
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    augment = fastpipe.Augment(k.RandomGamma((0.5, 2.0), p=1.0), mean=None, std=None)
    result = augment(images)
    assert isinstance(result, torch.Tensor)
    assert result.shape == (4, 1, 8, 8)
