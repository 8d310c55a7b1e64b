"""Names of classes for `with_labels`: what is the same name, and names that the log doubts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import fastpipe
from fastpipe import warnings_once


@pytest.fixture
def data(flat: Path) -> fastpipe.Dataset:
    warnings_once.forget_all()
    return fastpipe.open(flat)


def repeat(names: list[str], data: fastpipe.Dataset) -> list[str]:
    return [names[number % len(names)] for number in range(len(data))]


def test_spaces_around_names_do_not_count(data: fastpipe.Dataset) -> None:
    names = repeat(["cat", "cat ", " dog"], data)
    assert data.with_labels(names).classes == ["cat", "dog"]
    numbered = data.with_labels(names, classes=["dog", "cat"])
    assert numbered["label"][:3].tolist() == [1, 1, 0]
    kept = data.with_labels(names, classes=["cat ", "cat", " dog"])
    assert kept["label"][:3].tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["Cat", "cat", "dog"], "with_labels: 'Cat', 'cat' differ in letter case"),
        (["cat|dog", "dog"], "with_labels: 'cat|dog' is one class. For several labels"),
    ],
)
def test_doubtful_names_are_named_once(
    data: fastpipe.Dataset, caplog: pytest.LogCaptureFixture, names: list[str], words: str
) -> None:
    caplog.set_level(logging.WARNING, "fastpipe")
    data.with_labels(repeat(["a|b", "cat dog", "cat-fish"], data))
    assert caplog.text == ""
    data.with_labels(repeat(names, data))
    data.with_labels(repeat(names, data))
    assert caplog.text.count(words) == 1
