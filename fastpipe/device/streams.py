"""Where batches are copied and augmented: at once on the CPU; or on a GPU, beside the training step."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.device.page_locked import PageLocked
from fastpipe.errors import ConfigError

# Between two looks at an event. A loop that waits for one is several batches ahead of its GPU.
_LOOK_AGAIN_S = 0.5e-3
_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all GPUs
_SURFACED = (
    "fastpipe: CUDA reports the error of a kernel at a later call, which was the loader's this time. The kernel is one "
    "of the program or of augment=. To see the line that queued it, run the program with CUDA_LAUNCH_BLOCKING=1"
)
_UNPINNED = (
    "cannot pin {:,} bytes of host memory for batches ({}); using pageable memory instead. Copies to the GPU are then "
    "slower, and the training loop waits for them. Raise the limit on locked memory (ulimit -l, or the container's "
    "limit), or free pinned memory"
)


class Mark:
    """A place in a queue of work: all that was queued before it. On the CPU nothing is queued: it has been done."""

    def done(self) -> bool:
        """Whether all of it has been done; never waits. RuntimeError: work of the program has failed on the device."""
        return True

    def wait(self, timeout_s: float) -> bool:
        """Whether it has been done within so many seconds; raises as `done`."""
        return True

    def since(self, earlier: Mark) -> float:
        """Seconds of the device between two marks that are done."""
        return 0.0


class Stream:
    """Where batches are made ready for the training loop. The CPU does all at once, in the thread that asks."""

    device = torch.device("cpu")  # that they end up on
    copies = False  # its memory is not the host's
    lookahead = 0  # batches to make ready beyond the one handed out, which more of them would only delay here

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory of all slots. Any thread may ask."""
        return 0

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Host memory of a batch, to be used for many; copied to the device without the host waiting, if possible."""
        return np.empty(shape, dtype=np.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Queues a copy to the device; the tensor must stay as it is until a later mark is done."""
        return tensor

    def work(self, follows: bool = False) -> AbstractContextManager[object]:
        """What is queued inside goes to this stream; `follows`: behind what the program has queued in its own."""
        return nullcontext()

    def mark(self) -> Mark:
        """A mark in this stream."""
        return Mark()

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        """Lets the training loop's stream use tensors of this one, after `mark`; returns a mark in that stream."""
        return mark


class _Event(Mark):
    def __init__(self, event: torch.cuda.Event, device: torch.device) -> None:
        self._event = event
        self._device = device

    def done(self) -> bool:
        try:
            with torch.cuda.device(self._device):  # Note [the current GPU]
                return bool(self._event.query())  # type: ignore[no-untyped-call]
        except RuntimeError as problem:
            problem.add_note(_SURFACED)
            raise

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


class CudaStream(Stream):
    """A side stream of a GPU; the host never waits for it.

    Note [the current GPU]
    Some calls set up the current GPU, which takes half a GB there: a look at an event, registering memory, leaving
    torch.cuda.stream, which sets the GPU that was current before. Where a program has set none, that is GPU 0 for all
    ranks of a machine. So this stream's own GPU is the current one during these calls.
    """

    copies = True
    lookahead = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # after the latest copy
        self._slots = PageLocked(self._register, self._release)
        # What makes pinned memory, the best first, and the fewest bytes that it has refused.
        self._makers = dict.fromkeys((self._slots.take, _allocate), math.inf)

    @property
    def pinned_bytes(self) -> int:
        return self._slots.bytes

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        size_bytes = math.prod(shape)
        for make, refused in self._makers.items():
            if size_bytes < refused:
                try:
                    return make(size_bytes).reshape(shape)
                except (OSError, RuntimeError) as problem:
                    self._raise_the_programs_error()
                    self._makers[make] = size_bytes
                    if make is _allocate and refused == math.inf:
                        reason = str(problem).strip().splitlines()[0]
                        warnings.warn(_UNPINNED.format(size_bytes, reason), RuntimeWarning, stacklevel=2)
        return np.empty(shape, dtype=np.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        there = tensor.to(self.device, non_blocking=True)
        self._copied.record(self._stream)
        return there

    @contextmanager
    def work(self, follows: bool = False) -> Iterator[None]:
        with torch.cuda.device(self.device):  # Note [the current GPU]
            if follows:
                self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                yield

    def mark(self) -> Mark:
        return self._mark_in(self._stream)

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        assert isinstance(mark, _Event)
        users = torch.cuda.current_stream(self.device)
        before = self._mark_in(users)
        users.wait_event(mark._event)
        for tensor in tensors:
            tensor.record_stream(users)  # its memory goes back only after what the user queues there
        return before

    def _mark_in(self, stream: torch.cuda.Stream) -> Mark:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return _Event(event, self.device)

    def _register(self, address: int, size_bytes: int) -> None:
        with torch.cuda.device(self.device):  # Note [the current GPU]
            status = self._cudart.cudaHostRegister(address, size_bytes, _PORTABLE)
        if int(status) != 0:
            raise RuntimeError(self._cudart.cudaGetErrorString(status))

    def _release(self, address: int) -> tuple[Callable[[], object], ...]:
        before: list[int] = []  # the current GPU
        return (
            partial(before.extend, map(torch.cuda._exchange_device, (self.device.index,))),  # Note [the current GPU]
            partial(torch._C._CudaEventBase.synchronize, self._copied),  # that of torch.cuda.Event is Python's
            partial(self._cudart.cudaHostUnregister, address),
            partial(deque, map(torch.cuda._maybe_exchange_device, before), 0),
        )

    def _raise_the_programs_error(self) -> None:
        """After a call that failed: was it the call, or an earlier kernel of the program?"""
        with suppress(RuntimeError):
            torch.ones((), device=self.device)  # CUDA keeps a call's error, and torch would report it at this kernel
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as problem:
            problem.add_note(_SURFACED)
            raise


def _allocate(size_bytes: int) -> NDArray[np.uint8]:
    """Pinned memory of torch, by cudaHostAlloc: some systems give this only."""
    return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True).numpy()


def stream_of(device: object) -> Stream:
    """The stream of None or "cpu"; "cuda", "cuda:1"; a torch.device; else ConfigError. "cuda" is the current GPU. Where
    that is cuda:0 because nobody has set one, and a launcher set LOCAL_RANK, it is the GPU of that number.
    """
    expected = 'device: expected "cpu", "cuda" or "cuda:0", "cuda:1", ...'
    try:
        chosen = torch.device("cpu" if device is None else device)  # type: ignore[call-overload]
    except (RuntimeError, TypeError) as problem:
        raise ConfigError(f"{expected}, got {device!r}") from problem
    if chosen.type == "cpu":
        return Stream()
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
