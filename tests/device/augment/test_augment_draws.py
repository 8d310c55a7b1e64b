"""Tests of what an augmentation depends on: seed, epoch, batch and sample, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches.augment_batches import photos
from torch import Tensor

from fastpipe import Augment

PRESETS: dict[str, Callable[..., Augment]] = {
    "imagenet": Augment.imagenet,
    "simclr": Augment.simclr,
    "randaugment": Augment.randaugment,
    "trivial_augment": Augment.trivial_augment,
}
MIXED: dict[str, Any] = {
    "erasing": 0.4,
    "mixup": 0.3,
    "cutmix": 1.0,
    "label_smoothing": 0.1,
    "num_classes": 50,
}
presets = st.sampled_from(list(PRESETS))


class Noise(torch.nn.Module):
    """Draws from every generator that other people's modules draw from."""

    def forward(self, images: Tensor) -> Tensor:
        shift = random.random() + np.random.random()
        return images + torch.randn(images.shape) + shift


def generators() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state()
    return (
        *torch.get_rng_state().tolist(),
        random.getstate(),
        name,
        *np.asarray(keys).tolist(),
        *rest,
    )


@settings(max_examples=25)
@given(
    presets,
    st.integers(0, 2**64 - 1),
    st.tuples(st.integers(1, 33), st.integers(1, 33)),
    st.integers(1, 9),
    st.data(),
)
def test_a_sample_gets_the_same_pixels_in_any_company(
    preset: str, seed: int, size: tuple[int, int], count: int, data: st.DataObject
) -> None:
    augment = PRESETS[preset](erasing=0.5)
    images = photos(count, *size)
    samples = np.array(
        data.draw(st.lists(st.integers(0, 2**60), min_size=count, max_size=count, unique=True))
    )
    together = augment(images, seed=seed, samples=samples)
    some = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=count))
    assert torch.equal(augment(images[some], seed=seed, samples=samples[some]), together[some])


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_draws_give_the_same_bytes_whatever_happened_to_global_generators(
    preset: str,
) -> None:
    images, labels = photos(12, 30, 21), torch.arange(12)
    augment = PRESETS[preset](**MIXED)
    expected = augment(images, labels, seed=4, epoch=3, batch=2)
    with torch.random.fork_rng():
        torch.manual_seed(123)
        torch.rand(7)
        before = generators()
        again = PRESETS[preset](**MIXED)(images, labels, seed=4, epoch=3, batch=2)
        assert generators() == before
    assert torch.equal(again[0], expected[0])
    assert torch.equal(again[1], expected[1])


@pytest.mark.parametrize("preset", ["simclr", "randaugment", "trivial_augment"])
def test_another_seed_epoch_or_batch_gives_others(preset: str) -> None:
    images, augment = photos(12, 20, 20), PRESETS[preset]()
    first = augment(images, batch=0)
    for draws in ({"seed": 1, "batch": 0}, {"epoch": 1, "batch": 0}, {"batch": 1}):
        others = augment(images, **draws)
        assert sum(map(torch.equal, first, others)) < 4, draws


def test_mixing_and_erasing_change_with_the_epoch() -> None:
    images, labels = photos(12, 20, 20), torch.arange(12)
    augment = Augment.imagenet(**MIXED)
    first, second = (augment(images, labels, epoch=epoch) for epoch in (0, 1))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])


def test_images_of_a_batch_get_parameters_of_their_own() -> None:
    image = photos(1, 24, 24)
    for preset in ("simclr", "randaugment", "trivial_augment"):
        results = PRESETS[preset]()(image.expand(30, 3, 24, 24))
        assert len({tuple(result.flatten().tolist()) for result in results}) > 12


def test_planning_calls_nothing_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    augment = Augment.simclr(**MIXED)
    before = torch.get_rng_state()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise AssertionError(f"plan called {function}")

    with Watch():
        plan = augment.plan(np.arange(256), (224, 224), seed=0, epoch=0, batch=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert {array.dtype.name for array in plan.arrays.values()} <= {"int64", "float32"}
    assert all(array.flags.c_contiguous for array in plan.arrays.values())
    assert sum(array.nbytes for array in plan.arrays.values()) < 100 * 256
