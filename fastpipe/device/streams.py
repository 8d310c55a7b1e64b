"""A device's name -> where its batches are copied and augmented: a side stream of CUDA, or at once on the CPU."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.device.cuda_stream import CudaStream
from fastpipe.device.marks import Mark
from fastpipe.errors import ConfigError


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

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory of all slots. Any thread may ask."""

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Host memory of a batch, to be used for many; copied to the device without the host waiting, if possible."""

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Queues a copy to the device; the tensor must stay as it is until a later mark is done."""

    def work(self, follows: bool = False) -> AbstractContextManager[object]:
        """What is queued inside goes to this stream; `follows`: behind what the program has queued in its own."""

    def mark(self) -> Mark:
        """A mark in this stream."""

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        """Lets the training loop's stream use tensors of this one, after `mark`; returns a mark in that stream."""


def stream_of(device: object) -> Stream:
    """Checks `device` and makes its stream.

    Args:
        device: None or "cpu"; "cuda", "cuda:1"; a torch.device. "cuda" is the current GPU. Where that is cuda:0
            because nobody has set one, and a launcher set LOCAL_RANK, it is the GPU of that number.

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
    number = _own_gpu(count) if chosen.index is None else chosen.index
    if number >= count:
        raise ConfigError(f"device: got {device!r}, but torch sees {count} GPU(s), cuda:0 to cuda:{count - 1}")
    return CudaStream(torch.device("cuda", number))


def _own_gpu(count: int) -> int:
    """The GPU that "cuda" means: each process of a machine has its own, unless it is told or shown only one."""
    current, local_rank = torch.cuda.current_device(), os.environ.get("LOCAL_RANK", "")
    own = int(local_rank) if local_rank.isdecimal() else 0
    return own if current == 0 and own < count else current


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
        self.pinned_bytes = 0

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        return np.empty(shape, dtype=np.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def work(self, follows: bool = False) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> Mark:
        return _Now()

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        return mark
