"""The simulated GPUs of the tests: they note each wait of the host, each mixture of devices, each missing wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from support.devices.simulated_gpu import TAKEN_AT_ONCE_BYTES, Gpu, simulated
from torch import Tensor

THERE = "cuda:0"


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with simulated() as gpu:
        yield gpu


def on_host(count: int = 4) -> Tensor:
    return torch.arange(float(count))


def pinned(count: int) -> Tensor:
    return torch.empty(count, pin_memory=True).fill_(1)


LARGE = TAKEN_AT_ONCE_BYTES // 4 + 1  # floats

WAITS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0]),
    "bool": lambda x: bool(x.any()),
    "if": lambda x: 1 if x[0] > 0 else 0,
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to a pageable tensor": lambda x: torch.empty(4).copy_(x, non_blocking=True),
    "from the host": lambda x: on_host().to(THERE),
    "a pinned tensor, blocking": lambda x: pinned(4).to(THERE),
    "a large pageable tensor": lambda x: on_host(LARGE).to(THERE, non_blocking=True),
    "a large pinned tensor of another dtype": lambda x: pinned(LARGE).to(
        THERE, torch.float64, non_blocking=True
    ),
    "into a tensor": lambda x: x.copy_(on_host()),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device=THERE),
    "as_tensor": lambda x: torch.as_tensor(on_host(), device=THERE),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 1),
    "masked_select": lambda x: torch.masked_select(x, x > 1),
    "a mask as index": lambda x: x[x > 1],
    "an index of the host": lambda x: x[torch.tensor([0, 1])],
    "to a mask": lambda x: x.index_put_((x > 1,), x[2:].clone()),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "unique": lambda x: torch.unique(x),
    "bincount": lambda x: torch.bincount(x.long()),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
    "solve": lambda x: torch.linalg.solve(torch.eye(4, device=THERE), x),
    "inv": lambda x: torch.linalg.inv(torch.eye(4, device=THERE)),
    "check_errors": lambda x: torch.linalg.cholesky_ex(
        torch.eye(4, device=THERE), check_errors=True
    ),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "of a stream": lambda x: torch.cuda.current_stream().synchronize(),
    "of an event": lambda x: torch.cuda.current_stream().record_event().synchronize(),
}
NO_WAITS: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (x + 1) * x.mean() - torch.tensor(2.0),
    "a view": lambda x: x.view(2, 2)[0].unsqueeze_(0),
    "a small copy": lambda x: on_host().to(THERE, non_blocking=True),
    "a large pinned copy": lambda x: pinned(LARGE).to(THERE, non_blocking=True),
    "to pinned memory": lambda x: torch.empty(4, pin_memory=True).copy_(x, non_blocking=True),
    "between devices": lambda x: x.to("cuda:1"),
    "a number to a mask": lambda x: x.__setitem__(x > 1, 0.5),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.5),
    "an index of the device": lambda x: x[x.long()],
    "repeat_interleave of a known size": lambda x: x.repeat_interleave(x.long(), output_size=6),
    "solve_ex": lambda x: torch.linalg.solve_ex(torch.eye(4, device=THERE), x),
    "made there": lambda x: torch.linspace(0, 1, 5, device=THERE),
    "an event that is asked": lambda x: torch.cuda.current_stream().record_event().query(),
}


def test_a_wait_is_noted_with_its_line(gpu: Gpu) -> None:
    for name, call in WAITS.items():
        gpu.waits.clear()
        call(torch.arange(4.0, device=THERE))
        assert len(gpu.waits) == 1, name
        assert "device/test_simulated_gpu.py:" in gpu.waits[0]


def test_what_does_not_wait_is_not_noted(gpu: Gpu) -> None:
    for name, call in NO_WAITS.items():
        call(torch.arange(4.0, device=THERE))
        assert gpu.waits == [], name


def test_values_are_right_and_the_place_is_known(gpu: Gpu) -> None:
    there = torch.arange(6.0, device="cuda:1").view(2, 3)
    there[0, 1:] *= 2
    assert (there.device, there.is_cuda, there.is_pinned()) == (
        torch.device("cuda", 1),
        True,
        False,
    )
    assert there.sum(0).tolist() == [3.0, 6.0, 9.0]
    layer = torch.nn.Linear(3, 2).to("cuda:1")
    assert torch.equal(
        layer(there).cpu(),
        torch.nn.functional.linear(*(x.cpu() for x in (there, *layer.parameters()))),
    )


def test_tensors_of_two_devices_are_refused(gpu: Gpu) -> None:
    there = torch.arange(4.0, device=THERE)
    mixtures: list[Callable[[], Tensor]] = [
        lambda: there + on_host(),
        lambda: torch.cat([there, on_host()]),
        lambda: there.index_select(0, torch.tensor([1])),
        lambda: torch.where(there > 1, there, on_host()),
        lambda: there + there.to("cuda:1"),
    ]
    for mix in mixtures:
        with pytest.raises(
            RuntimeError, match=r"Expected all tensors to be on the same device, .* cuda:0 and c"
        ):
            mix()
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        there.numpy()


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("writes", [True, False])
def test_a_missing_wait_between_streams_is_noted(waits: bool, writes: bool, gpu: Gpu) -> None:
    """Reading what another stream writes, and writing what it reads."""
    side = torch.cuda.Stream(torch.device(THERE))
    there = torch.arange(4.0, device=THERE)
    side.wait_stream(torch.cuda.current_stream())
    if not writes:
        there.add_(1)
        if waits:
            side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copied = there.clone()
    if writes:
        if waits:
            torch.cuda.current_stream().wait_event(side.record_event())
        there.add_(1)
    assert len(gpu.races) == (0 if waits else 1)
    copied.record_stream(torch.cuda.current_stream())


@pytest.mark.parametrize("recorded", [True, False])
def test_memory_that_another_stream_may_still_use_is_noted(recorded: bool, gpu: Gpu) -> None:
    side = torch.cuda.Stream(torch.device(THERE))
    with torch.cuda.stream(side):
        there = torch.arange(4.0, device=THERE)
    torch.cuda.current_stream().wait_stream(side)
    there.sum()
    if recorded:
        there.record_stream(torch.cuda.current_stream())
    del there
    assert len(gpu.freed) == (0 if recorded else 1)
    assert gpu.races == []


def test_what_follows_a_sleep_is_late(gpu: Gpu) -> None:
    side = torch.cuda.Stream(torch.device(THERE))
    with torch.cuda.stream(side):
        torch.cuda._sleep(1000)
    assert torch.cuda.current_stream().record_event().query()
    event = side.record_event()
    assert not event.query()
    assert any(event.query() for _ in range(10))


def test_outside_there_is_no_simulated_gpu() -> None:
    before = (
        torch.cuda.is_available(),
        torch.cuda.device_count(),
        torch.cuda.Stream,
        torch.Generator,
    )
    with simulated():
        assert torch.cuda.device_count() == 2
    assert (
        torch.cuda.is_available(),
        torch.cuda.device_count(),
        torch.cuda.Stream,
        torch.Generator,
    ) == before
