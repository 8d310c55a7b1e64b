"""kornia's mixing modules: images as when kornia is called directly, and soft labels that follow the pixels."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import photos
from support.batches.kornia_cases import MIXING_CASES, k
from torch import Tensor

import fastpipe
from fastpipe import Augment, ConfigError

pytestmark = pytest.mark.usefixtures("one_thread")

CLASSES = 6
SIZE = (32, 48)


def cutmix(**options: Any) -> torch.nn.Module:
    return k.RandomCutMixV2(use_correct_lambda=True, **options)


def planned(
    module: torch.nn.Module, batch: int, count: int = 8
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Images and labels of a batch, and the parameters that kornia drew for it."""
    augment = Augment(module, mean=None, std=None, num_classes=CLASSES)
    images, labels = photos(count, *SIZE), torch.arange(count) % CLASSES
    mixed, soft = augment(images, labels, seed=3, epoch=0, batch=batch)
    plan = augment.plan(np.arange(count) + batch * count, SIZE, seed=3, epoch=0, batch=batch)
    return mixed, soft, plan.hosts[0][1]


def labels_of_kornia(
    module: torch.nn.Module, parameters: dict[str, Tensor], is_cutmix: bool
) -> Tensor:
    """Soft labels from kornia's own: two labels a row, and lambda, the share of the second in mixup, of the first in
    cutmix.
    """
    images, labels = torch.zeros(8, 3, *SIZE), torch.arange(8) % CLASSES
    hot = torch.eye(CLASSES)
    if not parameters["batch_prob"].any():
        return hot[labels]
    _, theirs = module(images, labels, params=parameters, data_keys=["input", "class"])
    first, second, share = theirs.reshape(8, 3).unbind(1)
    share = (1 - share if is_cutmix else share)[:, None]
    return (1 - share) * hot[first.long()] + share * hot[second.long()]


@pytest.mark.parametrize("name", MIXING_CASES)
def test_images_and_labels_are_those_of_the_module_called_directly(name: str) -> None:
    plain = Augment(mean=None, std=None)(photos(8, *SIZE))
    changed = 0
    for batch in range(6):
        module = MIXING_CASES[name]()
        mixed, soft, parameters = planned(module, batch)
        torch.testing.assert_close(mixed, module(plain, params=parameters), atol=1e-6, rtol=0)
        changed += not torch.equal(mixed, plain)
        if name.startswith(("RandomMixUp", "RandomCutMix")):  # kornia gives no labels of the others
            expected = labels_of_kornia(module, parameters, is_cutmix="CutMix" in name)
            torch.testing.assert_close(soft, expected)
    assert changed >= 2


@pytest.mark.parametrize("name", MIXING_CASES)
def test_each_label_has_the_share_of_its_pixels(name: str) -> None:
    """Images of one brightness each, which stands for the class: the mean of a mixed image is that of its label."""
    module = MIXING_CASES[name]()
    augment = Augment(module, mean=None, std=None, num_classes=8)
    labels = torch.arange(8)
    images = (labels * 30).to(torch.uint8)[:, None, None, None].expand(8, 3, *SIZE)
    for batch in range(4):
        mixed, soft = augment(images, labels, seed=1, epoch=0, batch=batch)
        torch.testing.assert_close(soft.sum(1), torch.ones(8))
        expected = soft @ (labels * 30 / 255)
        torch.testing.assert_close(mixed.mean((1, 2, 3)), expected, atol=2e-3, rtol=0)


def test_in_a_loader_labels_become_soft_and_the_number_of_classes_is_the_datasets(
    flat: Path,
) -> None:
    with fastpipe.loader(
        flat, 8, size=32, num_workers=1, augment=[k.RandomGrayscale(), k.RandomMixUpV2()]
    ) as loader:
        for _, labels in loader:
            assert labels.shape == (8, 3)
            torch.testing.assert_close(labels.sum(1), torch.ones(8))
            assert ((labels > 0) & (labels < 1)).any()


def test_it_goes_with_our_own_mixing_and_smoothing() -> None:
    labels = torch.arange(8) % CLASSES
    augment = Augment(
        [cutmix(), k.RandomMixUpV2()], mixup=0.5, label_smoothing=0.1, num_classes=CLASSES
    )
    _, soft = augment(photos(8, *SIZE), labels, seed=1)
    torch.testing.assert_close(soft.sum(1), torch.ones(8))
    assert soft.min() >= 0.1 / CLASSES - 1e-6
    assert ((soft > 0.02).sum(1) > 2).any()
    with pytest.raises(ConfigError, match="mixing and label_smoothing need labels"):
        Augment(cutmix(), num_classes=3)(photos(8, *SIZE))
    with pytest.raises(ConfigError, match="soft labels need the number of classes"):
        Augment(cutmix())(photos(8, *SIZE), labels)


def test_mixing_inside_a_container_is_found() -> None:
    labels = torch.arange(8) % CLASSES
    container = k.AugmentationSequential(k.RandomInvert(), k.RandomMixUpV2(), data_keys=["input"])
    one, other = (
        Augment(modules, num_classes=CLASSES)(photos(8, *SIZE), labels, seed=2)
        for modules in (container, list(container.children()))
    )
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


class Mine(torch.nn.Module):
    def __init__(self, inside: torch.nn.Module) -> None:
        super().__init__()
        self.inside = inside


def test_what_labels_cannot_follow_is_refused_by_name() -> None:
    class Own(k.RandomMixUpV2):  # type: ignore[misc]
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kornia's, about the labels of its older cutmix
        several = k.RandomCutMixV2(num_mix=2)
    for module, said in (
        (
            k.RandomTransplantation(),
            "RandomTransplantation mixes images, and fastpipe does not know how",
        ),
        (Own(), "Own mixes images, and fastpipe does not know how"),
        (several, "RandomCutMixV2(num_mix=2): the boxes of several mixes overlap"),
        (
            Mine(k.RandomMixUpV2()),
            "Mine contains RandomMixUpV2, which mixes images; labels would stay as they are",
        ),
        (
            k.ImageSequential(k.RandomMixUpV2(), k.RandomInvert(), random_apply=1),
            "ImageSequential contains RandomMixUpV2, which mixes images",
        ),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            Augment(module)
    for module in (k.RandomMosaic(output_size=(16, 16)), k.RandomMosaic(mosaic_grid=(1, 4))):
        with pytest.raises(
            ConfigError, match="the labels' shares are known only for windows as large as an image"
        ):
            Augment(module, num_classes=2)(photos(4, *SIZE), torch.zeros(4, dtype=torch.int64))


def test_a_jigsaw_moves_parts_within_an_image_and_leaves_labels_alone() -> None:
    images, labels = photos(8, 32, 32), torch.arange(8)
    moved, after = Augment(k.RandomJigsaw((2, 2), p=1.0), mean=None, std=None)(
        images, labels, seed=1
    )
    assert torch.equal(after, labels)
    plain = Augment(mean=None, std=None)(images)
    for one, other in zip(moved, plain, strict=True):
        assert torch.equal(one.flatten(1).sort(1).values, other.flatten(1).sort(1).values)
        assert not torch.equal(one, other)
