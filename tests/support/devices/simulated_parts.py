"""Streams, events, memory and tensors of simulated GPUs: who has waited for whose work.

Note [who waits for whom]: each stream counts its work, and knows how far it has waited for each other stream: an event
keeps what its stream knew, and `wait_event` adds this to what another knows (vector clocks; Lamport, Mattern). Work on
a stream is safe if the stream knows all work of others that wrote the same memory, and for a write, that read it. An
event that is asked whether it is done teaches nothing: on another day the answer would come later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from support.devices.simulated_gpu import Gpu

Clock = dict[int, int]  # stream -> how much of its work is known


@dataclass(eq=False)
class Stream:
    """Looks like torch.cuda.Stream."""

    gpu: Gpu
    device: torch.device
    number: int
    clock: Clock = field(default_factory=dict)
    asleep: int = 0  # how often it will still be asked in vain

    def wait_event(self, event: Event) -> None:
        learn(self.clock, event.clock)
        if event.behind is not None:
            self.asleep = max(self.asleep, event.behind.asleep)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self.gpu)
        event.record(self)
        return event

    def query(self) -> bool:
        self.asleep = max(0, self.asleep - 1)
        return not self.asleep

    def synchronize(self) -> None:
        self.gpu.wait("Stream.synchronize", self.clock)


class Event:
    """Looks like torch.cuda.Event."""

    def __init__(self, gpu: Gpu, **options: Any) -> None:
        self.gpu = gpu
        self.clock: Clock = {}
        self.behind: Stream | None = None  # a stream that slept when this was recorded

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self.gpu.current()
        self.clock = {**self.gpu.known, **stream.clock}
        self.behind = stream if stream.asleep else None

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self.gpu.current()).wait_event(self)

    def query(self) -> bool:
        return self.behind is None or self.behind.query()

    def synchronize(self) -> None:
        self.gpu.wait("Event.synchronize", self.clock)

    def elapsed_time(self, later: Event) -> float:
        return 0.25


@dataclass(eq=False)
class Memory:
    """A piece of a GPU's memory: whose it is, and who uses it.

    Attributes:
        home: the stream that it goes back to.
        wrote: the stream of the latest write, and the number of this work there.
        reads: the number of the latest read since then, by stream.
        recorded: streams that `home` waits for before the memory goes to somebody else.
    """

    home: Stream
    wrote: tuple[int, int] = (0, 0)
    reads: Clock = field(default_factory=dict)
    recorded: set[int] = field(default_factory=set)

    def __del__(self) -> None:
        users = {**self.reads, **dict([self.wrote])}
        for stream, work in users.items():
            if stream not in self.recorded | {self.home.number} and not self.home.gpu.knows(
                self.home, stream, work
            ):
                self.home.gpu.freed.append(
                    f"stream {stream} may still use memory of stream {self.home.number}"
                )


class DeviceTensor(torch.Tensor):
    """A CPU tensor, `held`, that claims to be on a GPU."""

    held: Tensor
    memory: Memory

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device, memory: Memory) -> DeviceTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=device,
        )
        made.held, made.memory = held, memory
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{function} outside `simulated()`")

    def __repr__(self) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.device}, {tuple(self.shape)}, {self.dtype})"

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first"
        )

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def record_stream(self, stream: Stream) -> None:
        self.memory.recorded.add(stream.number)


def learn(clock: Clock, other: Clock) -> None:
    for stream, work in other.items():
        clock[stream] = max(clock.get(stream, 0), work)
