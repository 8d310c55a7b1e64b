"""Tests of the options' checks: each wrong value's message names the argument, what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fastpipe import errors
from fastpipe.errors import ConfigError, FastpipeError
from fastpipe.plan import crop_options as options
from fastpipe.plan.crops import CenterCrop, Crop, RandomResizedCrop, Resize, shorter_side


def whole(value: object) -> int:
    return errors.whole("batch_size", value, least=1, most=100)


def crop(value: object) -> Crop:
    return options.parse_crop(value, (224, 224), train=True)


def hflip(value: object) -> float:
    return options.parse_flip_probability(value, train=True)


def scale(value: Any) -> RandomResizedCrop:
    return RandomResizedCrop(scale=value)


def ratio(value: Any) -> RandomResizedCrop:
    return RandomResizedCrop(ratio=value)


def resize(value: Any) -> CenterCrop:
    return CenterCrop(resize=value)


WRONG: list[tuple[Callable[[Any], object], str, str, tuple[object, ...]]] = [
    (whole, "batch_size", "a whole number", (1.5, "8", None, True, [8], 8.0)),
    (whole, "batch_size", "1 to 100", (0, -1, 101, 2**70)),
    (options.parse_size, "size", "a whole number", ("224", None, 1.5, (2, "3"), {1, 2})),
    (options.parse_size, "size", r"\(height, width\)", ((1,), (1, 2, 3), ())),
    (options.parse_size, "size", "1 to 16384", (0, 16385, (10, 0), (-3, 10))),
    (crop, "crop", r"RandomResizedCrop\(\.\.\.\)", ("center", 224, Resize, True)),
    (hflip, "hflip", "a probability from 0 to 1", (-0.1, 1.1, 2, "yes", float("nan"))),
    (scale, "scale", "above 0 and at most 1", ((0, 1), (0.5, 1.1), (0.9, 0.1), 0.5)),
    (scale, "scale", "two numbers", ((0.1, 0.5, 1.0), ("a", "b"), (float("nan"), 1), None)),
    (ratio, "ratio", "two numbers", ((0, 1), (2, 1), (1, float("inf")), (-1, 1), "43")),
    (resize, "resize", "a whole number", (1.5, "256", True)),
    (resize, "resize", "1 to 16384", (0, 10**6)),
]


def test_a_wrong_value_says_what_was_expected() -> None:
    for check, name, expected, values in WRONG:
        for value in values:
            with pytest.raises(ConfigError, match=f"^{name}: expected .*{expected}") as caught:
                check(value)
            parts = value if isinstance(value, tuple) else ()
            assert any(f"got {part!r}" in str(caught.value) for part in (value, *parts))


def test_wrong_flags_and_choices() -> None:
    for value in (0, 1, None, "True", np.True_):
        with pytest.raises(
            ConfigError, match=f"^exact: expected True or False, got {re.escape(repr(value))}$"
        ):
            errors.flag("exact", value)
    for word in ("ignore", "", None, 3, ["raise"]):
        with pytest.raises(ConfigError, match=r"^on_error: expected 'raise' or 'replace', got "):
            errors.choice("on_error", word, ("raise", "replace"))


def test_arrays_that_are_no_whole_number() -> None:
    arrays = [
        np.True_,
        np.array([1, 2]),
        np.array(1.5),
        torch.tensor(1.5),
        torch.tensor([1, 2]),
        torch.tensor(True),
    ]
    for value in arrays:
        with pytest.raises(ConfigError, match=r"^batch_size: expected a whole number, got "):
            whole(value)


def test_config_errors_are_value_errors_and_fastpipe_errors() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, FastpipeError)


def test_whole_numbers_of_any_library_are_taken() -> None:
    for value in (8, np.int32(8), np.uint64(8), torch.tensor(8)):
        number = whole(value)
        assert number == 8
        assert type(number) is int


def test_sizes_are_parsed() -> None:
    assert options.parse_size(224) == (224, 224)
    assert options.parse_size((192, 256)) == (192, 256)
    assert options.parse_size([1, np.int64(16384)]) == (1, 16384)


def test_flips() -> None:
    assert [options.parse_flip_probability(None, train=train) for train in (True, False)] == [
        0.5,
        0.0,
    ]
    values: list[tuple[object, float]] = [
        (True, 0.5),
        (False, 0.0),
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
    ]
    for value, expected in [*values, (np.float64(0.25), 0.25), (np.float32(0.25), 0.25)]:
        assert options.parse_flip_probability(value, train=False) == expected
    assert RandomResizedCrop(scale=(np.float32(0.25), np.int64(1))).scale == (0.25, 1.0)


def test_default_crops() -> None:
    assert options.parse_crop(None, (224, 224), train=True) == RandomResizedCrop(
        scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)
    )
    assert options.parse_crop(None, (224, 224), train=False) == CenterCrop()
    sides = {(224, 224): 256, (100, 192): 219, (14, 14): 16}
    assert {size: shorter_side(CenterCrop(), size) for size in sides} == sides
    assert shorter_side(CenterCrop(resize=300), (224, 224)) == 300
    assert options.parse_crop(Resize(), (14, 14), train=True) == Resize()


def test_center_crops_are_not_larger_than_the_picture_they_cut() -> None:
    with pytest.raises(ConfigError, match=r"^crop: CenterCrop\(resize=200\).*size=.*at least 224"):
        options.parse_crop(CenterCrop(resize=200), (100, 224), train=False)


def test_crops_are_values() -> None:
    assert RandomResizedCrop(scale=[0.1, 1]) == RandomResizedCrop(scale=(0.1, 1.0))  # type: ignore[arg-type]
    assert len({CenterCrop(resize=256), CenterCrop(resize=256), Resize(), Resize()}) == 2
