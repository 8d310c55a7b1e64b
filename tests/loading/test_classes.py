"""Loaders for training and for evaluation in one process: classes of other numbers are told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpipe
from fastpipe import warnings_once

ALL = ["ant", "bee", "cow"]


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the loaders of other tests."""
    warnings_once.forget_all()


def named(flat: Path, *names: str) -> fastpipe.Dataset:
    """Some samples with these classes."""
    data = fastpipe.open(flat).take(0.5)
    return data.with_labels([number % len(names) for number in range(len(data))], classes=names)


def loader(data: fastpipe.Dataset, **how: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, 2, size=12, num_workers=1, **how)


@pytest.mark.parametrize("first", ["training", "evaluation"])
def test_the_first_name_with_another_number_is_told_once(
    flat: Path, caplog: pytest.LogCaptureFixture, first: str
) -> None:
    pair = {"training": (named(flat, *ALL), True), "evaluation": (named(flat, "ant", "cow"), False)}
    data, train = pair.pop(first)
    kept = loader(data, train=train)
    assert not caplog.records
    ((data, train),) = pair.values()
    for _ in range(2):
        with caplog.at_level(logging.WARNING), loader(data, train=train):
            pass
    (record,) = caplog.records
    assert "'cow' is 1 in evaluation and 2 in training" in record.getMessage()
    assert "val.with_classes(train.classes)" in record.getMessage()
    kept.close()


@pytest.mark.parametrize(
    ("training", "evaluation", "says"),
    [
        (ALL, ALL, None),
        (ALL, ["ant", "bee"], None),  # the same numbers
        (ALL, ["dog", "zebra"], None),  # another task
        (["0", "1"], ["0", "1", "2"], None),  # numbers without names
        (
            ALL,
            ["ant", "bee", "cow", "dog"],
            "'dog' is 3 in evaluation, and training has no such class",
        ),
        (
            ALL,
            ["cow", "bee", "ant"],
            "'cow' is 0 in evaluation and 2 in training; 1 other class has another number, too",
        ),
    ],
)
def test_what_counts_as_other_classes(
    flat: Path,
    caplog: pytest.LogCaptureFixture,
    training: list[str],
    evaluation: list[str],
    says: str | None,
) -> None:
    with loader(named(flat, *training)) as kept, loader(named(flat, *evaluation), train=False):
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == (says is not None)
        assert says is None or says in texts[0]
        assert kept.classes == training


def test_the_remedy_for_a_new_class_works(flat: Path, caplog: pytest.LogCaptureFixture) -> None:
    training = named(flat, *ALL)
    evaluation = named(flat, "cow", "dog")
    with loader(training), loader(evaluation, train=False):
        (record,) = caplog.records
    assert (
        "data.only([name for name in data.classes if name in training.classes])"
        in record.getMessage()
    )
    caplog.clear()
    common = [name for name in evaluation.classes if name in training.classes]
    remedied = evaluation.only(common).with_classes(training.classes)
    assert remedied.classes == list(training.classes)
    with loader(training), loader(remedied, train=False):
        # Here both have the same images, which is said, too.
        (record,) = caplog.records
    assert "are also among those for training" in record.getMessage()


def test_a_loader_that_is_gone_is_not_compared(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loader(named(flat, *ALL)).close()
    with loader(named(flat, "cow", "ant"), train=False):
        assert not caplog.records


def test_another_dataset_is_to_be_opened_with_the_classes_of_training(
    flat: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fastpipe.Writer(tmp_path / "val", classes=["cow", "ant"]) as writer:
        writer.add(np.zeros((9, 9, 3), np.uint8), label=0)
    val = fastpipe.open(tmp_path / "val")
    with loader(fastpipe.open(flat)), loader(val, train=False, drop_last=False):
        assert "Give it the same ones: fastpipe.open(..., classes_from=" in caplog.text


def test_parts_of_one_dataset_get_one_list(flat: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = fastpipe.open(flat)
    train = data.only(["bee", "ant"])
    val = data.only(["ant", "bee"])
    with loader(train) as kept:
        with loader(val, train=False):
            assert "pass the same list to only()" in caplog.text
            assert "classes_from=" not in caplog.text
        caplog.clear()
        with loader(val.with_classes(kept.dataset.classes), train=False):
            assert "other numbers" not in caplog.text


def test_different_lists_of_only_of_two_datasets(
    flat: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fastpipe.Writer(tmp_path / "val", classes=ALL) as writer:
        for label in range(3):
            writer.add(np.full((9, 9, 3), label, np.uint8), label=label)
    train = fastpipe.open(flat).only(["ant", "bee"])
    val = fastpipe.open(tmp_path / "val").only(["bee", "ant"])
    with loader(train) as kept:
        with loader(val, train=False, drop_last=False):
            assert "'bee' is 0 in evaluation and 1 in training" in caplog.text
            assert (
                "only(), with_classes() and classes_from= number classes in the order"
                in caplog.text
            )
            assert "pack it" not in caplog.text
        caplog.clear()
        with loader(val.with_classes(kept.classes), train=False, drop_last=False):
            assert "other numbers" not in caplog.text


def test_two_loaders_for_evaluation(flat: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As query and gallery, whose labels are compared."""
    gallery, query = named(flat, *ALL), named(flat, "bee", "cow")
    with loader(gallery, train=False), loader(query, train=False):
        pass
    with loader(query, train=False), loader(gallery, train=False):
        pass
    words = "both for evaluation, have other numbers: 'bee' is 0 in the first and 1 in the second; "
    assert caplog.text.count(words) == 1
    assert "1 other class has another number, too. If labels of the two are compared" in caplog.text


@pytest.mark.parametrize(
    "names", [("ant", "bee"), ("bee", "dog"), ("dog", "emu"), tuple(ALL), ("0", "1")]
)
def test_other_loaders_for_evaluation(
    flat: Path, caplog: pytest.LogCaptureFixture, names: tuple[str, ...]
) -> None:
    with loader(named(flat, *ALL), train=False), loader(named(flat, *names), train=False):
        assert "both for evaluation" not in caplog.text
