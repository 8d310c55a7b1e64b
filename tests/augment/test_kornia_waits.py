"""kornia's modules on a simulated GPU: the host waits for none, whatever the size and the number of images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.batches.augment_batches import differing, photos, tensors_of
from support.batches.kornia_cases import CASES
from support.devices.simulated_gpu import Gpu, simulated
from test_kornia_mixing import MIXING

from fastpipe import Augment
from fastpipe.augment.kornia_operation import WithoutWaits

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"small": (28, 40), "with maps": (96, 100), "large": (320, 320)}


def augmented(gpu: Gpu, augment: Augment, size: tuple[int, int], count: int, batch: int) -> torch.Tensor:
    """The images of a batch; what the host waited for is in gpu.waits."""
    plan = augment.plan(np.arange(count) + batch * count, size, seed=0, epoch=0, batch=batch)
    images, labels = photos(count, *size).to("cuda:0"), torch.zeros(count, dtype=torch.int64, device="cuda:0")
    tensors = tensors_of(plan, "cuda:0")
    gpu.waits.clear()
    return augment.carry_out(images, labels, plan, tensors)[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*CASES, *MIXING])
def test_the_host_never_waits(name: str, size: str) -> None:
    augment = Augment([(CASES | MIXING)[name]()], mean=None, std=None, num_classes=5)
    with simulated() as gpu:
        if name == "RandomJPEG":
            augmented(gpu, augment, SIZES[size], 3, 0)  # kornia keeps what it needs on each device
        augmented(gpu, augment, SIZES[size], 3, 1)
        assert gpu.waits == []
        assert gpu.races == []


@pytest.mark.parametrize("name", ["RandomRain", "RandomThinPlateSpline", "RandomFisheye", "ColorJitter"])
def test_the_host_never_waits_for_many_images(name: str) -> None:
    """What is small for an image is large for a batch."""
    with simulated() as gpu:
        augmented(gpu, Augment([CASES[name]()], mean=None, std=None), (32, 40), 600, 0)
        assert gpu.waits == []


@pytest.mark.parametrize("name", ["RandomRain", "RandomThinPlateSpline", "RandomFisheye", "RandomSaltAndPepperNoise"])
def test_a_gpu_gives_what_a_cpu_gives(name: str) -> None:
    augment = Augment([CASES[name]()], mean=None, std=None)
    expected = augment(photos(6, 96, 100), batch=0)
    with simulated() as gpu:
        result = augmented(gpu, augment, (96, 100), 6, 0)
        assert differing(result.cpu(), expected) < 0.001


COPIES = {
    "to": lambda x: x.to("cuda:0"),
    "to a dtype": lambda x: x.to("cuda:0", torch.float16),
    "by keyword": lambda x: x.to(device=torch.device("cuda:0"), dtype=torch.float64),
    "to another": lambda x: x.to(torch.empty(0, device="cuda:0")),
    "expanded": lambda x: x[:, None].expand(-1, 3).to("cuda:0"),
    "as_tensor": lambda x: torch.as_tensor(x, device="cuda:0"),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device="cuda:0", dtype=torch.float64),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("count", [3, 100_000])
def test_copies_to_a_gpu_are_queued(name: str, count: int) -> None:
    values = torch.arange(float(count))
    with simulated() as gpu:
        there = COPIES[name](values)
        assert gpu.waits
        gpu.waits.clear()
        with WithoutWaits():
            queued = COPIES[name](values)
        assert gpu.waits == []
        assert (queued.device, queued.dtype, queued.shape) == (there.device, there.dtype, there.shape)
        assert torch.equal(queued.cpu(), there.cpu())


def test_what_stays_on_the_host_is_left_as_it_is() -> None:
    values = torch.arange(3.0)
    with WithoutWaits():
        assert values.to("cpu") is values.to(torch.float32) is torch.as_tensor(values) is values
        assert values.to(torch.float64).dtype == torch.float64
        assert torch.tensor([1.0], device="cpu").device.type == "cpu"
