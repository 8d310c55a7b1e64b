"""Loaders for evaluation that are used as hardly is meant: each is named in the log."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import kornia.augmentation
import numpy as np
import pytest
import torch
from support.pictures.drawn import FLAT_IMAGES
from support.programs.habits import Call, evaluate, loader_of, train

import fastpipe

pytestmark = pytest.mark.usefixtures("warned_anew")


@pytest.mark.parametrize("name", ["val", "test", "validation"])
def test_data_for_evaluation_that_are_read_as_for_training(
    flat: Path, tmp_path: Path, log: pytest.LogCaptureFixture, name: str
) -> None:
    data = shutil.copytree(flat, tmp_path / name)
    loader_of(data, train=False).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(data).close()
    assert log.text.count("is read as for training: random crops") == 1
    assert "fastpipe.loader(..., train=False)" in log.text


def test_data_for_evaluation_that_are_joined_with_others(
    flat: Path, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    val, test = (shutil.copytree(flat, tmp_path / name) for name in ("val", "test"))
    loader_of(fastpipe.concat(flat, val)).close()
    loader_of(fastpipe.mix({val: 0.5, flat: 0.5})).close()
    assert log.text == ""
    loader_of(fastpipe.concat(val, test)).close()
    assert "is read as for training: random crops" in log.text


@pytest.mark.parametrize(
    "augment",
    [
        fastpipe.Augment.randaugment(),
        fastpipe.Augment.imagenet(mixup=0.2),
        fastpipe.Augment(erasing=0.25),
        kornia.augmentation.RandomHorizontalFlip(),
        [kornia.augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1)],
    ],
)
def test_an_evaluation_with_random_augmentation(
    flat: Path, log: pytest.LogCaptureFixture, augment: Any
) -> None:
    loader_of(flat, train=False, augment=augment).close()
    assert log.text.count("train=False, and augment= changes images at random") == 1


def test_an_evaluation_with_random_crops(flat: Path, log: pytest.LogCaptureFixture) -> None:
    views = [fastpipe.View(), fastpipe.View(hflip=1.0)]
    loader_of(flat, train=False, views=views, crop=fastpipe.RandomResizedCrop()).close()
    loader_of(flat, train=False, shuffle=True, crop=fastpipe.RandomResizedCrop()).close()
    loader_of(flat, train=False, hflip=1.0, augment=Call(torch.clone)).close()
    assert log.text == ""
    for _ in range(2):
        crop = fastpipe.RandomResizedCrop()
        loader_of(flat, train=False, hflip=True, crop=crop).close()
    words = "train=False, and crop= and hflip= change images at random"
    assert log.text.count(words) == 1
    assert "Leave crop= and hflip= out" in log.text


def test_an_evaluation_of_a_mixture(flat: Path, log: pytest.LogCaptureFixture) -> None:
    """Its epoch ends with the first of the datasets."""
    data = fastpipe.open(flat)
    first, second = data.select(range(30)), data.select(range(30, FLAT_IMAGES))
    mixed = fastpipe.mix({first: 1, second: 1})
    loader_of(mixed, epoch_size="smallest").close()
    loader_of(mixed, train=False, epoch_size=20).close()
    loader_of(fastpipe.concat(first, second), train=False).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(mixed, train=False).close()
    words = f"an epoch has 12 rows by the weights, and .* has {FLAT_IMAGES} samples"
    assert len(re.findall(words, log.text)) == 1
    assert "fastpipe.concat(...) of the same datasets" in log.text


def test_an_evaluation_that_drops_the_last_samples(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    fastpipe.loader(flat, FLAT_IMAGES, size=8, train=False, drop_last=True, num_workers=1).close()
    loader_of(flat, train=False, shuffle=True, drop_last=True).close()
    assert log.text == ""
    loader_of(flat, train=False, drop_last=True).close()
    assert f"drop_last=True leaves out 1 of {FLAT_IMAGES} samples" in log.text


def test_an_evaluation_that_is_only_not_shuffled(flat: Path, log: pytest.LogCaptureFixture) -> None:
    loader_of(flat, train=False, shuffle=False).close()
    loader_of(flat, shuffle=False, crop=fastpipe.Resize()).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(flat, shuffle=False).close()
    assert log.text.count("shuffle=False alone reads data as for training") == 1


def test_data_that_are_read_for_training_without_gradients(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, val = fastpipe.open(flat).fold(0, of=5)
    options: dict[str, Any] = {"size": 16, "num_workers": 1}

    def notices_of_evaluation(**of_evaluation: Any) -> int:
        caplog.clear()
        with fastpipe.loader(val, 4, **options, **of_evaluation) as loader, torch.no_grad():
            list(loader)
        return sum("while gradients are off" in record.message for record in caplog.records)

    # A program that trains nothing computes features; what is said of a whole epoch is below.
    assert notices_of_evaluation() == 0
    with fastpipe.loader(train, 4, **options) as loader:
        list(loader)
    assert notices_of_evaluation(train=False) == 0
    assert notices_of_evaluation() == 1
    assert notices_of_evaluation() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "random crops, mirrored at random, by default"),
        ({"drop_last": False}, "random crops, mirrored at random, by default"),
        ({"crop": fastpipe.CenterCrop()}, "training: mirrored at random, by default"),
        ({"hflip": False}, "training: random crops, by default"),
        ({"train": False}, ""),
        ({"crop": fastpipe.RandomResizedCrop(), "hflip": 0.5}, ""),
        ({"views": 2}, ""),
    ],
)
def test_an_evaluation_in_a_program_that_trains_nothing(
    flat: Path, log: pytest.LogCaptureFixture, options: dict[str, Any], words: str
) -> None:
    with loader_of(flat, **options) as loader, torch.inference_mode():
        next(iter(loader))
        assert "gradients were off" not in log.text
        list(loader)
        list(loader)
    assert log.text.count("gradients were off in a whole epoch") == bool(words)
    assert words in log.text


def test_training_and_batch_norm_are_no_evaluation(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        for number, _ in enumerate(loader):
            with torch.no_grad():
                assert number >= 0
        with torch.no_grad():
            list(loader)
    model = torch.nn.BatchNorm2d(3)
    options = {"augment": fastpipe.Augment.imagenet()}
    with loader_of(flat, **options) as loader:
        torch.optim.swa_utils.update_bn(loader, model)
    assert "gradients were off" not in log.text


def test_training_in_the_order_of_an_evaluation(flat: Path, log: pytest.LogCaptureFixture) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    training_data, validation_data = fastpipe.open(flat).fold(0, of=2)
    with (
        loader_of(training_data) as train,
        loader_of(validation_data, train=False) as val,
        loader_of(training_data, train=False, shuffle=True, seed=1) as shuffled,
    ):
        for _ in range(2):
            for loader in (train, shuffled):
                for _batch in loader:
                    step()
            for _batch in val:
                pass
        for _batch, _other in zip(val, shuffled, strict=False):
            step()
        with torch.no_grad():
            list(val)
        assert log.text == ""
        for _ in range(2):
            for _batch in val:
                step()
    assert log.text.count("is read in its order and without random crops, as with") == 1
    assert "SGD makes steps meanwhile" in log.text


def test_evaluation_on_the_training_data(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as training, loader_of(flat, train=False) as evaluation:
        list(training)
        evaluate(evaluation)
        evaluate(evaluation)  # features of the training data, say
        assert log.text == ""
        for _ in range(3):
            list(training)
            evaluate(evaluation)
    words = f"the evaluation reads {len(evaluation.dataset)} samples of {flat} on which"
    assert log.text.count(words) == 1
    assert "fold(0, of=5)" in log.text


def test_evaluation_on_all_samples_of_which_some_are_trained_on(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    training_data, _ = fastpipe.open(flat).fold(0, of=4)
    with loader_of(training_data) as training, loader_of(flat, train=False) as evaluation:
        for _ in range(2):
            list(training)
            evaluate(evaluation)
    assert log.text.count("on which the program trains, too") == 1


def test_an_evaluation_that_draws_by_weights(flat: Path, log: pytest.LogCaptureFixture) -> None:
    weights = np.arange(1.0, FLAT_IMAGES + 1)
    loader_of(flat, sampler=fastpipe.Weighted(weights)).close()
    loader_of(flat, train=False, shuffle=True, sampler=fastpipe.Weighted(weights)).close()
    loader_of(flat, train=False, sampler=[3, 2, 1]).close()
    assert log.text == ""
    loader_of(flat, train=False, sampler=fastpipe.Weighted(weights)).close()
    words = f"train=False with sampler=fastpipe.Weighted(...) draws {FLAT_IMAGES} times from"
    assert log.text.count(words) == 1


def test_a_training_on_all_samples_before_another_one(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    """An earlier experiment says nothing of this one."""
    training_data, validation_data = fastpipe.open(flat).fold(0, of=4)
    train(loader_of(flat), epochs=2)
    training = loader_of(training_data)
    validation = loader_of(validation_data, train=False)
    for _ in range(3):
        train(training)
        evaluate(validation)
    assert log.text == ""
