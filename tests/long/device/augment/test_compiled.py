"""compile=True with torch's own compiler: what it makes of our operations gives the same images."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from support.batches.augment_batches import photos
from support.batches.traced import assert_traced

from fastpipe import Augment
from fastpipe.device.augment import effects, operation
from fastpipe.device.augment.presets import _FUNCTIONS, Grayscale

# torch's compiler warns of torch itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


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
def test_a_compiled_function_gives_the_same_for_any_number_of_images() -> None:
    parameters = torch.linspace(-0.5, 0.5, 7)
    compiled = operation.compiled(effects.hue)
    for count, size in ((7, (16, 20)), (4, (16, 20)), (5, (9, 11))):
        images = photos(count, *size).to(torch.float32, memory_format=torch.contiguous_format) / 255
        expected = effects.hue(images.clone(), parameters[:count])
        torch.testing.assert_close(
            compiled(images, parameters[:count]), expected, atol=2e-6, rtol=0
        )


@pytest.mark.parametrize("name", list(_FUNCTIONS))
def test_each_function_of_a_policy_can_be_compiled(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_traced(name, monkeypatch)


@pytest.mark.usefixtures("compiler")
def test_a_compiled_augmentation_gives_the_same() -> None:
    images = photos(9, 16, 20)
    compiled, eager = Augment([Grayscale(0.5)], compile=True), Augment([Grayscale(0.5)])
    for batch in range(3):
        torch.testing.assert_close(
            compiled(images, batch=batch), eager(images, batch=batch), atol=1e-5, rtol=0
        )
