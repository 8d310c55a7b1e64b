"""A device's name -> where its batches are copied and augmented: a side stream of CUDA, or at once on the CPU."""

from __future__ import annotations

import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.errors import ConfigError

# Between two looks at an event. A loop that waits for one is several batches ahead of its GPU.
_LOOK_AGAIN_S = 0.5e-3


class Mark(Protocol):
    """A place in a queue of work: all that was queued before it."""

    def done(self) -> bool:
        """Whether all of it has been done; never waits."""

    def wait(self, timeout_s: float) -> bool:
        """Whether it has been done within so many seconds."""

    def since(self, earlier: Mark) -> float:
        """Seconds of the device between two marks that are done."""


class Stream(Protocol):
    """Where batches are made ready for the training loop.

    Attributes:
        device: that they end up on.
        copies: its memory is not the host's.
        lookahead: batches to make ready beyond the one that is handed out.
    """

    device: torch.device
    copies: bool
    lookahead: int

    def buffer(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Host memory that is copied to the device without the host waiting, if that can be had."""

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Queues a copy to the device; the tensor must stay as it is until a later mark is done."""

    def work(self) -> AbstractContextManager[object]:
        """What is queued inside goes to this stream."""

    def mark(self) -> Mark:
        """A mark in this stream."""

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        """Lets the training loop's stream use tensors of this one, after `mark`; returns a mark in that stream."""


def stream_of(device: object) -> Stream:
    """Checks `device` and makes its stream.

    Args:
        device: None or "cpu"; "cuda", "cuda:1"; a torch.device.

    Raises:
        ConfigError: it is none of these, or not there.
    """
    expected = 'device: expected "cpu", "cuda" or "cuda:0", "cuda:1", ...'
    try:
        chosen = torch.device("cpu" if device is None else device)  # type: ignore[call-overload]
    except (RuntimeError, TypeError) as problem:
        raise ConfigError(f"{expected}, got {device!r}") from problem
    if chosen.type == "cpu":
        return HostStream()
    if chosen.type != "cuda":
        raise ConfigError(
            f'{expected}, got {device!r}; for another kind of device pass "cpu" and move the batches yourself'
        )
    if not torch.cuda.is_available():
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch sees no GPU"
        raise ConfigError(f'device: got {device!r}, but CUDA cannot be used: {why}; pass device="cpu"')
    count = torch.cuda.device_count()
    number = torch.cuda.current_device() if chosen.index is None else chosen.index
    if number >= count:
        raise ConfigError(f"device: got {device!r}, but torch sees {count} GPU(s), cuda:0 to cuda:{count - 1}")
    return CudaStream(torch.device("cuda", number))


class _Now:
    """A mark where nothing is queued: everything has been done."""

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> bool:
        return True

    def since(self, earlier: Mark) -> float:
        return 0.0


class HostStream:
    """The CPU: everything is done when it is asked for, in the thread that asks."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.copies = False
        self.lookahead = 0  # it would only delay the batch that is handed out

    def buffer(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        return np.empty(shape, dtype=np.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def work(self) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> Mark:
        return _Now()

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        return mark


class _Event:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def done(self) -> bool:
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self, timeout_s: float) -> bool:
        # Not by synchronize: that cannot be interrupted, and keeps a CPU busy which the engine's threads could use.
        deadline = time.monotonic() + timeout_s
        while not self.done():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_AGAIN_S)
        return True

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, _Event)
        return float(earlier._event.elapsed_time(self._event)) / 1e3

    def hold_back(self, stream: torch.cuda.Stream) -> None:
        """What is queued in `stream` from now on begins after this mark."""
        stream.wait_event(self._event)


class CudaStream:
    """A side stream of a GPU: copies and augmentation run beside the training step; the host never waits for them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.copies = True
        self.lookahead = 1
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pins = True

    def buffer(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        if self._pins:
            try:
                pinned: NDArray[np.uint8] = torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()
                return pinned
            except RuntimeError as problem:
                self._pins = False
                reason = str(problem).strip().splitlines()[0]
                warnings.warn(
                    f"cannot pin {np.prod(shape, dtype=np.int64):,} bytes of host memory for batches ({reason}); "
                    "using pageable memory instead. Copies to the GPU are then slower, and the training loop waits "
                    "for them. Raise the limit on locked memory (ulimit -l, or the container's limit), or free "
                    "pinned memory",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return np.empty(shape, dtype=np.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device, non_blocking=True)

    def work(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream)

    def mark(self) -> Mark:
        return self._mark_in(self._stream)

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        assert isinstance(mark, _Event)
        users = torch.cuda.current_stream(self.device)
        before = self._mark_in(users)
        mark.hold_back(users)
        for tensor in tensors:
            tensor.record_stream(users)  # its memory goes back only after what the user queues there
        return before

    def _mark_in(self, stream: torch.cuda.Stream) -> Mark:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return _Event(event)
