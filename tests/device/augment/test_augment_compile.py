"""Tests of compile=True: torch.compile is given our operations, and it can trace them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.batches.augment_batches import photos
from support.batches.traced import assert_traced

from fastpipe import Augment
from fastpipe.device.augment import effects, operation
from fastpipe.device.augment.presets import Grayscale

# torch's compiler warns of torch itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    operation.compiled.cache_clear()
    yield
    operation.compiled.cache_clear()


@pytest.mark.parametrize("name", ["solarize"])
def test_functions_of_a_policy_can_be_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_traced(name, monkeypatch)


def test_each_operation_of_a_preset_is_compiled_and_no_module_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []

    def compile_(function: Any, **options: Any) -> Any:
        given.append((function, options))
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    images = photos(60, 8, 8)
    Augment.simclr()(images)
    assert given == []
    modules = [Grayscale(0.5), torch.nn.Identity()]
    assert torch.equal(Augment(modules, compile=True)(images), Augment([Grayscale(0.5)])(images))
    assert given == [(effects.grayscale, {"dynamic": True})]
    Augment.simclr(compile=True)(images)
    Augment.randaugment(compile=True)(images)
    functions = {function.__name__ for function, _ in given}
    assert {"hue", "contrast", "warp", "posterize", "equalize", "autocontrast"} <= functions
    assert {function.__module__ for function, _ in given} == {effects.__name__}
