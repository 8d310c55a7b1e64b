"""A loader for training and one for evaluation that do not belong together: named in the log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.programs.habits import class_folders, evaluate, loader_of, pack_pictures, train

import fastpipe
from fastpipe import warnings_once
from fastpipe.errors import ConfigError

pytestmark = pytest.mark.usefixtures("warned_anew")


def test_classes_of_two_datasets_that_differ_in_letter_case(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    for name, classes in (("a", ["cat", "dog"]), ("b", ["Cat", "dog"])):
        with fastpipe.Writer(tmp_path / name, classes=classes) as writer:
            for number in range(4):
                pixels = np.full((9, 9, 3), number, np.uint8)
                writer.add(pixels, label=number % 2, key=f"{number}")
    first, second = tmp_path / "a", tmp_path / "b"
    fastpipe.concat(first, second, labels="offset")
    assert log.text == ""
    fastpipe.concat(first, second)
    fastpipe.mix({first: 1, second: 1})
    assert log.text.count("'cat', 'Cat' differ in letter case, spaces or separators alone") == 2


def test_the_two_parts_of_a_fold(flat: Path) -> None:
    parts = fastpipe.open(flat).fold(0, of=5)
    with pytest.raises(ConfigError, match=r"train, val = data.fold\("):
        loader_of(parts)


def test_parts_for_training_and_evaluation_that_share_samples(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = fastpipe.open(flat)
    options: dict[str, Any] = {"size": 16, "num_workers": 1}

    def notices(training: fastpipe.Dataset, evaluation: fastpipe.Dataset) -> list[str]:
        warnings_once.forget_all()
        caplog.clear()
        with (
            fastpipe.loader(training, 4, **options),
            fastpipe.loader(evaluation, 4, train=False, **options),
        ):
            return [r.message for r in caplog.records if "are also among those" in r.message]

    (message,) = notices(data.take(0.8), data.take(0.3))
    assert "To divide a dataset: train, val = data.fold(0, of=5)" in message
    train, _ = data.fold(0, of=5)
    _, val = data.fold(1, of=5)
    (message,) = notices(train, val)
    assert "Take both from one call of fold: train, val = data.fold(0, of=5)" in message
    assert "take" not in message
    assert notices(*data.fold(0, of=5)) == []
    assert notices(data, data.take(0.3)) == []
    assert notices(data.take(0.3), data.take(0.3)) == []


def test_images_for_evaluation_that_are_normalised_otherwise(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def notices(training: Any, evaluation: Any) -> list[str]:
        warnings_once.forget_all()
        caplog.clear()
        options: dict[str, Any] = {"size": 16, "num_workers": 1}
        with (
            fastpipe.loader(flat, 4, augment=training, **options),
            fastpipe.loader(flat, 4, train=False, augment=evaluation, **options),
        ):
            return [r.message for r in caplog.records if "other numbers than it" in r.message]

    imagenet = fastpipe.Augment.imagenet()
    (message,) = notices(fastpipe.Augment.simclr(), None)
    assert "are normalised with mean=(0.485, 0.456, 0.406)" in message
    assert "are not normalised" in message
    assert len(notices(imagenet, fastpipe.Augment(mean=0.5, std=0.5))) == 1
    assert notices(fastpipe.Augment.simclr(), imagenet) == []
    assert notices(None, None) == []


def test_parts_by_position_of_class_folders(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    data = fastpipe.open(class_folders(tmp_path / "data"))
    train, val = data.fold(0, of=4, stratify="label")
    with loader_of(train), loader_of(val, train=False):
        pass
    with loader_of(data), loader_of(data.only(["ant"]).with_classes(data.classes), train=False):
        pass
    assert "for training has no sample" not in log.text
    with loader_of(data.select(range(16))), loader_of(data.select(range(16, 24)), train=False):
        pass
    assert "for training has no sample of 1 class that the part for evaluation has: cat" in log.text
    assert "train, val = data.fold(0, of=5)" in log.text


def test_the_parts_of_a_fold_are_swapped(flat: Path, log: pytest.LogCaptureFixture) -> None:
    rest, part = fastpipe.open(flat).fold(0, of=4)
    loaders = [loader_of(rest), loader_of(part, train=False)]
    assert log.text == ""
    loaders = [loader_of(part, drop_last=False), loader_of(rest, train=False)]
    words = f"training reads {len(part)} samples of {flat}, and evaluation the other {len(rest)}"
    assert log.text.count(words) == 1
    assert "train, val = data.fold(0, of=5)" in log.text
    del loaders


def test_photos_of_the_validation_are_also_in_the_training(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    classes = [*"abcdefgh"]
    training_data = pack_pictures(tmp_path / "train", classes, (20, 20, 3))
    other_data = pack_pictures(tmp_path / "other", classes, (20, 20, 3), seed=1)
    copied = tmp_path / "copied" / "photos"
    shutil.copytree(tmp_path / "other" / "photos", copied)
    for number in range(3):
        shutil.copy(
            tmp_path / f"train/photos/a/0-{number * 8 % 16}.png", copied / f"a/{number}.png"
        )
    fastpipe.pack(copied, tmp_path / "copied" / "data")
    log.clear()
    loaders = [loader_of(training_data), loader_of(other_data, train=False)]
    assert log.text == ""
    loaders += [loader_of(training_data), loader_of(tmp_path / "copied" / "data", train=False)]
    assert "3 of 19 images of" in log.text
    assert "are in the data for training" in log.text


def test_a_size_that_only_one_of_two_loaders_has(flat: Path, log: pytest.LogCaptureFixture) -> None:
    loaders = [loader_of(flat), loader_of(flat, train=False)]
    assert log.text == ""
    loaders += [loader_of(flat), fastpipe.loader(flat, 4, size=224, train=False)]
    words = "images for training are 8 x 8, and those for evaluation 224 x 224"
    assert log.text.count(words) == 1


def test_loaders_that_live_in_functions(flat: Path, log: pytest.LogCaptureFixture) -> None:
    """The one for training is gone when that for evaluation is made."""
    training_data, validation_data = fastpipe.open(flat).fold(0, of=4)
    train(loader_of(training_data))
    evaluate(loader_of(validation_data, train=False))
    assert log.text == ""
    all_classes = training_data.classes
    reordered = validation_data.with_labels(
        validation_data["label"], classes=[all_classes[-1], *all_classes[:-1]]
    )
    for _ in range(2):
        evaluate(loader_of(reordered, train=False))
    (record,) = log.records
    assert "the classes of the data for evaluation" in record.getMessage()
    assert "val.with_classes(train.classes)" in record.getMessage()
    log.clear()
    evaluate(loader_of(reordered.with_classes(all_classes), train=False))
    assert log.text == ""


def test_a_loop_over_folds(flat: Path, log: pytest.LogCaptureFixture) -> None:
    """A fold's loader for training is made while the evaluation of the fold before is there."""
    data = fastpipe.open(flat)
    for number in range(3):
        training_data, validation_data = data.fold(number, of=3)
        training = loader_of(training_data)
        validation = loader_of(validation_data, train=False)
        for _ in range(2):
            train(training)
            evaluate(validation)
    both = [loader_of(data), loader_of(validation_data, train=False)]
    assert log.text == ""
    del both


def test_experiments_one_after_another(flat: Path, log: pytest.LogCaptureFixture) -> None:
    training_data, validation_data = fastpipe.open(flat).fold(0, of=4)
    for mean in (0.4, 0.5):
        augment = fastpipe.Augment(mean=(mean,) * 3, std=(0.2,) * 3)
        training = loader_of(training_data, augment=augment)
        validation = loader_of(validation_data, train=False, augment=augment)
        train(training)
        evaluate(validation)
    assert log.text == ""


def test_classes_that_a_fold_leaves_to_one_part_are_named_by_fold_alone(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    data = fastpipe.open(pack_pictures(tmp_path, [*"abcdefgh"], (20, 20, 3)))
    single = data.select(range(0, len(data), 2))
    log.clear()
    training_data, validation_data = single.fold(0, of=2)
    assert "has no sample of" in log.text
    log.clear()
    loaders = [
        loader_of(training_data, drop_last=False),
        loader_of(validation_data, train=False),
    ]
    assert log.text == ""
    del loaders
