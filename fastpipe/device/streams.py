"""Where batches are copied and augmented.

On the CPU at once; on a device in its one queue, or in a side stream beside the training step.

Note [what a device can do]
Its module in torch says it: torch.cuda, torch.xpu, torch.mps, an extension's. If the module has
streams, batches are made ready on a side stream, from memory that torch pins. If it has events only
(mps), in the one queue that the training step is in, too. If it has neither, each copy waits. Only
CUDA registers memory (`cudart`).
torch.Event would do for all of them. But when one of CUDA dies, torch sets the current GPU: Note
[the current GPU].

Note [pages after a fork]
A fork shares the pages of private memory until one process writes to them; the writer then gets
pages of its own, but the GPU goes on reading the old ones: a batch of an earlier time, without an
error. So the memory is mapped as shared: it keeps the same pages. A child never unregisters: CUDA
does not work there, and the pages are its parent's.
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

from fastpipe.arrays import Uint8s
from fastpipe.engine.slots import aligned
from fastpipe.errors import ConfigError
from fastpipe.machine.environment import read_number

# Makes a device the current one.
CurrentDevice = Callable[[], AbstractContextManager[object]]

# Between two queries of an event. A loop that waits for one is several batches ahead of its GPU.
_POLL_INTERVAL_S = 0.5e-3
_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all GPUs
_CPU = torch.device("cpu")
# A device whose module in torch has these can have a side stream.
_SIDE_STREAM_PARTS = ("Stream", "Event", "stream", "current_stream", "device")
_EARLIER_ERROR = (
    "fastpipe: a device reports the error of a kernel at a later call, which was the loader's this "
    "time. The kernel is one of the program or of augment=. With CUDA, run the program with "
    "CUDA_LAUNCH_BLOCKING=1 to see the line that queued it"
)
_UNPINNED = (
    "cannot pin {:,} bytes of host memory for batches ({}); using pageable memory instead. Copies "
    "to the GPU are then slower, and the training loop waits for them. Raise the limit on locked "
    "memory (ulimit -l, or the container's limit), or free pinned memory"
)


class Mark:
    """A place in a queue of work: all that was queued before it.

    Args:
        event: recorded at this place; None: nothing is queued, all work is done at once.
        current_device: makes the event's device the current one.
        is_timed: the event knows when it was reached.
    """

    def __init__(
        self,
        event: Any = None,
        current_device: CurrentDevice = nullcontext,
        is_timed: bool = False,
    ) -> None:
        self.event = event
        self._current_device = current_device
        self._is_timed = is_timed

    def done(self) -> bool:
        """Whether all of it has been done; never waits.

        RuntimeError: work of the program has failed on the device.
        """
        if self.event is None:
            return True
        try:
            with self._current_device():  # Note [the current GPU]
                return bool(self.event.query())
        except RuntimeError as problem:
            problem.add_note(_EARLIER_ERROR)
            raise

    def wait(self, timeout_s: float) -> bool:
        """Whether it has been done within so many seconds; raises as `done`."""
        # Not by event.synchronize: Ctrl-C cannot end that, and it keeps a CPU busy that the
        # engine's threads could use.
        deadline = time.monotonic() + timeout_s
        while not self.done():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_INTERVAL_S)
        return True

    def since(self, earlier: Mark) -> float:
        """Seconds of the device between two marks that are done; 0 if their events know no time."""
        if not self._is_timed:
            return 0.0
        return float(earlier.event.elapsed_time(self.event)) / 1e3


class Stream:
    """The one queue of a device, in which the training loop's work is, too.

    Without events the host waits: all work is done at once, in the thread that queues it. So it is
    on the CPU.
    """

    # Batches to make ready beyond the one handed out. In the loop's queue they would delay it.
    lookahead = 0
    # Reading the time of an event would wait for all work in the queue.
    _is_timed = False

    def __init__(self, device: torch.device = _CPU, backend: Any = None) -> None:
        self.device = device  # of the batches
        self.copies = device != _CPU  # its memory is not the host's
        self._event = getattr(backend, "Event", None)
        self._current_device: CurrentDevice = nullcontext

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory of all slots. Any thread may ask."""
        return 0

    def slot(self, shape: tuple[int, ...]) -> Uint8s:
        """Host memory of a batch, to be used for many.

        If possible, it is copied to the device without a wait.
        """
        return aligned(shape)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Queues a copy to the device; the tensor must stay as it is until a later mark is done."""
        return tensor.to(self.device, non_blocking=self._event is not None)

    def work(self, follows: bool = False) -> AbstractContextManager[object]:
        """Work that is queued inside goes to this stream; `follows`: behind the work in the
        program's own stream.
        """
        return nullcontext()

    def mark(self) -> Mark:
        return self._record()

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        """Lets the training loop's stream use tensors of this one, after `mark`.

        Returns a mark in that stream.
        """
        return self.mark()

    def _record(self, *stream: Any) -> Mark:
        """A mark in a stream of torch, or in the current one."""
        if self._event is None:
            return Mark()
        event = self._event(enable_timing=self._is_timed)
        event.record(*stream)
        return Mark(event, self._current_device, self._is_timed)


class _End(weakref.ref[Any]):
    """A weak reference that calls `act`, C code only, when its object dies: Note [callbacks]."""

    __slots__ = ("act",)
    __hash__ = object.__hash__  # an array has none
    __eq__ = object.__eq__
    act: Callable[[], object]

    def __new__(cls, array: Uint8s, act: Callable[[], object]) -> _End:
        self = super().__new__(cls, array, methodcaller("act"))
        self.act = act
        return self

    def __init__(self, *_: object) -> None:
        pass


_ends: set[_End] = set()  # keeps the weak references: one that is gone calls nothing
os.register_at_fork(after_in_child=_ends.clear)
# CUDA frees everything with the process. After a failed kernel it would only complain.
atexit.register(_ends.clear)


class PageLocked:
    """Makes host memory of any size, page-locked for a GPU until nothing refers to it any more.

    Args:
        register: CUDA's function of (address, bytes); raises RuntimeError if CUDA refuses.
        release: address -> functions that end the copies from it and unregister it. They are
            called, in order, when an array and everything that refers to it is gone, before it is
            unmapped. Each is called even if one before it raises. All must be written in C and
            never call back into Python.
    """

    def __init__(
        self,
        register: Callable[[int, int], None],
        release: Callable[[int], Sequence[Callable[[], object]]],
    ) -> None:
        self._register = register
        self._release = release
        self._arrays: list[weakref.ref[Uint8s]] = []

    @property
    def bytes(self) -> int:
        """Of all arrays in use. Any thread may ask."""
        total = 0
        for reference in tuple(self._arrays):
            array = reference()
            if array is not None:
                total += array.nbytes
        return total

    def take(self, size_bytes: int) -> Uint8s:
        """(size_bytes,) zeros. Raises RuntimeError or OSError if there is no such memory."""
        # A mapping without a file is shared: Note [pages after a fork].
        memory = mmap.mmap(-1, size_bytes)
        array = np.frombuffer(memory, dtype=np.uint8)
        address = array.__array_interface__["data"][0]
        self._register(address, size_bytes)
        _ends.difference_update([end for end in tuple(_ends) if end() is None])
        # Python calls the newest reference to an array first, and all before the array lets go of
        # its memory.
        for act in reversed(self._release(address)):
            _ends.add(_End(array, act))
        self._arrays = [
            reference for reference in self._arrays if reference() is not None
        ]
        self._arrays.append(weakref.ref(array))
        return array


class SideStream(Stream):
    """A side stream of a device; the host never waits for it.

    `backend` is the module of the device.

    Note [the current GPU]
    Some calls set up the current GPU, which takes half a GB there: a look at an event, registering
    memory, leaving torch.cuda.stream, which sets the GPU that was current before. Where a program
    has set none, that is GPU 0 for all ranks of a machine. So this stream's own GPU is the current
    one during these calls.
    """

    lookahead = 1
    _is_timed = True

    def __init__(self, device: torch.device, backend: Any) -> None:
        super().__init__(device, backend)
        self._backend = backend
        self._current_device = partial(backend.device, device)
        self._stream = backend.Stream(device)
        self._copied = backend.Event()  # after the latest copy
        self._cudart: Any = None
        self._slots = PageLocked(self._register, self._release)
        # Functions that make pinned memory, and the fewest bytes that each has refused.
        self._refused_bytes: dict[Callable[[int], Uint8s], float] = {}
        if hasattr(backend, "cudart"):
            self._cudart = backend.cudart()
            self._refused_bytes[self._slots.take] = math.inf
        self._refused_bytes[_allocate] = math.inf

    @property
    def pinned_bytes(self) -> int:
        return self._slots.bytes

    def slot(self, shape: tuple[int, ...]) -> Uint8s:
        size_bytes = math.prod(shape)
        for allocate, refused_bytes in self._refused_bytes.items():
            if size_bytes >= refused_bytes:
                continue
            try:
                return allocate(size_bytes).reshape(shape)
            except (OSError, RuntimeError) as problem:
                self._raise_earlier_error()
                self._refused_bytes[allocate] = size_bytes
                if allocate is _allocate and refused_bytes == math.inf:
                    reason = str(problem).strip().splitlines()[0]
                    warnings.warn(
                        _UNPINNED.format(size_bytes, reason),
                        RuntimeWarning,
                        stacklevel=2,
                    )
        return aligned(shape)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = super().copy(tensor)
        self._copied.record(self._stream)
        return copy

    @contextmanager
    def work(self, follows: bool = False) -> Iterator[None]:
        with self._current_device():  # Note [the current GPU]
            if follows:
                self._stream.wait_stream(self._backend.current_stream())
            with self._backend.stream(self._stream):
                yield

    def mark(self) -> Mark:
        return self._record(self._stream)

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        loop_stream = self._backend.current_stream(self.device)
        before = self._record(loop_stream)
        loop_stream.wait_event(mark.event)
        for tensor in tensors:
            # Its memory is reused only after the work that the loop queues there.
            tensor.record_stream(loop_stream)
        return before

    def _register(self, address: int, size_bytes: int) -> None:
        with self._current_device():  # Note [the current GPU]
            status = self._cudart.cudaHostRegister(address, size_bytes, _PORTABLE)
        if int(status) != 0:
            raise RuntimeError(self._cudart.cudaGetErrorString(status))

    def _release(self, address: int) -> tuple[Callable[[], object], ...]:
        # C functions only, see PageLocked. So the current GPU is kept in a list by way of `map`,
        # which calls a function when it is iterated, by `extend` and by `deque`.
        current_gpu: list[int] = []
        set_own_gpu = map(torch.cuda._exchange_device, (self.device.index,))
        set_back = map(torch.cuda._maybe_exchange_device, current_gpu)
        return (
            partial(current_gpu.extend, set_own_gpu),  # Note [the current GPU]
            # torch.cuda.Event.synchronize is written in Python, its base class's is not.
            partial(torch._C._CudaEventBase.synchronize, self._copied),
            partial(self._cudart.cudaHostUnregister, address),
            partial(deque, set_back, 0),
        )

    def _raise_earlier_error(self) -> None:
        """After a call that failed: raises the error of an earlier kernel of the program, if it was
        one.
        """
        # CUDA keeps the error of a call, and torch would report it at this kernel.
        with suppress(RuntimeError):
            torch.ones((), device=self.device)
        try:
            self._backend.synchronize(self.device)
        except RuntimeError as problem:
            problem.add_note(_EARLIER_ERROR)
            raise


def _allocate(size_bytes: int) -> Uint8s:
    """Pinned memory of torch, for its kind of device.

    With CUDA it is cudaHostAlloc: some systems give this only.
    """
    return torch.empty(
        size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True
    ).numpy()


def stream_of(device: object) -> Stream:
    """The stream of a loader's `device`.

    Args:
        device: None or "cpu"; "cuda", "cuda:1", "mps", "xpu"; or a torch.device. "cuda" is the
            current GPU. If that is cuda:0 because nobody has set one, and a launcher set
            LOCAL_RANK, it is the GPU of that number. The same holds for other devices.

    Raises:
        ConfigError: the device cannot be used.
    """
    try:
        chosen = torch.device("cpu" if device is None else device)  # type: ignore[call-overload]
    except (RuntimeError, TypeError) as problem:
        is_gpu = isinstance(device, str) and device.lower() in ("gpu", "nvidia")
        meant = '. Write device="cuda"' if is_gpu else ""
        if isinstance(device, int):
            meant = (
                f', which torch takes for the number of a GPU that is not here. Write device="cuda:{device}" '
                'where there are GPUs, and device="cpu" where there are none'
            )
        raise ConfigError(
            'device: expected "cpu", "cuda", "cuda:1", "mps", "xpu" or another device of torch, or '
            f"of an extension of torch that has been imported, got {device!r}{meant}"
        ) from problem
    if chosen.type == "cpu":
        return Stream()
    backend: Any = getattr(torch, chosen.type, None)
    problem_text = _describe_missing(chosen.type, backend)
    if problem_text is not None:
        raise ConfigError(
            f"device: got {device!r}, which cannot be used: {problem_text}"
        )
    count = backend.device_count()
    index = chosen.index
    if index is None:
        index = _default_index(backend, count)
    if index >= count:
        numbers = f"{chosen.type}:0 to {chosen.type}:{count - 1}"
        raise ConfigError(f"device: got {device!r}, but torch sees {count}, {numbers}")
    indexed_device = torch.device(chosen.type, index)
    if all(hasattr(backend, name) for name in _SIDE_STREAM_PARTS):
        return SideStream(indexed_device, backend)
    # An event is of the current device, so with several devices it may be of another one.
    event_backend = backend if count == 1 else None
    return Stream(indexed_device, event_backend)


def _describe_missing(kind: str, backend: Any) -> str | None:
    """Why no device of a kind can be used, and what to do; None: one can."""
    if backend is None:
        return (
            f'there is no torch.{kind}; import its extension, or pass device="cpu" and move the '
            "batches yourself"
        )
    # torch.mps has is_available since torch 2.6.
    is_available = getattr(backend, "is_available", backend.device_count)
    if is_available():
        return None
    is_compiled = getattr(backend, "_is_compiled", None)
    if is_compiled is not None and not is_compiled():
        return f'this torch was built without {kind.upper()}; pass device="cpu"'
    return 'torch sees none; pass device="cpu"'


def _default_index(backend: Any, count: int) -> int:
    """The index of "cuda": each process of a machine has a GPU of its own, unless it sets one or
    sees only one.
    """
    if count == 1:
        return 0
    current = int(backend.current_device())
    local_rank = read_number("LOCAL_RANK")
    if current != 0 or local_rank is None or local_rank >= count:
        return current
    return local_rank
