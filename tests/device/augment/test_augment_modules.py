"""Tests of other people's modules in an augmentation: kornia's and any nn.Module."""

from __future__ import annotations

import functools
import importlib
import random
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import kornia.augmentation
import numpy as np
import pytest
import torch
from support.batches.augment_batches import differing, photos, tensors_of
from support.batches.kornia_cases import CASES
from support.devices.simulated_gpu import simulated
from test_augment_draws import Noise, generators
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fastpipe import Augment, ConfigError
from fastpipe.device.augment import as_augment, kornia_modules
from fastpipe.device.augment.by_sample import BySample
from fastpipe.device.augment.foreign import seeded
from fastpipe.device.augment.operation import Draws
from fastpipe.device.augment.pixels import IMAGENET_MEAN, IMAGENET_STD
from fastpipe.device.staging import pack, unpack
from fastpipe.plan.draws import Stream

pytestmark = pytest.mark.usefixtures("one_thread")

k: Any = kornia.augmentation
KEYS: dict[str, Any] = {"seed": 0, "epoch": 0, "batch": 0}


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


def test_a_list_of_kornia_modules_is_kornia_called_directly_with_the_same_draws() -> None:
    images, numbers = photos(9, 30, 24), np.arange(9) + 18
    modules = [
        k.RandomAffine(20.0),
        k.RandomGrayscale(p=0.3),
        k.RandomGaussianBlur((3, 3), (0.1, 2.0)),
        k.RandomErasing(),
    ]
    result = Augment(modules, mean=None, std=None)(images, seed=3, epoch=1, batch=2)
    draws = Draws(numbers, seed=3, epoch=1, batch=2)
    expected = images.float() / 255
    for position, module in enumerate(modules):
        with BySample(torch.from_numpy(draws.sample_bits(Stream.MODULE, position).view(np.int64))):
            expected = module(expected)
    torch.testing.assert_close(result, expected, atol=5e-6, rtol=0)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_the_batch_and_the_seed_decide_and_nothing_else() -> None:
    images, augment = photos(5, 16, 16), Augment([Noise(), *jitter()])
    expected = augment(images, seed=1, epoch=2, batch=3)
    torch.manual_seed(77)
    random.seed(5)
    before = generators()
    assert torch.equal(augment(images, seed=1, epoch=2, batch=3), expected)
    assert generators() == before
    for other in ({"seed": 2}, {"epoch": 3}, {"batch": 4}):
        assert not torch.equal(
            augment(images, **{"seed": 1, "epoch": 2, "batch": 3, **other}), expected
        )


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


def test_a_module_a_list_and_a_container_give_the_same() -> None:
    """One rule: moving a module into a list, or a list into a container, changes nothing."""
    images = photos(6, 16, 20)
    for moments in ({}, {"mean": None, "std": None}, {"mean": (0.5,) * 3, "std": (0.25,) * 3}):
        results = [
            Augment(made, **moments)(images, seed=4, epoch=1)
            for module in (
                k.ColorJitter(0.4, 0.4, 0.4, 0.1),
                k.RandomAffine(15.0),
                Noise(),
                torch.nn.Identity(),
            )
            for made in (
                module,
                [module],
                (module,),
                torch.nn.Sequential(module),
                torch.nn.ModuleList([module]),
                [torch.nn.Sequential(torch.nn.Sequential(module))],
                k.ImageSequential(module),
                k.AugmentationSequential(module, data_keys=["input"]),
            )
        ]
        for first in range(0, len(results), 8):
            assert all(torch.equal(result, results[first]) for result in results[first : first + 8])
        assert torch.equal(
            as_augment(k.RandomAffine(15.0))(images, seed=4),
            Augment([k.RandomAffine(15.0)])(images, seed=4),
        )
    plain = (images.double() / 255 - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(
        IMAGENET_STD
    ).view(3, 1, 1)
    torch.testing.assert_close(
        as_augment(torch.nn.Identity())(images).double(), plain, atol=1e-5, rtol=0
    )


def test_containers_that_only_call_their_modules_are_looked_into() -> None:
    modules = [k.RandomInvert(), k.RandomGrayscale(), Noise()]
    for container in (
        torch.nn.Sequential(*modules),
        k.ImageSequential(*modules),
        k.AugmentationSequential(*modules),
        k.AugmentationSequential(*modules, data_keys=["input", "mask"]),
        k.AugmentationSequential(*modules, data_keys=None),
        torch.nn.Sequential(modules[0], k.ImageSequential(*modules[1:])),
    ):
        assert [type(stage.module) for stage in Augment(container).operations] == [
            type(module) for module in modules
        ]
    assert len(Augment(k.ImageSequential(*modules[:2], random_apply=1)).operations) == 1


def test_normalising_twice_is_refused() -> None:
    normalise = k.Normalize((0.5,) * 3, (0.5,) * 3)
    for made in (normalise, [k.RandomInvert(), normalise], k.ImageSequential(normalise)):
        with pytest.raises(ConfigError, match="Leave Normalize out, or pass mean=None, std=None"):
            Augment(made)
    images = photos(2, 8, 8)
    torch.testing.assert_close(
        Augment(normalise, mean=None, std=None)(images), images / 255 * 2 - 1
    )


class Normalize(torch.nn.Module):
    """As torchvision's, a transform of its kind."""

    def forward(self, images: Tensor) -> Tensor:
        return images * 2 - 1


class Compose(torch.nn.Module):
    """As torchvision's v2.Compose, which keeps its transforms in a list, not in a ModuleList."""

    def __init__(self, *transforms: torch.nn.Module) -> None:
        super().__init__()
        self.transforms = list(transforms)

    def forward(self, images: Tensor) -> Tensor:
        for transform in self.transforms:
            images = transform(images)
        return images


class OldCompose:
    """As torchvision's first Compose, which is no module."""

    def __init__(self, *transforms: torch.nn.Module) -> None:
        self.transforms = transforms


class Holds(torch.nn.Module):
    """A user's module, with something in an attribute."""

    def __init__(self, held: object) -> None:
        super().__init__()
        self.held = held

    def forward(self, images: Tensor) -> Tensor:
        return images


@pytest.mark.parametrize(
    "module",
    [
        Compose(k.RandomInvert(), Normalize()),
        Compose(torch.nn.Identity(), Compose(Normalize())),
        torch.nn.Sequential(k.RandomInvert(), Compose(Normalize())),
        Holds({"train": OldCompose(torch.nn.Identity(), Normalize())}),
        Holds(functools.partial(map, Normalize())),
        Holds((lambda last: lambda images: last(images))(Normalize())),
        Holds(Normalize().forward),
        torch.nn.ModuleDict({"last": Normalize()}),
    ],
)
def test_normalising_twice_is_refused_however_deep_it_lies(module: torch.nn.Module) -> None:
    with pytest.raises(
        ConfigError, match=r"contains Normalize, and Augment itself normalises.*mean=None, std=None"
    ):
        Augment(module)
    Augment(module, mean=None, std=None)


def test_normalising_twice_by_torchvision_is_refused(torchvision: ModuleType) -> None:
    v2 = importlib.import_module("torchvision.transforms.v2")
    presets = importlib.import_module("torchvision.transforms._presets")
    normalise = v2.Normalize((0.5,) * 3, (0.5,) * 3)
    once = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    assert len(Augment(once).operations) == 1
    for made in (
        v2.Compose([once, normalise]),
        v2.RandomApply([normalise]),
        v2.RandomChoice([once, normalise]),
    ):
        with pytest.raises(ConfigError, match="contains Normalize"):
            Augment(made)
    with pytest.raises(ConfigError, match="Leave ImageClassification out"):
        Augment(presets.ImageClassification(crop_size=8))
    images = photos(2, 8, 8)
    torch.testing.assert_close(
        Augment(v2.Compose([normalise]), mean=None, std=None)(images),
        images / 255 * 2 - 1,
        atol=1e-6,
        rtol=0,
    )


def test_a_transform_of_torchvision_in_a_list_of_a_module_draws_for_each_image(
    torchvision: ModuleType,
) -> None:
    v2 = importlib.import_module("torchvision.transforms.v2")
    images = photos(16, 8, 8)
    module = Compose(v2.RandomHorizontalFlip(p=0.5))
    flipped = Augment(module, mean=None, std=None)(images, seed=0, batch=0)
    mirrored = [
        torch.allclose(one, two) for one, two in zip(flipped, images.flip(3) / 255, strict=True)
    ]
    assert {*mirrored} == {True, False}, "not the whole batch alike"


def test_what_holds_itself_is_looked_through_once() -> None:
    module = Holds(None)
    module.held = [module, {"again": module}]
    Augment(module)


def test_without_normalising_a_module_hands_out_what_it_likes() -> None:
    images = photos(4, 8, 6)
    for made, expected in (
        (lambda images: images[:, :, ::2], (4, 3, 4, 6)),
        (lambda images: images.half().mean((1, 2, 3)), (4,)),
        (lambda images: torch.stack([images, images.flip(3)], 1), (4, 2, 3, 8, 6)),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            result = Augment(Returns(made), mean=None, std=None, dtype=dtype)(images)
            assert (tuple(result.shape), result.dtype) == (expected, dtype)


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
    for later in (ours, [k.RandomInvert()]):
        with pytest.raises(
            ConfigError, match="later operations of fastpipe or kornia need the same size"
        ):
            Augment([Returns(lambda images: images[:, :, ::2, ::2]), *later])(images)


def test_modules_may_change_the_size() -> None:
    images, labels = photos(4, 20, 20), torch.arange(4)
    assert Augment([k.Resize((10, 12))], dtype=torch.bfloat16)(images).shape == (4, 3, 10, 12)
    follow = [
        k.Resize((10, 12)),
        k.RandomErasing(),
        *Augment.simclr().operations,
        k.RandomCrop((8, 9)),
        k.RandomInvert(),
    ]
    augment = Augment(follow, erasing=0.5, mixup=0.2, cutmix=1.0, num_classes=4)
    assert augment(images, labels)[0].shape == (4, 3, 8, 9)
    shapes = {
        tuple(Augment(k.RandomCrop((8, 9), p=0.5))(images, batch=batch).shape[2:])
        for batch in range(8)
    }
    assert shapes == {(8, 9), (20, 20)}  # kornia's p of a crop is for the batch
    augment = Augment([k.RandomCrop((8, 9), p=0.5), k.RandomInvert()])
    with pytest.raises(ConfigError, match="need the same size"):
        [augment(images, batch=batch) for batch in range(8)]


def test_a_module_that_returns_no_batch_is_named() -> None:
    mistakes: list[tuple[Callable[[Tensor], Any], str]] = [
        (lambda images: None, "Returns returned NoneType"),
        (lambda images: (images, 1), "Returns returned tuple"),
        (lambda images: images[:2], "Returns returned shape (2, 3, 8, 6)"),
        (lambda images: images.mean(), "Returns returned shape ()"),
        (
            lambda images: images.to(torch.uint8),
            "Returns returned torch.uint8 of shape (4, 3, 8, 6)",
        ),
    ]
    for make, message in mistakes:
        for augment in (
            Augment([torch.nn.Identity(), Returns(make)]),
            Augment(Returns(make), mean=None, std=None),
        ):
            with pytest.raises(ConfigError, match=re.escape(message)) as raised:
                augment(photos(4, 8, 6))
            assert "4 here" in str(raised.value)


def test_what_cannot_be_normalised_or_mixed_is_refused() -> None:
    images, labels = photos(4, 8, 6), torch.arange(4)
    with pytest.raises(ConfigError, match=re.escape("the operations returned shape (4, 1, 8, 6)")):
        Augment([Returns(lambda images: images[:, :1])])(images)
    halved = Returns(lambda images: images[:, :, ::2, ::2])
    with pytest.raises(
        ConfigError, match=re.escape("from (8, 6) to (4, 3); erasing, mixup, cutmix")
    ):
        Augment([halved], mixup=1.0, num_classes=4)(images, labels)
    with pytest.raises(ConfigError, match=re.escape("size=(4, 3)")):
        Augment([halved], erasing=0.5)(images)


def test_kornias_samplers_stay_on_the_cpu() -> None:
    """Moved along with a module, as `module.to("cuda")` does, many would copy their draws back and wait."""
    images = photos(3, 8, 8)
    for make in (lambda: k.RandomAffine(15.0), lambda: k.RandomHorizontalFlip()):
        moved, own = make().to("meta"), make()
        assert moved.device == torch.device("meta")
        augment = Augment([moved])
        assert torch.equal(augment(images), Augment([own])(images))
        assert moved.device == torch.device("cpu")
    module = k.RandomPlanckianJitter(p=1.0)
    Augment(module).to("meta")
    assert module.pl.device == torch.device("cpu")


class Weighted(torch.nn.Module):
    """Has a weight, a buffer and an augmentation of kornia with both."""

    def __init__(self) -> None:
        super().__init__()
        self.change = torch.nn.Conv2d(3, 3, 1)
        self.jitter = k.RandomPlanckianJitter(p=1.0)
        self.register_buffer("shift", torch.ones(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return self.jitter(self.change(images)) + self.shift


def launched(augment: Augment, count: int = 4, size: tuple[int, int] = (32, 40)) -> Tensor:
    """The result for images without data, on the meta device: what asks for a value there raises."""
    plan = augment.plan(np.arange(count), size, seed=0, epoch=0, batch=0)
    tensors = tensors_of(plan, "meta")
    labels = torch.zeros(count, dtype=torch.int64, device="meta")
    return augment.carry_out(
        torch.empty(count, 3, *size, dtype=torch.uint8, device="meta"), labels, plan, tensors
    )[0]


def test_weights_and_buffers_are_moved_to_the_device_of_the_images() -> None:
    module = Weighted()
    assert launched(Augment(module)).device == torch.device("meta")
    assert {module.change.weight.device, module.shift.device} == {torch.device("meta")}
    assert module.jitter.pl.device == torch.device("cpu")  # kornia's own code copies it


def test_small_parameters_come_in_the_loaders_one_copy() -> None:
    for name in (
        "RandomAffine",
        "RandomBrightness",
        "RandomGrayscale",
        "RandomErasing",
        "RandomSolarize",
    ):
        augment = Augment([CASES[name]()])
        plan = augment.plan(np.arange(4), (32, 40), **KEYS)
        with simulated() as gpu:
            images, labels = (
                photos(4, 32, 40).to("cuda:0"),
                torch.zeros(4, dtype=torch.int64, device="cuda:0"),
            )
            tensors = tensors_of(plan, "cuda:0")
            gpu.copies.clear()
            augment.carry_out(images, labels, plan, tensors)
            assert gpu.copies == [], name


@pytest.mark.parametrize(
    "name",
    [
        "RandomPlasmaShadow",
        "RandomGaussianNoise",
        "RandomElasticTransform",
        "RandomSaltAndPepperNoise",
    ],
)
def test_whole_maps_are_made_on_the_device(name: str) -> None:
    augment = Augment([CASES[name]()])
    size = (160, 160)
    made: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            made.extend(
                leaf.numel()
                for leaf in tree_leaves(result)
                if isinstance(leaf, Tensor) and leaf.is_cpu
            )
            return result

    plan = augment.plan(np.arange(6), size, **KEYS)
    with simulated() as gpu:
        images, labels = (
            photos(6, *size).to("cuda:0"),
            torch.zeros(6, dtype=torch.int64, device="cuda:0"),
        )
        tensors = tensors_of(plan, "cuda:0")
        gpu.waits.clear()
        with Sizes():
            augment.carry_out(images, labels, plan, tensors)
        assert gpu.waits == []
    assert max(made, default=0) <= 6 * 4


def test_plans_survive_the_loaders_one_copy_and_a_default_device() -> None:
    """A program may have called torch.set_default_device("cuda")."""
    for name, make in CASES.items():
        arrays = Augment([make()], mean=None, std=None).plan(np.arange(6), (32, 40), **KEYS).arrays
        buffer = pack(arrays, lambda shape: np.zeros(shape, dtype=np.uint8))
        copied = unpack(torch.from_numpy(buffer), arrays)
        again = Augment([make()], mean=None, std=None)
        with torch.device("meta"):
            others = again.plan(np.arange(6), (32, 40), **KEYS).arrays
        assert others.keys() == arrays.keys(), name
        for entry, array in arrays.items():
            assert np.array_equal(copied[entry].numpy(), array), name
            assert np.array_equal(others[entry], array), name


def test_kornias_policies_point_to_the_presets_once(caplog: pytest.LogCaptureFixture) -> None:
    kornia_modules.warn_slow_policy.cache_clear()
    for _ in range(2):
        Augment(k.auto.TrivialAugment())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "TrivialAugment chooses its operations once a call" in said[0]
    assert "fastpipe.Augment.randaugment()" in said[0]


def test_a_policy_of_kornia_applies_several_operations_in_a_batch() -> None:
    augment = Augment(k.auto.TrivialAugment())
    plan = augment.plan(np.arange(64), (32, 32), seed=0, epoch=0, batch=0)
    chosen = [
        tuple(leaf for leaf in call.leaves if isinstance(leaf, str)) for call in plan.hosts[0]
    ]
    assert len(chosen) == 16
    assert len(set(chosen)) > 6


def test_transforms_of_torchvision_draw_for_each_sample(torchvision: ModuleType) -> None:
    """They draw once a call: called with the batch, they would mirror all images or none."""
    from torchvision.transforms import v2

    images, samples = photos(32, 12, 16), np.arange(100, 132)
    plain = Augment(mean=None, std=None)(images)
    few = np.array([31, 4, 17, 0])
    for module in (
        v2.RandomHorizontalFlip(),
        torchvision.transforms.RandomHorizontalFlip(),
        v2.Compose([v2.RandomHorizontalFlip()]),
        torch.nn.Sequential(v2.RandomHorizontalFlip()),
    ):
        augment = Augment([module], mean=None, std=None)
        result = augment(images, seed=3, samples=samples)
        assert 8 <= 32 - sum(map(torch.equal, result, plain)) <= 24
        assert torch.equal(augment(images[few], seed=3, samples=samples[few]), result[few]), (
            "the same in any batch"
        )


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


def test_it_is_moved_and_cast_as_any_module() -> None:
    """Its base class must not take a name of nn.Module's for itself."""
    inner = torch.nn.Conv2d(3, 3, 1)
    augment = Augment([Returns(inner)], mean=None, std=None)
    assert augment.to(torch.float64).eval() is augment
    assert inner.weight.dtype == torch.float64
    assert not inner.training
    assert "weight" in next(iter(augment.state_dict()))
