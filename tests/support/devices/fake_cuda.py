"""torch.cuda without a GPU: which GPU is current at each call, memory that is refused, an error that stays.

Everything that is on a GPU lies on the host instead, and all work is done at once.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

BROKEN = "CUDA error: device-side assert triggered"


class FakeCuda:
    """CUDA's runtime, as far as a loader's stream needs it.

    Attributes:
        current: number of the current GPU.
        touched: (call, GPU) of the calls that set up the GPU that is current then.
        registered: bytes of page-locked memory, by address.
        refuses, refuses_to_allocate: the fewest bytes that are refused; None: nothing is.
        broken: a kernel has failed: from then on each call does.
        breaks: a kernel fails right after the next look at an event.
    """

    def __init__(self) -> None:
        self.current = 0
        self.touched: list[tuple[str, int]] = []
        self.registered: dict[int, int] = {}
        self.refuses: int | None = None
        self.refuses_to_allocate: int | None = None
        self.allocated: list[int] = []
        self.broken = self.breaks = False
        self._blocks: list[weakref.ref[torch.Tensor]] = []

    def touch(self, call: str) -> None:
        self.touched.append((call, self.current))
        if self.broken:
            raise RuntimeError(BROKEN)

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1
        self.touched.append(("register", self.current))
        if self.refuses is not None and size >= self.refuses:
            return 2
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.touched.append(("unregister", self.current))
        del self.registered[address]
        return 0

    def cudaGetErrorString(self, status: int) -> str:  # noqa: N802
        return f"CUDA error {status}\nmore lines"

    def exchange(self, number: int) -> int:
        self.current, before = number, self.current
        return before

    def allocate(self, size: int) -> torch.Tensor:
        """As torch's own pinned memory: where a kernel has failed, its destructor ends the process."""
        if self.refuses_to_allocate is not None and size >= self.refuses_to_allocate:
            raise RuntimeError("CUDA error: out of memory\nmore lines")
        self.allocated.append(size)
        made = _real_empty(size, dtype=torch.uint8, device="cpu")
        self._blocks.append(weakref.ref(made, lambda _: os.abort() if self.broken else None))
        return made

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before = self.exchange(device.index)
        yield
        self.current = before

    @contextmanager
    def stream(self, stream: FakeQueue) -> Iterator[None]:
        """As torch's: it sets the GPU of the stream, and afterwards the one that was current."""
        before = self.exchange(stream.number)
        yield
        self.current = before
        self.touch("leave")


class FakeQueue:
    """A stream of a GPU."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.number = 0 if device is None or device.index is None else device.index

    def wait_event(self, event: object) -> None:
        """At once."""


def simulate(patch: pytest.MonkeyPatch, gpus: int = 2) -> FakeCuda:
    """Puts it in the place of torch.cuda."""
    fake = FakeCuda()

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            pass

        def record(self, stream: FakeQueue) -> None:
            """At once."""

        def query(self) -> bool:
            fake.touch("query")
            fake.broken |= fake.breaks
            return True

        def synchronize(self) -> None:
            fake.touch("synchronize")

        def elapsed_time(self, later: object) -> float:
            return 1.0

    def empty(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        if not pin_memory:
            return _real_empty(*shape, **options)
        if torch.device(options.get("device", torch.get_default_device())).type != "cpu":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        (size,) = shape if isinstance(shape[0], int) else shape[0]
        return fake.allocate(size)

    replaced: dict[str, object] = {
        "is_available": lambda: True,
        "device_count": lambda: gpus,
        "current_device": lambda: fake.current,
        "current_stream": FakeQueue,
        "cudart": lambda: fake,
        "Stream": FakeQueue,
        "Event": Event,
        "device": fake.device,
        "stream": fake.stream,
        "synchronize": lambda device: fake.touch("nothing") if fake.broken else None,
        "_exchange_device": fake.exchange,
        "_maybe_exchange_device": fake.exchange,
    }
    for name, value in replaced.items():
        patch.setattr(torch.cuda, name, value)
    patch.setattr(torch._C, "_CudaEventBase", Event)
    patch.setattr(torch, "empty", empty)
    patch.setattr(torch, "ones", lambda *shape, device: _real_ones(*shape))
    patch.setattr(torch.Tensor, "to", _on_the_host(torch.Tensor.to))
    patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    return fake


_real_empty, _real_ones = torch.empty, torch.ones


def _on_the_host(real: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def to(tensor: torch.Tensor, *where: Any, **how: Any) -> torch.Tensor:
        if where and isinstance(where[0], torch.device) and where[0].type == "cuda":
            return tensor.clone()
        return real(tensor, *where, **how)

    return to
