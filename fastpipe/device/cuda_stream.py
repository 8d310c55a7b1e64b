"""Copies and augmentation on a side stream of a GPU, from page-locked memory, beside the training step."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.device.marks import Mark
from fastpipe.device.page_locked import PageLocked

# Between two looks at an event. A loop that waits for one is several batches ahead of its GPU.
_LOOK_AGAIN_S = 0.5e-3
_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all GPUs
_SURFACED = (
    "fastpipe: the loader did not cause this error. CUDA reports an error of an earlier kernel at a later call; this "
    "time the call was the loader's. To see the line that caused it, run the program with CUDA_LAUNCH_BLOCKING=1"
)


class _Event:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def done(self) -> bool:
        try:
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

    def hold_back(self, stream: torch.cuda.Stream) -> None:
        """What is queued in `stream` from now on begins after this mark."""
        stream.wait_event(self._event)


class CudaStream:
    """A side stream of a GPU; the host never waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.copies = True
        self.lookahead = 1
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pins = True
        self._cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # after the latest copy
        finish = partial(torch._C._CudaEventBase.synchronize, self._copied)  # that of torch.cuda.Event is Python's
        self._slots = PageLocked(self._register, finish, self._cudart.cudaHostUnregister)

    @property
    def pinned_bytes(self) -> int:
        return self._slots.bytes

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        size_bytes = int(np.prod(shape, dtype=np.int64))
        return self._pinned(shape, lambda: self._slots.take(size_bytes).reshape(shape))

    def buffer(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        return self._pinned(shape, lambda: torch.empty(shape, dtype=torch.uint8, device="cpu", pin_memory=True).numpy())

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        there = tensor.to(self.device, non_blocking=True)
        self._copied.record(self._stream)
        return there

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

    def _register(self, address: int, size_bytes: int) -> None:
        with torch.cuda.device(self.device):  # else CUDA would set up the current GPU too, which takes memory there
            status = self._cudart.cudaHostRegister(address, size_bytes, _PORTABLE)
        if int(status) != 0:
            raise RuntimeError(self._cudart.cudaGetErrorString(status))

    def _pinned(self, shape: tuple[int, ...], make: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
        if self._pins:
            try:
                return make()
            except RuntimeError as problem:
                self._raise_the_programs_error()
                self._pins = False
                _warn(shape, problem)
        return np.empty(shape, dtype=np.uint8)

    def _raise_the_programs_error(self) -> None:
        """After a call that failed: was it the call, or an earlier kernel of the program?"""
        with suppress(RuntimeError):
            torch.ones((), device=self.device)  # CUDA keeps a call's error, and torch would report it at this kernel
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as problem:
            problem.add_note(_SURFACED)
            raise


def _warn(shape: tuple[int, ...], problem: RuntimeError) -> None:
    reason = str(problem).strip().splitlines()[0]
    warnings.warn(
        f"cannot pin {np.prod(shape, dtype=np.int64):,} bytes of host memory for batches ({reason}); using pageable "
        "memory instead. Copies to the GPU are then slower, and the training loop waits for them. Raise the limit on "
        "locked memory (ulimit -l, or the container's limit), or free pinned memory",
        RuntimeWarning,
        stacklevel=4,
    )
