"""A loader's side stream that is late, on another GPU, or reads what the program writes: the batches stay the same.

Each test runs on simulated GPUs, where a missing wait is noted, and on a real one, where it makes other pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kornia.augmentation
import numpy as np
import pytest
import torch
from support.devices.simulated_gpu import Gpu, simulated

import fastpipe
from fastpipe import Augment
from fastpipe.device.streams import SideStream

pytestmark = pytest.mark.usefixtures("one_thread")

k: Any = kornia.augmentation
BATCH = 4
SLEEP = 20_000_000  # cycles: some 10 ms of a GPU
KEYS = ["input", "mask", "bbox_xyxy"]
OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "uint8": dict,
    "imagenet": lambda: {"augment": Augment.imagenet(mixup=0.2, erasing=0.5)},
    "policy": lambda: {"augment": Augment.randaugment()},
    "kornia": lambda: {
        "augment": [
            k.RandomAffine(15.0),
            k.RandomBrightness((0.5, 1.5)),
            k.RandomGaussianNoise(std=0.1),
        ]
    },
    "fields": lambda: {
        "fields": ("image", "label", "id", "valid", "seg", "box"),
        "augment": k.AugmentationSequential(k.RandomRotation(30.0, p=1.0), data_keys=KEYS),
    },
    "arrays": lambda: {"fields": ("image", "latent", "tokens")},
    "views": lambda: {"views": 2, "augment": Augment.simclr()},
    "buckets": lambda: {"size": "bucket", "fields": ("image", "image_size", "pixel_mask")},
}


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.gpu)])
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu | None]:
    """Simulated GPUs, or None: there is a real one. No stream may have missed a wait for another."""
    if request.param == "real":
        yield None
        return
    with simulated() as gpu:
        yield gpu
        assert gpu.races == []
        assert gpu.freed == []


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy of a loader begins long after it was queued."""
    copy = SideStream.copy

    def copy_late(self: SideStream, tensor: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(SLEEP)
        return copy(self, tensor)

    monkeypatch.setattr(SideStream, "copy", copy_late)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 images of two sizes with masks, boxes, arrays of one shape and of several."""
    folder = tmp_path_factory.mktemp("side") / "scenes"
    rng = np.random.default_rng(0)
    fields = {"seg": "mask", "box": "boxes", "latent": "array", "tokens": "array"}
    with fastpipe.Writer(folder, fields=fields) as writer:
        for number in range(18):
            size = (32, 40) if number % 2 else (40, 32)
            image = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
            writer.add(
                image,
                number % 3,
                seg=image[:, :, 0] // 64,
                box=[[2, 3, 20, 25]],
                latent=rng.normal(size=(4, 32, 32)).astype(np.float16),
                tokens=torch.full((number % 3, 5), number).bfloat16(),
            )
    return folder


def loader_of(data: Path, device: str, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(
        data,
        BATCH,
        device=device,
        **{"size": 32, "num_workers": 2, "prefetch_factor": 2, **options},
    )


def tensors_of(batch: Any) -> list[torch.Tensor]:
    values = batch.values() if isinstance(batch, dict) else batch
    return [
        tensor for value in values for tensor in (value if isinstance(value, list) else [value])
    ]


def taken(loader: fastpipe.Loader, epochs: int = 2) -> list[list[torch.Tensor]]:
    """What a training loop reads of each batch, in its own stream."""
    with loader:
        return [
            [tensor.clone() for tensor in tensors_of(batch)]
            for _ in range(epochs)
            for batch in loader
        ]


def waits_for_the_program(gpu: Gpu) -> bool:
    """Whether the loader's last stream has waited for the program's work."""
    program, side = gpu.defaults[0], gpu.streams[-1]
    assert program.clock[program.number] > 0
    return side.clock.get(program.number, 0) > 0


def assert_same(there: list[list[torch.Tensor]], here: list[list[torch.Tensor]]) -> None:
    for one, other in zip(there, here, strict=True):
        for tensor, expected in zip(one, other, strict=True):
            assert tensor.device.type == "cuda"
            different = (tensor.cpu().double() - expected.double()).abs() > 0.05
            assert (
                different.sum() <= 0.01 * different.numel()
            )  # a pixel on an edge between two may go to either


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.usefixtures("late")
def test_a_late_side_stream_changes_no_value(name: str, scenes: Path, gpu: Gpu | None) -> None:
    """Slots are lent again, and batches handed out, while the copies from and to them are still to come.

    Nothing waits for the program: it begins beside the step that the program has queued, not after it.
    """
    here = taken(loader_of(scenes, "cpu", **OPTIONS[name]()))
    assert_same(taken(loader_of(scenes, "cuda:0", **OPTIONS[name]())), here)
    if gpu is not None:
        assert not waits_for_the_program(gpu)


def test_another_gpu_than_the_current_one(scenes: Path, gpu: Gpu | None) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    here = taken(loader_of(scenes, "cpu", **OPTIONS["kornia"]()), epochs=1)
    there = taken(loader_of(scenes, "cuda:1", **OPTIONS["kornia"]()), epochs=1)
    assert {tensor.device for batch in there for tensor in batch} == {torch.device("cuda", 1)}
    assert torch.cuda.current_device() == 0
    assert_same(there, here)


class Shifts(torch.nn.Module):
    """Adds a weight, an attribute and what a function of the program reads."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3, 1, 1, device=device))
        self.attribute = torch.zeros(3, 1, 1, device=device)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + self.weight + self.attribute


@pytest.mark.parametrize("name", ["weight", "attribute"])
def test_a_users_module_is_read_after_the_program_has_written_it(
    name: str, scenes: Path, gpu: Gpu | None
) -> None:
    """Its weights are written in the program's stream, which is late: the side stream waits for it there."""
    plain = taken(loader_of(scenes, "cpu", augment=Augment(mean=None, std=None)), epochs=1)
    module = Shifts("cuda:0")
    with loader_of(scenes, "cuda:0", augment=Augment(module, mean=None, std=None)) as loader:
        torch.cuda._sleep(SLEEP)
        with torch.no_grad():
            getattr(module, name).fill_(0.25)
        shifted = [[images.clone(), labels.clone()] for images, labels in loader]
    assert_same(shifted, [[images + 0.25, labels] for images, labels in plain])
    if gpu is not None:
        assert waits_for_the_program(gpu)


def test_what_is_staged_in_inference_mode_is_usual_memory(scenes: Path, gpu: Gpu | None) -> None:
    """A loop that evaluates first has the next batch staged, on which it trains."""
    with loader_of(scenes, "cuda:0", augment=Augment.imagenet()) as loader:
        batches = iter(loader)
        with torch.inference_mode():
            next(batches)
        for images, labels in batches:
            assert not images.is_inference()
            assert not labels.is_inference()
            if gpu is None:  # the simulated one has no autograd
                weights = torch.ones(2, 3, 3, 3, device="cuda:0", requires_grad=True)
                torch.nn.functional.conv2d(images, weights).sum().backward()
                assert weights.grad is not None


def test_a_default_device_changes_nothing(scenes: Path, gpu: Gpu | None) -> None:
    """torch.set_default_device("cuda"), as some programs begin: pinned memory stays pinned, with no word about it."""
    expected = taken(loader_of(scenes, "cpu", **OPTIONS["kornia"]()), epochs=1)
    torch.set_default_device("cuda:0")
    try:
        there = taken(loader_of(scenes, "cuda:0", **OPTIONS["kornia"]()), epochs=1)
        here = taken(loader_of(scenes, "cpu", **OPTIONS["kornia"]()), epochs=1)
        with loader_of(scenes, "cuda:0") as loader:
            next(iter(loader))
            assert loader.stats().pinned_bytes > 0
    finally:
        torch.set_default_device(None)
    assert_same(there, expected)
    for batch, other in zip(here, expected, strict=True):
        assert all(map(torch.equal, batch, other))


@pytest.mark.gpu
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)  # of Inductor
def test_compiled_operations_give_the_same(scenes: Path) -> None:
    made = [Augment.randaugment(compile=compile, mean=None, std=None) for compile in (True, False)]
    compiled, plain = (taken(loader_of(scenes, "cuda:0", augment=augment)) for augment in made)
    assert_same(compiled, [[tensor.cpu() for tensor in batch] for batch in plain])
