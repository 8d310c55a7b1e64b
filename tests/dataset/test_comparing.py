"""Columns of numbers that are compared with texts: an error, with the line to write instead."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpipe
from fastpipe.errors import ConfigError

WORDS = (
    r"the column 'label' has numbers \(int64\), and is compared with 'cow'\. .*"
    r"data\.only\(\['cow'\]\)\. For its number: data\.class_to_idx\['cow'\]$"
)


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_labels_are_not_compared_with_the_name_of_a_class(
    flat: Path, compare: Callable[[Any, Any], Any]
) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(ConfigError, match=WORDS):
        compare(data["label"], "cow")
    with pytest.raises(ConfigError, match=WORDS):
        compare("cow", data["label"])
    with pytest.raises(ConfigError, match=WORDS):
        data.select(lambda columns: compare(columns["label"], "cow"))
    with pytest.raises(ConfigError, match=r"is compared with texts"):
        data.select(lambda columns: compare(columns["label"], ["cow"] * 37))


def test_the_lines_that_are_proposed_choose_the_class(flat: Path) -> None:
    data = fastpipe.open(flat)
    label = data.class_to_idx["cow"]
    chosen = data.only(["cow"])
    for same in (
        data.select(data["label"] == label),
        data.select(lambda columns: columns["label"] == label),
        data.select(lambda columns: ~(columns["label"] != label)),
        data.select(lambda columns: np.isin(columns["label"], [label])),
    ):
        assert same["key"].tolist() == chosen["key"].tolist()


def test_calculations_with_labels_are_plain_arrays(flat: Path) -> None:
    types = []

    def choose(columns: Any) -> Any:
        labels = columns["label"]
        for value in (labels == 1, labels + 1, columns["width"], columns["key"]):
            types.append(type(value))
        types.append(type(labels.max()))
        return labels == 1

    fastpipe.open(flat).select(choose)
    assert types == [np.ndarray] * 4 + [np.int64]


def test_other_columns(flat: Path) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(
        ConfigError, match=r"the column 'width' has numbers .* with '64'; compare it"
    ):
        operator.gt(data["width"], "64")
    assert (data["key"] == data["key"][0]).sum() == 1
