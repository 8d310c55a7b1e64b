"""Lists of labels for a dataset whose samples have one label each, and where several labels go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpipe
from fastpipe.errors import ConfigError


@pytest.fixture
def data(flat: Path) -> fastpipe.Dataset:
    return fastpipe.open(flat)


@pytest.mark.parametrize("lists", [[["cat", "dog"], ["dog"]], [["cat", "dog"]] * 2, [{"cat"}] * 2])
@pytest.mark.parametrize("by_key", [False, True])
def test_lists_are_no_labels(data: fastpipe.Dataset, lists: list[Any], by_key: bool) -> None:
    values = [lists[number % 2] for number in range(len(data))]
    given: Any = dict(zip(data["key"], values, strict=True)) if by_key else values
    words = r"with_labels: a sample has one label, got a .*fields=\{'tags': 'classes'\}.*fastpipe docs multi-label"
    with pytest.raises(ConfigError, match=words):
        data.with_labels(given)


@pytest.mark.parametrize("lists", [[["cat", "dog"], ["dog"]], [[1, 2], [1]]])
def test_lists_of_several_lengths_are_no_column(data: fastpipe.Dataset, lists: list[Any]) -> None:
    values = [lists[number % 2] for number in range(len(data))]
    words = "with_column: .* for each sample, got lists of 1 to 2 values.*fastpipe docs multi-label"
    with pytest.raises(ConfigError, match=words):
        data.with_column("tags", values)


def test_lists_of_one_length_are_a_column(data: fastpipe.Dataset) -> None:
    values = [[number, 0.5] for number in range(len(data))]
    assert np.array_equal(data.with_column("mine", values)["mine"], values)
