"""Batches through a loader with augment=: those that the same Augment makes by itself, reproducible and resumable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets.field_columns import remove_labels

import fastpipe
from fastpipe.errors import ConfigError

BATCH = 5
MIXED = {"erasing": 0.5, "mixup": 0.2, "cutmix": 1.0, "label_smoothing": 0.1}


def loader_of(dataset: Path, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(
        dataset, BATCH, **{"size": 16, "num_workers": 2, "drop_last": False, **options}
    )


class Noise(torch.nn.Module):
    """Draws from torch's global generator, as other people's augmentations do."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + torch.rand(len(images), 1, 1, 1)


def test_batches_are_what_the_augmentation_makes_of_them(textured: Path) -> None:
    augment = fastpipe.Augment.imagenet(**MIXED)
    with (
        loader_of(textured, seed=3, train=False) as plain,
        loader_of(textured, seed=3, train=False, augment=augment) as ours,
    ):
        first = 0
        for number, ((raw, classes), (images, labels)) in enumerate(zip(plain, ours, strict=True)):
            samples = np.arange(first, first + len(raw))
            first += len(raw)
            alone = fastpipe.Augment.imagenet(**MIXED, num_classes=2)
            expected, soft = alone(raw, classes, seed=3, epoch=0, batch=number, samples=samples)
            torch.testing.assert_close(images, expected)
            torch.testing.assert_close(labels, soft)
            assert images.is_contiguous(memory_format=torch.channels_last)
            assert labels.shape == (len(raw), 2)


@pytest.mark.parametrize(
    "augment", [fastpipe.Augment.imagenet(**MIXED), fastpipe.Augment([Noise()]), Noise()]
)
def test_resuming_and_noise_change_nothing(textured: Path, augment: torch.nn.Module) -> None:
    with loader_of(textured, augment=augment) as loader:
        expected = [images for _ in range(2) for images, _ in loader]
    torch.manual_seed(99)
    state = torch.random.get_rng_state()
    with loader_of(textured, augment=augment, num_workers=1, prefetch_factor=1) as loader:
        got = []
        for _ in range(2):
            for images, _ in loader:
                got.append(images)
                assert torch.equal(torch.random.get_rng_state(), state)
    assert len(got) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))
    assert not torch.equal(got[0], got[len(got) // 2])  # another epoch is another draw


def test_stop_iteration_of_an_augmentation_does_not_end_the_epoch_as_if_all_were_done(
    textured: Path,
) -> None:
    class Faulty(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return next(iter(()))

    with (
        loader_of(textured, augment=Faulty()) as loader,
        pytest.raises(
            RuntimeError, match=r"a module of augment= raised StopIteration, .* Fix that module"
        ),
    ):
        list(loader)


def test_an_augmentation_that_raises_ends_the_epoch_only(textured: Path) -> None:
    class Fails(torch.nn.Module):
        calls = 0

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            Fails.calls += 1
            if Fails.calls == 2:
                raise ArithmeticError("no luck")
            return images

    with loader_of(textured, augment=Fails()) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(ArithmeticError, match="no luck"):
            next(batches)
        with pytest.raises(fastpipe.EngineError, match="an error ended this epoch"):
            next(batches)
        assert len(list(loader)) == len(loader)


def test_time_spent_augmenting_is_counted(textured: Path) -> None:
    with loader_of(textured, augment=fastpipe.Augment.imagenet()) as loader:
        list(loader)
        assert 0 < loader.stats().augment_s < loader.stats().load_s


def test_what_is_no_augmentation_is_refused(textured: Path) -> None:
    for augment in ("simclr", 3, [3], lambda images: images):
        with pytest.raises(ConfigError, match=r"[Aa]ugment: .*expected"):
            loader_of(textured, augment=augment)


def test_soft_labels_need_labels(textured: Path, copied: Callable[[Path], Path]) -> None:
    data = copied(textured)
    remove_labels(data, slice(3, 23, 7))
    for augment in (
        fastpipe.Augment.imagenet(mixup=0.2),
        fastpipe.Augment.imagenet(label_smoothing=0.1),
    ):
        with pytest.raises(
            ConfigError,
            match=r"soft labels.* samples without labels \(3 of 23 of .*Leave them out with data.select",
        ):
            loader_of(data, augment=augment)
    with loader_of(data, augment=fastpipe.Augment.imagenet()) as loader:
        assert next(iter(loader))[0].dtype == torch.float32
