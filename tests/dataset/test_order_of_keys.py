"""Labels and values of all samples by their keys, and lists of them in the order of sorted keys."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastpipe
from fastpipe import warnings_once
from fastpipe.errors import ConfigError

NAMES = [f"{name}_{number:02d}.png" for name in ("ant", "bee", "cat") for number in range(20)]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "fastpipe")
    return caplog


@pytest.fixture
def packed(tmp_path: Path) -> fastpipe.Dataset:
    """A folder of images without labels, which packing puts into another order."""
    source = tmp_path / "source"
    source.mkdir()
    for number, name in enumerate(NAMES):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(source / name)
    fastpipe.pack(source, tmp_path / "data")
    return fastpipe.open(tmp_path / "data")


def pack_labelled(folder: Path, rng: np.random.Generator) -> tuple[list[str], Any]:
    """A dataset of 60 samples of 4 classes in no order; their keys and labels."""
    keys = [f"{rng.integers(10**9):09d}" for _ in range(60)]
    labels = rng.integers(0, 4, 60)
    with fastpipe.Writer(folder, classes=list("abcd")) as writer:
        for key, label in zip(keys, labels.tolist(), strict=True):
            writer.add(np.zeros((9, 9, 3), np.uint8), label=label, key=key)
    return keys, labels


def class_of(key: str) -> str:
    return key.partition("_")[0]


@pytest.mark.parametrize("kind", ["the same", "corrected", "coarser"])
def test_labels_in_the_order_of_sorted_keys(
    tmp_path: Path, log: pytest.LogCaptureFixture, kind: str
) -> None:
    rng = np.random.default_rng(3)
    keys, labels = pack_labelled(tmp_path / "data", rng)
    data = fastpipe.open(tmp_path / "data")
    changed = labels.copy()
    if kind == "corrected":
        changed[::10] = (labels[::10] + 1) % 4
    elif kind == "coarser":
        changed = labels // 2
    data.with_labels(changed)
    data.with_labels(rng.integers(0, 4, 60))
    data.with_labels(np.zeros(60, np.int64))
    data.with_labels(np.full(60, -1))
    assert log.text == ""
    data.with_labels(changed[np.argsort(keys)])
    assert "in the order of its sorted keys, as ImageFolder lists files" in log.text


def test_labels_in_the_order_of_sorted_keys_where_there_were_none(
    packed: fastpipe.Dataset, log: pytest.LogCaptureFixture
) -> None:
    keys = list(packed["key"])
    assert keys != NAMES
    packed.with_labels([class_of(key) for key in keys])
    packed.with_labels(np.random.default_rng(3).integers(0, 3, len(keys)), classes=list("abc"))
    packed.with_column("kind", [class_of(key) for key in keys])
    packed.with_column("score", np.linspace(0, 1, len(keys)))
    packed.with_column("number", range(len(keys)))
    packed.with_column("fold", np.arange(len(keys)) % 5)
    packed.with_labels({name: class_of(name) for name in NAMES})
    assert log.text == ""
    packed.with_labels([class_of(name) for name in NAMES])
    assert "with_labels: these labels seem to be in the order of the sorted keys" in log.text
    assert "Pass them by key: data.with_labels({key: value})" in log.text
    packed.with_column("kind", [class_of(name) for name in NAMES])
    assert "with_column: these values seem to be in the order of the sorted keys" in log.text


def test_weights_in_the_order_of_sorted_keys(
    tmp_path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings_once.forget_all()
    rng = np.random.default_rng(3)
    keys, labels = pack_labelled(tmp_path / "data", rng)
    weights = np.array([1.0, 2.0, 3.0, 4.0])[labels]
    right = (weights, dict(zip(keys, weights.tolist(), strict=True)), np.ones(60), rng.random(60))
    for values in right:
        fastpipe.loader(tmp_path / "data", 8, size=8, sampler=fastpipe.Weighted(values)).close()
    assert log.text == ""
    in_order_of_keys = weights[np.argsort(keys)].tolist()
    sampler = fastpipe.Weighted(in_order_of_keys)
    with fastpipe.loader(tmp_path / "data", 8, size=8, sampler=sampler) as loader:
        loader.set_weights(in_order_of_keys)
    assert log.text.count("Weighted: these weights fit the classes") == 1
    assert "Pass them by key: fastpipe.Weighted({key: value})" in log.text


@pytest.mark.parametrize("kind", ["Weighted", "WeightedRandomSampler"])
def test_weights_of_classes_of_which_one_is_frequent(
    tmp_path: Path, log: pytest.LogCaptureFixture, kind: str
) -> None:
    """Most samples have the weight of the frequent class, in any order."""
    warnings_once.forget_all()
    labels = {f"ant_{number:02d}": 0 for number in range(70)}
    labels |= {f"bee_{number:02d}": 1 for number in range(10)}
    keys = np.random.default_rng(3).permutation(list(labels)).tolist()
    with fastpipe.Writer(tmp_path / "data", classes=["ant", "bee"]) as writer:
        for key in keys:
            writer.add(np.zeros((9, 9, 3), np.uint8), label=labels[key], key=key)

    def open_loader(order: list[str]) -> None:
        weights = [1 / (10 if labels[key] else 70) for key in order]
        sampler: Any = fastpipe.Weighted(weights)
        if kind == "WeightedRandomSampler":
            sampler = torch.utils.data.WeightedRandomSampler(weights, len(weights))
        fastpipe.loader(tmp_path / "data", 8, size=8, sampler=sampler).close()

    open_loader(keys)
    assert log.text == ""
    open_loader(sorted(keys))
    assert f"{kind}: these weights fit the classes" in log.text


def test_one_sample_of_another_class_says_nothing_of_the_order(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    with fastpipe.Writer(tmp_path / "data", classes=["ant", "bee"]) as writer:
        for number in range(40):
            key = f"{39 - number:02d}"
            writer.add(np.zeros((9, 9, 3), np.uint8), label=int(number == 5), key=key)
    labels = np.zeros(40, np.int64)
    labels[34] = 1
    fastpipe.open(tmp_path / "data").with_labels(labels)
    assert log.text == ""


def test_an_order_that_the_user_chose_is_no_order_of_keys(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """A Writer keeps the order: one class may come after the other there."""
    rng = np.random.default_rng(3)
    with fastpipe.Writer(tmp_path / "data") as writer:
        for number in rng.permutation(60).tolist():
            writer.add(np.zeros((9, 9, 3), np.uint8), key=f"{number}")
    data = fastpipe.open(tmp_path / "data")
    data.with_labels([0] * 20 + [1] * 20 + [2] * 20, classes=list("abc"))
    assert log.text == ""


def test_labels_and_columns_by_key(packed: fastpipe.Dataset) -> None:
    keys = list(packed["key"])
    labels = {name: class_of(name) for name in NAMES}
    named = packed.with_labels(labels)
    assert [named.classes[label] for label in named["label"]] == [labels[key] for key in keys]
    numbers = {name: number % 3 for number, name in enumerate(NAMES)}
    numbered = packed.with_labels(numbers, classes=["a", "b", "c"])
    assert numbered["label"].tolist() == [numbers[key] for key in keys]
    vectors = {name: np.array([number, 1.5]) for number, name in enumerate(NAMES)}
    with_vectors = packed.with_column("vector", vectors)
    assert with_vectors["vector"][:, 0].tolist() == [vectors[key][0] for key in keys]
    texts = packed.with_column("text", labels)
    assert list(texts["text"]) == [labels[key] for key in keys]
    chosen = packed.select(range(10, 20))
    some = chosen.with_labels({key: numbers[key] for key in chosen["key"]}, classes=list("abc"))
    assert some["label"].tolist() == [numbers[key] for key in keys[10:20]]


@pytest.mark.parametrize("method", ["with_labels", "with_column"])
def test_keys_that_are_missing_or_unknown(packed: fastpipe.Dataset, method: str) -> None:
    values: dict[Any, Any] = dict.fromkeys(NAMES, "a")

    def call(given: dict[Any, Any]) -> None:
        if method == "with_labels":
            packed.with_labels(given)
        else:
            packed.with_column("kind", given)

    call(values)
    with pytest.raises(ConfigError, match=f"{method}: .* has no sample .*'x.png'.*Leave out the"):
        call({**values, "x.png": "a"})
    words = rf"{method}: 60 samples of 60 have no value: .*, \.\.\.\. .*data.select\("
    with pytest.raises(ConfigError, match=words):
        call({})
    del values[NAMES[7]]
    with pytest.raises(ConfigError, match=f"{method}: 1 sample of 60 has no value: 'ant_07.png'"):
        call(values)
    with pytest.raises(ConfigError, match=rf"{method}: expected .* such as '.*\.png', got 0"):
        call(dict.fromkeys(range(60), "a"))


@pytest.mark.parametrize(
    ("labels", "advice"),
    [
        (np.linspace(0, 1, 60), r"regression\): data.with_column\('target', values\)"),
        (np.arange(60) % 3 + 0.0, r"whole numbers: np.asarray\(labels\).astype\(int\)"),
        (np.arange(60) % 3 == 0, r"astype\(int\), with classes=\['no', 'yes'\]"),
        (np.eye(3)[np.arange(60) % 3], r"labels.argmax\(axis=1\)"),
        (np.ones((60, 3)), r"several labels of a sample: data.with_column\('labels', values\)"),
    ],
)
def test_values_that_are_no_labels(packed: fastpipe.Dataset, labels: Any, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"expected whole numbers or names.*{advice}"):
        packed.with_labels(labels, classes=["a", "b", "c"])


def test_numbers_as_texts(packed: fastpipe.Dataset, log: pytest.LogCaptureFixture) -> None:
    numbers = np.random.default_rng(3).permutation(np.arange(60) % 12)
    packed.with_labels([str(number % 3 + 1) for number in numbers])
    packed.with_labels([str(number) for number in numbers], classes=list(map(str, range(12))))
    assert log.text == ""
    packed.with_labels([str(number) for number in numbers])
    assert "sorted as texts: '10' is label 2. Pass numbers" in log.text
