"""Tests of what public functions say about an argument that they do not have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastpipe

# Nobody calls these: an error is caught, the others are returned.
NOT_CALLED = {"Dataset", "Loader", "Stats"}
# By the name that messages have: the methods that take arguments.
METHODS = {
    "data": [
        "select",
        "only",
        "with_classes",
        "take",
        "fold",
        "with_column",
        "with_labels",
        "save_columns",
        "with_transform",
        "cropped",
        "with_pixels",
        "with_fields",
    ],
    "loader": ["set_epoch", "set_size", "set_weights", "load_state_dict"],
}


def callables() -> list[str]:
    names = []
    for name in fastpipe.__all__:
        value = getattr(fastpipe, name)
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if callable(value) and not is_error and name not in NOT_CALLED:
            names.append(name)
    return names


@pytest.mark.parametrize("name", callables())
def test_a_public_function_names_its_arguments(name: str) -> None:
    function = getattr(fastpipe, name)
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is parameter.empty
    ]
    with pytest.raises((TypeError, fastpipe.ConfigError)) as caught:
        function(*("a" for _ in required), qqq=1)
    message = str(caught.value)
    assert "qqq" in message
    assert "; it has " in message or " by name" in message, message


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fastpipe.pack("a", "b", max_siz=256), "did you mean max_size=?"),
        (
            lambda: fastpipe.pack("a", "b", resize=256),
            "fastpipe.pack() has no argument resize: max_size= shrinks large images",
        ),
        (lambda: fastpipe.pack("a", "b", num_workers=2), "pass workers=, the number of threads"),
        (
            lambda: fastpipe.pack("a", "b", "csv"),
            "fastpipe.pack() takes 2 arguments by position, got 3; pass the others by name, such as "
            "format='csv'",
        ),
        (
            lambda: fastpipe.Augment((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
            "takes 1 argument by position, got 2; pass the others by name: dtype=, mean=, std=, ",
        ),
        (lambda: fastpipe.loader("a", 2, vflip=True), "kornia.augmentation.RandomVerticalFlip()"),
        (lambda: fastpipe.loader("a", 2, epochs=2), "iterate over the loader once for each epoch"),
        (lambda: fastpipe.Boxes("boxes", format="coco"), "torchvision.ops.box_convert"),
        (lambda: fastpipe.pack(["a.jpg"], "b"), "got list. For a list of files write a CSV"),
        (lambda: fastpipe.Augment(p=0.5), "each module has its own probability"),
        (lambda: fastpipe.Augment(erase=0.5), "did you mean erasing=?"),
        (lambda: fastpipe.Augment.randaugment(erase=0.5), "did you mean erasing=?"),
        (
            lambda: fastpipe.open("a", batch_size=2),
            "fastpipe.loader(fastpipe.open(DATA), batch_size=...)",
        ),
        (lambda: fastpipe.Weighted([1], replace=True), "did you mean replacement=?"),
        (lambda: fastpipe.add("a", "b", workrs=3), "did you mean workers=?"),
        (lambda: fastpipe.add("a", "b", tile=0), "the dataset has it from its pack"),
        (lambda: fastpipe.mix({"a": 1}, weights=[1]), "the weights belong to the datasets"),
    ],
)
def test_a_wrong_argument(call: Callable[[], object], words: str) -> None:
    with pytest.raises((TypeError, fastpipe.ConfigError), match=re.escape(words)):
        call()


def test_a_method_that_has_no_such_argument(flat: Path) -> None:
    data = fastpipe.open(flat)
    with fastpipe.loader(flat, 2, size=8) as loader:
        for name, value in (("data", data), ("loader", loader)):
            for method in METHODS[name]:
                words = rf"{name}\.{method}\(\) got an unexpected argument 'qqq'; it has"
                with pytest.raises(TypeError, match=words):
                    getattr(value, method)(qqq=1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda _: fastpipe.pack("a"), "fastpipe.pack() lacks dst: write fastpipe.pack(src, dst)"),  # type: ignore[call-arg]
        (lambda _: fastpipe.pack(dst="a"), "fastpipe.pack() lacks src: write"),  # type: ignore[call-arg]
        (lambda _: fastpipe.open(), "fastpipe.open() lacks data: write fastpipe.open(data)"),  # type: ignore[call-arg]
        (lambda data: data.fold(0), "data.fold() lacks of: write data.fold(fold, of=...)"),
        (
            lambda data: data.with_column(),
            "lacks name and values: write data.with_column(name, values)",
        ),
        (lambda _: fastpipe.PerClass(), "fastpipe.PerClass() lacks samples: write"),  # type: ignore[call-arg]
    ],
)
def test_a_call_that_lacks_an_argument(
    flat: Path, call: Callable[[Any], object], words: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        call(fastpipe.open(flat))
