"""kornia's modules on a simulated GPU: the host waits for none, and they give what a CPU gives."""

from __future__ import annotations

import pytest
import torch
from support.batches.augment_batches import differing, photos
from support.batches.kornia_cases import CASES, MIXING_CASES
from support.batches.kornia_waits import carried_out, planned, waits_of
from support.devices.simulated_gpu import simulated

from fastpipe.device.augment.without_waits import WithoutWaits

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = [*CASES, *MIXING_CASES]


@pytest.mark.parametrize("part", range(4))
def test_the_host_never_waits(part: int) -> None:
    assert waits_of(NAMES[part::4], (28, 40), count=3) == {}


def test_the_host_never_waits_for_many_images() -> None:
    """What is small for an image is large for a batch."""
    assert waits_of(["RandomThinPlateSpline", "RandomFisheye"], (32, 40), count=600) == {}


def test_a_gpu_gives_what_a_cpu_gives() -> None:
    size = (96, 100)
    for name in (
        "RandomRain",
        "RandomThinPlateSpline",
        "RandomFisheye",
        "RandomSaltAndPepperNoise",
    ):
        augment, plan = planned(name, size, 6, batch=0)
        expected = augment(photos(6, *size), batch=0)
        with simulated() as gpu:
            result = carried_out(gpu, augment, plan, size, 6)
            assert gpu.waits == []
            assert differing(result.cpu(), expected) < 0.001, name


COPIES = {
    "to": lambda x: x.to("cuda:0"),
    "to a dtype": lambda x: x.to("cuda:0", torch.float16),
    "by keyword": lambda x: x.to(device=torch.device("cuda:0"), dtype=torch.float64),
    "to another": lambda x: x.to(torch.empty(0, device="cuda:0")),
    "expanded": lambda x: x[:, None].expand(-1, 3).to("cuda:0"),
    "as_tensor": lambda x: torch.as_tensor(x, device="cuda:0"),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device="cuda:0", dtype=torch.float64),
}


@pytest.mark.parametrize("count", [3, 100_000])
def test_copies_to_a_gpu_are_queued(count: int) -> None:
    values = torch.arange(float(count))
    with simulated() as gpu:
        for name, copy in COPIES.items():
            there = copy(values)
            assert gpu.waits, name
            gpu.waits.clear()
            with WithoutWaits():
                queued = copy(values)
            assert gpu.waits == [], name
            assert (queued.device, queued.dtype, queued.shape) == (
                there.device,
                there.dtype,
                there.shape,
            )
            assert torch.equal(queued.cpu(), there.cpu()), name
            gpu.waits.clear()


def test_what_stays_on_the_host_is_left_as_it_is() -> None:
    values = torch.arange(3.0)
    with WithoutWaits():
        assert values.to("cpu") is values.to(torch.float32) is torch.as_tensor(values) is values
        assert values.to(torch.float64).dtype == torch.float64
        assert torch.tensor([1.0], device="cpu").device.type == "cpu"
