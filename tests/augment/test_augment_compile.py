"""Tests of compile=True: torch.compile is given our operations, and what it makes of them gives the same images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.batches.augment_batches import photos
from torch import Tensor

from fastpipe import Augment
from fastpipe.augment import effects, operation, pixels
from fastpipe.augment.presets import _FUNCTIONS, Grayscale, _parameters

# torch's compiler warns of torch itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    operation.compiled.cache_clear()
    yield
    operation.compiled.cache_clear()


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """torch's, in this process alone, and without what other runs have left in its cache."""
    import torch._inductor.config as inductor

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch, inductor.patch(compile_threads=1):
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("function", "parameters"),
    [(effects.hue, [torch.linspace(-0.5, 0.5, 7)]), (effects.solarize, [torch.linspace(0, 1, 7)])],
    ids=["hue", "solarize"],
)
def test_compiled_functions_give_the_same_for_any_number_of_images(
    function: Callable[..., Tensor], parameters: list[Tensor]
) -> None:
    compiled = operation.compiled(function)
    for count, size in ((7, (16, 20)), (4, (16, 20)), (5, (9, 11))):
        images = photos(count, *size).to(torch.float32, memory_format=torch.contiguous_format) / 255
        mine = [parameter[:count] for parameter in parameters]
        torch.testing.assert_close(compiled(images.clone(), *mine), function(images, *mine), atol=2e-6, rtol=0)


def assert_same(name: str, function: Callable[..., Tensor]) -> None:
    """As the function of that name, for any number of images of any size."""
    numbers = torch.full((7, 6), 0.4) if name != "warp" else torch.eye(2, 3).view(1, 6).repeat(7, 1)
    for count, size in ((7, (16, 20)), (5, (9, 12))):
        images = photos(count, *size).to(torch.float32, memory_format=torch.contiguous_format) / 255
        mine = _parameters(name, numbers[:count])
        expected = _FUNCTIONS[name][0](images.clone(), *mine)
        torch.testing.assert_close(function(images, *mine), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", list(_FUNCTIONS))
def test_each_function_of_a_policy_can_be_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced for any number of images, without a compiler's last stage: for a CPU, and for other devices if the
    function asks which it is.
    """
    function, _ = _FUNCTIONS[name]
    asked: list[torch.device] = []
    monkeypatch.setattr(pixels, "on_cpu", lambda device: asked.append(device) is None)
    assert_same(name, function)
    for on_cpu in (True, False) if asked else (True,):
        monkeypatch.setattr(pixels, "on_cpu", lambda device, here=on_cpu: here)
        torch._dynamo.reset()
        assert_same(name, torch.compile(function, dynamic=True, backend="eager", fullgraph=True))


@pytest.mark.usefixtures("compiler")
def test_a_compiled_augmentation_gives_the_same() -> None:
    images = photos(9, 16, 20)
    compiled, eager = Augment([Grayscale(0.5)], compile=True), Augment([Grayscale(0.5)])
    for batch in range(3):
        torch.testing.assert_close(compiled(images, batch=batch), eager(images, batch=batch), atol=1e-5, rtol=0)


def test_each_operation_of_a_preset_is_compiled_and_no_module_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
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
