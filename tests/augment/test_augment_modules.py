"""Tests of other people's modules in an augmentation: kornia's and any nn.Module."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import kornia.augmentation
import numpy as np
import pytest
import torch
from augment_batches import differing, photos
from test_augment_draws import Noise, generators
from torch import Tensor

from fastpipe import Augment, ConfigError
from fastpipe.augment import as_augment
from fastpipe.augment.generators import seeded

k: Any = kornia.augmentation


class Returns(torch.nn.Module):
    """Hands its images to a function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Any:
        return self.function(images)


def jitter() -> list[torch.nn.Module]:
    return [
        k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        k.RandomGrayscale(p=0.3),
        k.RandomGaussianBlur((3, 3), (0.1, 2.0)),
    ]


def test_a_list_of_kornia_modules_is_kornia_called_directly_with_the_same_seeds() -> None:
    images, modules = photos(9, 30, 24), jitter()
    result = Augment(modules, mean=None, std=None)(images, seed=3, epoch=1, batch=2)
    plan = Augment(modules).plan(np.arange(9) + 18, (30, 24), seed=3, epoch=1, batch=2)
    expected = images.float() / 255
    with torch.random.fork_rng():
        for module, seed in zip(modules, plan.hosts, strict=False):
            torch.manual_seed(seed)
            expected = module(expected)
    torch.testing.assert_close(result, expected, atol=5e-6, rtol=0)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_kornias_parameters_are_drawn_for_each_sample() -> None:
    results = Augment(jitter())(photos(1, 16, 16).expand(20, 3, 16, 16))
    assert len({tuple(result.flatten().tolist()) for result in results}) > 12


def test_the_batch_and_the_seed_decide_and_nothing_else() -> None:
    images, augment = photos(5, 16, 16), Augment([Noise(), *jitter()])
    expected = augment(images, seed=1, epoch=2, batch=3)
    torch.manual_seed(77)
    random.seed(5)
    before = generators()
    assert torch.equal(augment(images, seed=1, epoch=2, batch=3), expected)
    assert generators() == before
    for other in ({"seed": 2}, {"epoch": 3}, {"batch": 4}):
        assert not torch.equal(augment(images, **{"seed": 1, "epoch": 2, "batch": 3, **other}), expected)


def test_two_modules_of_a_kind_and_two_ranks_of_a_batch_draw_differently() -> None:
    images = photos(4, 8, 8)
    draws: list[Tensor] = []
    keep = Returns(lambda images: draws.append(torch.rand(3)) or images)
    augment = Augment([keep, keep])
    for first in (0, 100):  # the shares of two ranks in one global batch
        augment(images, batch=5, samples=np.arange(4) + first)
    assert len({tuple(draw.tolist()) for draw in draws}) == 4


def test_generators_are_put_back_when_a_module_raises() -> None:
    def fails(images: Tensor) -> Tensor:
        torch.rand(3), random.random(), np.random.random()
        raise ArithmeticError("no")

    before = generators()
    with pytest.raises(ArithmeticError):
        Augment([Returns(fails)])(photos(2, 8, 8))
    assert generators() == before


def test_seeding_is_that_of_manual_seed() -> None:
    with seeded(torch.device("cpu"), 2**64 - 1):
        drawn = torch.rand(3), random.random()
    with torch.random.fork_rng():
        torch.manual_seed(2**64 - 1)
        assert torch.equal(drawn[0], torch.rand(3))
    assert drawn[1] == random.Random(2**64 - 1).random()


def test_a_module_is_given_float32_images_from_0_to_1_in_channels_last() -> None:
    given: list[Tensor] = []
    images = photos(4, 8, 6)
    Augment([Returns(lambda images: given.append(images) or images)])(images)
    assert given[0].dtype == torch.float32
    assert given[0].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(given[0], images / 255, atol=1e-7, rtol=0)
    assert torch.is_grad_enabled()


def test_a_module_alone_hands_out_what_it_likes() -> None:
    images = photos(4, 8, 6)
    for made, expected in (
        (lambda images: images.half(), ((4, 3, 8, 6), torch.float16)),
        (lambda images: images.mean((1, 2, 3)), ((4,), torch.float32)),
        (lambda images: torch.stack([images, images.flip(3)], 1), ((4, 2, 3, 8, 6), torch.float32)),
    ):
        result = as_augment(Returns(made))(images)
        assert (tuple(result.shape), result.dtype) == expected


def test_operations_of_a_preset_go_with_modules_of_others() -> None:
    """Ours work in place: what a module returns, here a tensor that it keeps, must stay as it is."""
    kept: list[Tensor] = []
    given: list[Tensor] = []
    keep = Returns(lambda images: kept.append(images.half()) or kept[-1])
    see = Returns(lambda images: given.append(images) or images)
    ours = list(Augment.randaugment(4).operations)
    images = photos(20, 12, 12)
    result = Augment([keep, *ours, see], mean=None, std=None)(images)
    assert torch.equal(kept[0], (images / 255).half())
    assert given[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(given[0], result)
    alone = Augment.randaugment(4, mean=None, std=None)(images)
    assert differing(result, alone, by=0.1) < 0.05
    with pytest.raises(ConfigError, match="later operations of fastpipe need the same size"):
        Augment([Returns(lambda images: images[:, :, ::2, ::2]), *ours])(images)


def test_modules_may_change_the_size() -> None:
    result = Augment([k.Resize((10, 12))], dtype=torch.bfloat16)(photos(4, 20, 20))
    assert result.shape == (4, 3, 10, 12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda images: None, "Returns returned NoneType"),
        (lambda images: (images, 1), "Returns returned tuple"),
        (lambda images: images[:2], "Returns returned shape (2, 3, 8, 6)"),
        (lambda images: images.mean(), "Returns returned shape ()"),
        (lambda images: images.to(torch.uint8), "Returns returned torch.uint8 of shape (4, 3, 8, 6)"),
    ],
)
def test_a_module_that_returns_no_batch_is_named(make: Callable[[Tensor], Any], message: str) -> None:
    for augment in (Augment([torch.nn.Identity(), Returns(make)]), as_augment(Returns(make))):
        with pytest.raises(ConfigError, match=re.escape(message)) as raised:
            augment(photos(4, 8, 6))
        assert "4 here" in str(raised.value)


def test_what_cannot_be_normalised_or_mixed_is_refused() -> None:
    images, labels = photos(4, 8, 6), torch.arange(4)
    with pytest.raises(ConfigError, match=re.escape("the operations returned shape (4, 1, 8, 6)")):
        Augment([Returns(lambda images: images[:, :1])])(images)
    halved = Returns(lambda images: images[:, :, ::2, ::2])
    with pytest.raises(ConfigError, match=re.escape("from (8, 6) to (4, 3); erasing, mixup, cutmix")):
        Augment([halved], mixup=1.0, num_classes=4)(images, labels)
    with pytest.raises(ConfigError, match=re.escape("size=(4, 3)")):
        Augment([halved], erasing=0.5)(images)


def test_kornias_samplers_stay_on_the_cpu() -> None:
    """Moved along with a module, as `Augment(...).to("cuda")` does, many would copy their draws back and wait."""
    modules = [k.RandomBrightness((0.5, 1.5)), torch.nn.Sequential(k.RandomContrast((0.5, 1.5)))]
    augment = Augment(modules).to("meta")
    assert modules[0].device == torch.device("meta")
    images, same = photos(3, 8, 8), Augment([k.RandomBrightness((0.5, 1.5)), k.RandomContrast((0.5, 1.5))])
    assert torch.equal(augment(images), same(images))
    assert modules[0].device == modules[1][0].device == torch.device("cpu")


@pytest.mark.parametrize(
    "make",
    [
        lambda: k.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8),
        lambda: k.RandomAffine(15.0, (0.1, 0.1), (0.8, 1.2)),
        lambda: k.RandomBrightness((0.5, 1.5)),
        lambda: k.RandomErasing(),
        lambda: k.RandomGaussianBlur((3, 3), (0.1, 2.0)),
        lambda: k.RandomHorizontalFlip(),
        lambda: k.RandomPerspective(),
        lambda: k.RandomPosterize(3),
        lambda: k.RandomSolarize(),
        lambda: k.auto.TrivialAugment(),
    ],
)
def test_kornias_modules_never_read_the_device(make: Callable[[], torch.nn.Module]) -> None:
    """Images without data, on the meta device: what asks for a value of them, or copies from them, raises."""
    augment = Augment([make()])
    plan = augment.plan(np.arange(4), (16, 16), seed=0, epoch=0, batch=0)
    tensors = {name: torch.from_numpy(array).to("meta") for name, array in plan.arrays.items()}
    labels = torch.zeros(4, dtype=torch.int64, device="meta")
    images = torch.empty(4, 3, 16, 16, dtype=torch.uint8, device="meta")
    assert augment.carry_out(images, labels, plan, tensors)[0].shape == (4, 3, 16, 16)


@pytest.mark.parametrize("kind", ["v2", "v1", "composed", "nested"])
def test_transforms_of_torchvision_draw_for_each_sample(torchvision: ModuleType, kind: str) -> None:
    """They draw once a call: called with the batch, they would mirror all images or none."""
    from torchvision.transforms import v2

    flip = v2.RandomHorizontalFlip() if kind != "v1" else torchvision.transforms.RandomHorizontalFlip()
    module = {"composed": v2.Compose([flip]), "nested": torch.nn.Sequential(flip)}.get(kind, flip)
    images, samples = photos(32, 12, 16), np.arange(100, 132)
    augment = Augment([module], mean=None, std=None)
    result, plain = augment(images, seed=3, samples=samples), Augment(mean=None, std=None)(images)
    flipped = [not torch.equal(one, other) for one, other in zip(result, plain, strict=True)]
    assert 8 <= sum(flipped) <= 24
    few = np.array([31, 4, 17, 0])
    assert torch.equal(augment(images[few], seed=3, samples=samples[few]), result[few]), "the same in any batch"


def test_a_transform_that_draws_nothing_gets_the_whole_batch(torchvision: ModuleType) -> None:
    shapes: list[tuple[int, ...]] = []
    noted = Returns(lambda images: shapes.append(images.shape) or images)  # type: ignore[func-returns-value]
    augment = Augment([noted, torchvision.transforms.Grayscale(3)])
    assert not augment.operations[1].image_by_image
    augment(photos(5, 12, 16))
    assert shapes == [(5, 3, 12, 16)]


def test_images_of_different_shapes_make_no_batch(torchvision: ModuleType) -> None:
    from torchvision.transforms import v2

    with pytest.raises(ConfigError, match="RandomResize returned images of different shapes"):
        Augment([v2.RandomResize(8, 40)])(photos(8, 12, 16), seed=0)
