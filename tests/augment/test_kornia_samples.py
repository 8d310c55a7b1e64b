"""kornia's augmentations in a loader: a sample gets the same parameters in any batch, on any rank, and when resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import photos
from support.batches.kornia_cases import CASES, FIXED, MIXING, NOT_MADE, REFUSED, all_2d, k
from torch import Tensor

import fastpipe
from fastpipe import Augment
from fastpipe.augment import kornia_operation

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = (32, 40)
Rows = dict[bytes, Tensor]


def batches(dataset: Path, batch_size: int, *, augment: Any = None, first: int = 0, **options: Any) -> list[Tensor]:
    """The images of epoch 1, from batch `first` on; resumed there, if it is not the first."""
    made = fastpipe.loader(
        dataset, batch_size, size=SIZE, seed=5, num_workers=1, drop_last=False, augment=augment, **options
    )
    with made as loader:
        loader.set_epoch(1)
        if first:
            state = loader.state_dict()
            loader.load_state_dict({**state, "batches": first})
        return [images.clone() for images, _ in loader]


LAYOUTS: dict[str, list[tuple[int, dict[str, Any]]]] = {
    "7": [(7, {})],
    "5": [(5, {})],
    "resumed": [(5, {"first": 2})],
    "2 ranks": [(5, {"rank": rank, "world_size": 2}) for rank in range(2)],
    "1": [(1, {"first": 15})],
}


def rows(dataset: Path, layout: str, augment: Any = None) -> list[Tensor]:
    return [
        row
        for size, options in LAYOUTS[layout]
        for batch in batches(dataset, size, augment=augment, **options)
        for row in batch
    ]


@pytest.fixture(scope="module")
def samples(textured: Path) -> dict[str, list[bytes]]:
    """Which sample each row of a layout is of: its pixels before the augmentation."""
    found = {layout: [row.numpy().tobytes() for row in rows(textured, layout)] for layout in LAYOUTS}
    # The second rank's last batch repeats samples.
    assert {layout: len(of) for layout, of in found.items()} == {"7": 23, "5": 23, "resumed": 13, "2 ranks": 24, "1": 8}
    assert all(set(of) <= set(found["7"]) for of in found.values())
    return found


def test_every_augmentation_is_in_the_table() -> None:
    assert (
        all_2d()
        == {name for name in CASES if hasattr(k, name) and "Sequential" not in name} | MIXING | REFUSED | NOT_MADE
    )


@pytest.mark.parametrize("name", CASES)
def test_a_sample_gets_the_same_parameters_anywhere(name: str, textured: Path, samples: dict[str, list[bytes]]) -> None:
    augment = Augment([CASES[name]()], mean=None, std=None)
    seen: Rows = {}
    for layout in LAYOUTS:
        made = rows(textured, layout, augment)
        for sample, row in zip(samples[layout], made, strict=True):
            assert torch.equal(seen.setdefault(sample, row), row), f"{layout}: another result"
    assert len(seen) == 23


@pytest.mark.parametrize("name", CASES)
def test_samples_and_epochs_get_parameters_of_their_own(name: str) -> None:
    augment = Augment(CASES[name](), mean=None, std=None)
    images = photos(1, *SIZE).expand(40, 3, *SIZE)
    first, second = (augment(images, seed=1, epoch=epoch, batch=0) for epoch in (0, 1))
    kinds = len({tuple(row.flatten().tolist()) for row in first})
    assert (kinds == 1) == (name in FIXED)
    assert torch.equal(first, second) == (name in FIXED)


@pytest.mark.parametrize("name", CASES)
def test_it_changes_as_many_images_as_kornia_itself(name: str) -> None:
    module = CASES[name]()
    p = getattr(module, "p", None)
    if p is None or name == "RandomPlasmaShadow":  # whose shadow may be empty
        pytest.skip("no probability that can be seen")
    plan = Augment(module, mean=None, std=None).plan(np.arange(600), SIZE, seed=2, epoch=0, batch=0)
    changed = sum(600 if call.rows is None else len(call.rows) for call in plan.hosts[0])
    assert abs(changed / 600 - p) < 0.06


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
    assert len(orders) == kornia_operation.GROUPS + 1  # and once to look at its results
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
    for name in CASES:
        augment = Augment(CASES[name](), mean=None, std=None)
        plan = augment.plan(np.arange(64), (224, 224), seed=0, epoch=0, batch=0)
        assert sum(array.nbytes for array in plan.arrays.values()) <= 64 * 400, name


def test_generators_are_never_drawn_from() -> None:
    before = torch.get_rng_state()
    for name in CASES:
        Augment(CASES[name](), mean=None, std=None)(photos(3, *SIZE))
    assert torch.equal(torch.get_rng_state(), before)


def test_how_a_batch_is_cut_on_a_cpu_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    images = photos(11, *SIZE)
    expected = {name: Augment(make(), mean=None, std=None)(images, batch=1) for name, make in CASES.items()}
    monkeypatch.setattr(kornia_operation, "CPU_BYTES", 4 * images[0].numel() * 3)
    calls: list[int] = []
    brightness = k.RandomBrightness((0.5, 1.5))
    apply = brightness.apply_transform

    def note(images: Tensor, *rest: Any, **more: Any) -> Tensor:
        calls.append(len(images))
        return apply(images, *rest, **more)

    monkeypatch.setattr(brightness, "apply_transform", note)
    for name, make in CASES.items():
        module = brightness if name == "RandomBrightness" else make()
        assert torch.equal(Augment(module, mean=None, std=None)(images, batch=1), expected[name]), name
    assert calls == [2, 3, 4, 4]  # two images are tried first
