"""Where batches are copied and augmented: at once on the CPU; or on a device, in its queue or beside the training step.

Note [what a device can do]
It is asked here, of its module in torch: torch.cuda, torch.xpu, torch.mps, an extension's. If it has streams, batches
are made ready on a side stream, from memory that torch pins. If it has events only (mps), in the one queue that the
training step is in, too. If it has neither, each copy waits. Only CUDA registers memory (`cudart`).
torch.Event would do for all of them. But when one of CUDA dies, torch sets the current GPU: Note [the current GPU].

Note [pages after a fork]
A fork shares the pages of private memory until one process writes to them; the writer then gets pages of its own, but
the GPU goes on reading the old ones: a batch of an earlier time, without an error. So the memory is mapped as shared:
it has the same pages for ever. A child never unregisters: CUDA does not work there, and the pages are its parent's.
"""

from __future__ import annotations

import atexit
import math
import mmap
import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.engine.slots import aligned
from fastpipe.errors import ConfigError

On = Callable[[], AbstractContextManager[object]]

# Between two looks at an event. A loop that waits for one is several batches ahead of its GPU.
_LOOK_AGAIN_S = 0.5e-3
_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all GPUs
_CPU = torch.device("cpu")
_STREAMS = ("Stream", "Event", "stream", "current_stream", "device")  # what a side stream is made of
_SURFACED = (
    "fastpipe: a device reports the error of a kernel at a later call, which was the loader's this time. The kernel is "
    "one of the program or of augment=. With CUDA, run the program with CUDA_LAUNCH_BLOCKING=1 to see the line that "
    "queued it"
)
_UNPINNED = (
    "cannot pin {:,} bytes of host memory for batches ({}); using pageable memory instead. Copies to the GPU are then "
    "slower, and the training loop waits for them. Raise the limit on locked memory (ulimit -l, or the container's "
    "limit), or free pinned memory"
)


class Mark:
    """A place in a queue of work, that of an event: all that was queued before it. Without an event nothing is queued:
    it has been done. `on` makes the event's device the current one; `timed`: the event knows when it fired.
    """

    def __init__(self, event: Any = None, on: On = nullcontext, timed: bool = False) -> None:
        self.event, self._on, self._timed = event, on, timed

    def done(self) -> bool:
        """Whether all of it has been done; never waits. RuntimeError: work of the program has failed on the device."""
        try:
            with self._on():  # Note [the current GPU]
                return self.event is None or bool(self.event.query())
        except RuntimeError as problem:
            problem.add_note(_SURFACED)
            raise

    def wait(self, timeout_s: float) -> bool:
        """Whether it has been done within so many seconds; raises as `done`."""
        # Not by synchronize: that cannot be interrupted, and keeps a CPU busy which the engine's threads could use.
        deadline = time.monotonic() + timeout_s
        while not self.done():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_AGAIN_S)
        return True

    def since(self, earlier: Mark) -> float:
        """Seconds of the device between two marks that are done; 0 if their events know no time."""
        return float(earlier.event.elapsed_time(self.event)) / 1e3 if self._timed else 0.0


class Stream:
    """Where batches are made ready for the training loop: the one queue of a device, in which the loop's work is, too.
    Without events the host waits: all is done at once, in the thread that asks. So it is on the CPU.
    """

    lookahead = 0  # batches to make ready beyond the one handed out, which more of them would only delay here
    _timed = False  # the time of an event would be waited for, with all that is in the queue

    def __init__(self, device: torch.device = _CPU, backend: Any = None) -> None:
        self.device = device  # that they end up on
        self.copies = device != _CPU  # its memory is not the host's
        self._event = getattr(backend, "Event", None)
        self._on: On = nullcontext

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory of all slots. Any thread may ask."""
        return 0

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Host memory of a batch, to be used for many; copied to the device without the host waiting, if possible."""
        return aligned(shape)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Queues a copy to the device; the tensor must stay as it is until a later mark is done."""
        return tensor.to(self.device, non_blocking=self._event is not None)

    def work(self, follows: bool = False) -> AbstractContextManager[object]:
        """What is queued inside goes to this stream; `follows`: behind what the program has queued in its own."""
        return nullcontext()

    def mark(self) -> Mark:
        return self._mark_in()

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        """Lets the training loop's stream use tensors of this one, after `mark`; returns a mark in that stream."""
        return self.mark()

    def _mark_in(self, *stream: Any) -> Mark:
        if self._event is None:
            return Mark()
        event = self._event(enable_timing=self._timed)
        event.record(*stream)
        return Mark(event, self._on, self._timed)


class _End(weakref.ref[Any]):
    """A weak reference that calls `act` when its object dies: C code only, see Note [callbacks] in slots.py."""

    __slots__ = ("act",)
    __hash__ = object.__hash__  # an array has none
    __eq__ = object.__eq__
    act: Callable[[], object]

    def __new__(cls, array: NDArray[np.uint8], act: Callable[[], object]) -> _End:
        self = super().__new__(cls, array, methodcaller("act"))
        self.act = act
        return self

    def __init__(self, *_: object) -> None:
        pass


_ends: set[_End] = set()  # a weak reference that is gone calls nothing
os.register_at_fork(after_in_child=_ends.clear)
atexit.register(_ends.clear)  # CUDA ends with the process; where a kernel has failed, it would only complain


class PageLocked:
    """Makes host memory of any size, page-locked for a GPU until nothing refers to it any more. `register` is CUDA's,
    of (address, bytes); RuntimeError: it refuses.

    `release` gives, of an address, what is called in order when an array and all that refers to it is gone, before it
    is unmapped: it ends the copies from it, and unregisters it. Each is called even if one before it raises; all must
    be written in C and never call back into Python.
    """

    def __init__(
        self, register: Callable[[int, int], None], release: Callable[[int], Sequence[Callable[[], object]]]
    ) -> None:
        self._register = register
        self._release = release
        self._arrays: list[weakref.ref[NDArray[np.uint8]]] = []

    @property
    def bytes(self) -> int:
        """Of all arrays in use. Any thread may ask."""
        return sum(array.nbytes for reference in tuple(self._arrays) if (array := reference()) is not None)

    def take(self, size_bytes: int) -> NDArray[np.uint8]:
        """(size_bytes,) zeros. Raises RuntimeError or OSError where it cannot be had."""
        array = np.frombuffer(mmap.mmap(-1, size_bytes), dtype=np.uint8)  # shared: Note [pages after a fork]
        address = array.__array_interface__["data"][0]
        self._register(address, size_bytes)
        _ends.difference_update([end for end in tuple(_ends) if end() is None])
        # The newest reference to an array is called first, and all are before the array lets go of its memory.
        _ends.update([_End(array, act) for act in reversed(self._release(address))])
        self._arrays = [reference for reference in self._arrays if reference() is not None]
        self._arrays.append(weakref.ref(array))
        return array


class SideStream(Stream):
    """A side stream of a device; the host never waits for it. `backend` is the module of the device.

    Note [the current GPU]
    Some calls set up the current GPU, which takes half a GB there: a look at an event, registering memory, leaving
    torch.cuda.stream, which sets the GPU that was current before. Where a program has set none, that is GPU 0 for all
    ranks of a machine. So this stream's own GPU is the current one during these calls.
    """

    lookahead = 1
    _timed = True

    def __init__(self, device: torch.device, backend: Any) -> None:
        super().__init__(device, backend)
        self._backend = backend
        self._on = partial(backend.device, device)
        self._stream = backend.Stream(device)
        self._copied = backend.Event()  # after the latest copy
        self._cudart: Any = backend.cudart() if hasattr(backend, "cudart") else None
        self._slots = PageLocked(self._register, self._release)
        makers = [_allocate] if self._cudart is None else [self._slots.take, _allocate]
        self._makers = dict.fromkeys(makers, math.inf)  # of pinned memory, and the fewest bytes that each has refused

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
        return aligned(shape)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        there = super().copy(tensor)
        self._copied.record(self._stream)
        return there

    @contextmanager
    def work(self, follows: bool = False) -> Iterator[None]:
        with self._on():  # Note [the current GPU]
            if follows:
                self._stream.wait_stream(self._backend.current_stream())
            with self._backend.stream(self._stream):
                yield

    def mark(self) -> Mark:
        return self._mark_in(self._stream)

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        users = self._backend.current_stream(self.device)
        before = self._mark_in(users)
        users.wait_event(mark.event)
        for tensor in tensors:
            tensor.record_stream(users)  # its memory goes back only after what the user queues there
        return before

    def _register(self, address: int, size_bytes: int) -> None:
        with self._on():  # Note [the current GPU]
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
            self._backend.synchronize(self.device)
        except RuntimeError as problem:
            problem.add_note(_SURFACED)
            raise


def _allocate(size_bytes: int) -> NDArray[np.uint8]:
    """Pinned memory of torch, for its kind of device. With CUDA it is cudaHostAlloc: some systems give this only."""
    return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True).numpy()


def stream_of(device: object) -> Stream:
    """The stream of None or "cpu"; "cuda", "cuda:1", "mps", "xpu"; a torch.device; else ConfigError. "cuda" is the
    current GPU. Where that is cuda:0 because nobody has set one, and a launcher set LOCAL_RANK, it is the GPU of that
    number. So with other devices.
    """
    try:
        chosen = torch.device("cpu" if device is None else device)  # type: ignore[call-overload]
    except (RuntimeError, TypeError) as problem:
        raise ConfigError(
            'device: expected "cpu", "cuda", "cuda:1", "mps", "xpu" or another device of torch, or of an extension of '
            f"torch that has been imported, got {device!r}"
        ) from problem
    if chosen.type == "cpu":
        return Stream()
    backend: Any = getattr(torch, chosen.type, None)
    if why := _why_not(chosen.type, backend):
        raise ConfigError(f"device: got {device!r}, which cannot be used: {why}")
    count = backend.device_count()
    number = _own_number(backend, count) if chosen.index is None else chosen.index
    if number >= count:
        numbers = f"{chosen.type}:0 to {chosen.type}:{count - 1}"
        raise ConfigError(f"device: got {device!r}, but torch sees {count}, {numbers}")
    found = torch.device(chosen.type, number)
    if all(hasattr(backend, name) for name in _STREAMS):
        return SideStream(found, backend)
    return Stream(found, backend if count == 1 else None)  # an event is of the current device


def _why_not(kind: str, backend: Any) -> str | None:
    """Why no device of a kind can be used, and what to do; None: one can."""
    if backend is None:
        return f'there is no torch.{kind}; import its extension, or pass device="cpu" and move the batches yourself'
    if getattr(backend, "is_available", backend.device_count)():  # torch.mps has is_available since torch 2.6
        return None
    built = getattr(backend, "_is_compiled", lambda: True)()
    return f'{"torch sees none" if built else f"this torch was built without {kind.upper()}"}; pass device="cpu"'


def _own_number(backend: Any, count: int) -> int:
    """The GPU that "cuda" means: each process of a machine has its own, unless it is told or shown only one."""
    if count == 1:
        return 0
    current, local_rank = backend.current_device(), os.environ.get("LOCAL_RANK", "")
    own = int(local_rank) if local_rank.isdecimal() else 0
    return own if current == 0 and own < count else current
