"""kornia's augmentations: a sample gets the same parameters in any batch, on any rank, and when resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import photos
from support.batches.kornia_cases import CASES, FIXED, MIXING, NOT_MADE, REFUSED, all_2d, k
from support.batches.layouts import SIZE, assert_same_in_all_layouts, samples_of_rows
from torch import Tensor

from fastpipe import Augment
from fastpipe.device.augment import kornia_calls, kornia_operation

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT = 24


def copies() -> Tensor:
    """One image, many times."""
    return photos(1, *SIZE).expand(COUNT, 3, *SIZE)


@pytest.fixture(scope="module")
def results() -> dict[str, Tensor]:
    """What each augmentation makes of the copies in epoch 0. torch's own generator is never drawn from."""
    before = torch.get_rng_state()
    made = {
        name: Augment(make(), mean=None, std=None)(copies(), seed=1, batch=0)
        for name, make in CASES.items()
    }
    assert torch.equal(torch.get_rng_state(), before)
    return made


def test_every_augmentation_is_in_the_table() -> None:
    assert (
        all_2d()
        == {name for name in CASES if hasattr(k, name) and "Sequential" not in name}
        | MIXING
        | REFUSED
        | NOT_MADE
    )


def test_a_sample_gets_the_same_parameters_in_any_company(results: dict[str, Tensor]) -> None:
    some = np.array([17, 2, 8])
    for name, make in CASES.items():
        few = Augment(make(), mean=None, std=None)(copies()[:3], seed=1, batch=4, samples=some)
        assert torch.equal(few, results[name][some]), name


def test_a_sample_gets_the_same_parameters_in_any_layout_of_a_loader(textured: Path) -> None:
    augment = [k.ColorJitter(0.4, 0.4, 0.4, 0.1), k.RandomPlasmaShadow(), k.RandomAffine(15.0)]
    assert_same_in_all_layouts(textured, samples_of_rows(textured), augment)


def test_samples_and_epochs_get_parameters_of_their_own(results: dict[str, Tensor]) -> None:
    for name, make in CASES.items():
        first = results[name]
        second = Augment(make(), mean=None, std=None)(copies(), seed=1, epoch=1, batch=0)
        kinds = len({tuple(row.flatten().tolist()) for row in first})
        assert (kinds == 1) == (name in FIXED), name
        assert torch.equal(first, second) == (name in FIXED), name


def test_it_changes_as_many_images_as_kornia_itself() -> None:
    compared = 0
    for name, make in CASES.items():
        module = make()
        p = getattr(module, "p", None)
        if p is None or name.startswith(
            "RandomPlasma"
        ):  # whose shadow may be empty, and which draw for long
            continue
        plan = Augment(module, mean=None, std=None).plan(
            np.arange(600), SIZE, seed=2, epoch=0, batch=0
        )
        changed = sum(600 if call.rows is None else len(call.rows) for call in plan.hosts[0])
        assert abs(changed / 600 - p) < 0.06, name
        compared += 1
    assert compared > 50


def test_the_order_of_colour_jitter_belongs_to_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[list[int]] = []
    module = k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0)
    jitter = module.apply_transform

    def note(images: Tensor, params: dict[str, Tensor], *rest: Any, **more: Any) -> Tensor:
        orders.append(params["order"].tolist())
        return jitter(images, params, *rest, **more)

    monkeypatch.setattr(module, "apply_transform", note)
    augment = Augment(module)
    augment(photos(40, 16, 16), seed=0)
    assert len(orders) == kornia_calls.GROUPS + 1  # and once to look at its results
    assert orders[1] != orders[2]


def test_a_module_that_is_to_be_the_same_on_a_batch_is() -> None:
    images = photos(1, 16, 16).expand(12, 3, 16, 16)
    augment = Augment(k.ColorJitter(0.4, 0.4, 0.4, 0.1, same_on_batch=True))
    first, second = augment(images, batch=0), augment(images, batch=1)
    assert torch.equal(first[:1].expand_as(first), first)
    assert torch.equal(augment(images, batch=0), first)
    assert not torch.equal(first, second)


def test_a_users_module_with_kornias_inside_draws_by_sample() -> None:
    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.change = torch.nn.Sequential(k.RandomAffine(15.0), k.RandomGrayscale(p=0.5))

        def forward(self, images: Tensor) -> Tensor:
            return self.change(images) + torch.rand(len(images), 1, 1, 1) + torch.randn_like(images)

    augment, images, numbers = Augment(Mine()), photos(9, 16, 16), np.arange(9)
    result = augment(images, seed=1, batch=0, samples=numbers)
    some = np.array([4, 1, 7])
    assert torch.equal(augment(images[some], seed=1, batch=3, samples=numbers[some]), result[some])
    assert not torch.equal(augment(images, seed=2, batch=0, samples=numbers), result)


def test_plans_are_small_also_where_kornia_draws_whole_maps() -> None:
    for name, make in CASES.items():
        augment = Augment(make(), mean=None, std=None)
        plan = augment.plan(np.arange(8), (224, 224), seed=0, epoch=0, batch=0)
        assert sum(array.nbytes for array in plan.arrays.values()) <= 8 * 400, name


def test_how_a_batch_is_cut_on_a_cpu_makes_no_difference(
    results: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = copies()[:11]
    monkeypatch.setattr(kornia_operation, "CPU_BYTES", 4 * images[0].numel() * 3)
    monkeypatch.setattr(kornia_operation, "FORMULA_BYTES", 4 * images[0].numel() * 3)
    calls: list[int] = []
    brightness = k.RandomBrightness((0.5, 1.5))
    apply = brightness.apply_transform

    def note(images: Tensor, *rest: Any, **more: Any) -> Tensor:
        calls.append(len(images))
        return apply(images, *rest, **more)

    monkeypatch.setattr(brightness, "apply_transform", note)
    for name in CASES:
        module = brightness if name == "RandomBrightness" else CASES[name]()
        result = Augment(module, mean=None, std=None)(images, seed=1, batch=0)
        assert torch.equal(result, results[name][:11]), name
    assert calls == [2, 3, 4, 4]  # two images are tried first


def test_channels_are_dropped_however_a_batch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    augment = Augment(k.RandomChannelDropout(p=1.0), mean=None, std=None)
    images = photos(11, *SIZE)
    expected = augment(images, batch=0)
    monkeypatch.setattr(kornia_operation, "CPU_BYTES", 4 * images[0].numel() * 3)
    assert torch.equal(augment(images, batch=0), expected)
