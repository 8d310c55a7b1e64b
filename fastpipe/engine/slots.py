"""A shape -> batch buffers that are used again when the program no longer uses them."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastpipe.arrays import Uint8s

# Note [callbacks] Python turns Ctrl-C into an exception in whichever Python code the main thread
# runs next. If this is the callback of a weak reference, a finalizer or a __del__, the interpreter
# prints the exception and goes on, so the program does not end. This is not rare: such code may be
# the first to run after a long operation whose operand dies with it. So everything that happens
# when a batch or a loader dies is a method written in C, or a destructor in C++. The rest waits for
# the next batch.

_ALIGNMENT = 64  # JAX takes an array that begins at a multiple of this without a copy


def aligned(shape: tuple[int, ...]) -> Uint8s:
    """Allocates ordinary memory that begins where vector instructions of any CPU may."""
    size_bytes = math.prod(shape)
    # numpy aligns to 16 bytes only. So a little more is allocated, and the part that begins at a
    # multiple of the alignment is used.
    memory = np.empty(size_bytes + _ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    buffer = memory[start : start + size_bytes]
    return buffer.reshape(shape)


class SlotRing:
    """Lends buffers, and takes them back when nothing refers to them any more.

    A buffer comes back by itself when the array that was lent, and all tensors made of it, are
    gone. If a user keeps batches, the ring lends new buffers. It keeps up to `keep` idle buffers,
    because fresh memory costs a page fault every 4 kB. `allocate` makes a buffer.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        keep: int,
        allocate: Callable[[tuple[int, ...]], Uint8s] = aligned,
        dtype: DTypeLike = np.uint8,
    ) -> None:
        self._shape = shape
        self._dtype = np.dtype(dtype)
        self._buffer_bytes = math.prod(shape) * self._dtype.itemsize  # of a new buffer
        self._allocate = allocate
        self._keep = keep
        self._idle: deque[Uint8s] = deque()

        # The buffers in use, by the id of the weak reference to the array that was lent. Each entry
        # keeps its reference alive: a reference that is gone calls nothing.
        self._lent: dict[int, tuple[weakref.ref[Any], Uint8s]] = {}
        # References whose arrays have died.
        self._returned: deque[weakref.ref[Any]] = deque()

    @property
    def lent(self) -> int:
        """Number of buffers in use that will come back. Any thread may read it."""
        return max(0, len(self._lent) - len(self._returned))

    @property
    def idle(self) -> int:
        """Number of free buffers that are kept. Any thread may read it."""
        num_idle = len(self._idle) + len(self._returned)
        return min(self._keep, num_idle)

    def take(self, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """Lends an array of this shape; None: the ring's own.

        Slice a tensor made of it, as torch.from_numpy does, not the array: a slice of the array
        would refer to the buffer beneath it, and the array could be lent again meanwhile.
        """
        self._collect()
        if shape is None:
            shape = self._shape
        size_bytes = math.prod(shape) * self._dtype.itemsize
        # New buffers are as large as the largest array so far, so that any of them can be lent
        # again for any shape.
        self._buffer_bytes = max(self._buffer_bytes, size_bytes)

        buffer = self._pop_idle(size_bytes)
        if buffer is None:
            buffer = self._allocate((self._buffer_bytes,))
        lent_bytes = buffer[:size_bytes]
        flat_array = lent_bytes.view(self._dtype)
        array = flat_array.reshape(shape)

        # With more buffers in use than this, somebody keeps batches: their memory is freed with
        # them.
        if len(self._lent) < 2 * self._keep:
            reference = weakref.ref(array, self._returned.append)  # Note [callbacks]
            self._lent[id(reference)] = (reference, buffer)
        return array

    # Batches are made and die in any thread. So the next two methods use only single operations,
    # which the interpreter makes atomic, and no lock.

    def _pop_idle(self, size_bytes: int) -> Uint8s | None:
        """Takes an idle buffer that is large enough; drops those that are too small."""
        try:
            while True:
                buffer = self._idle.pop()
                if buffer.nbytes >= size_bytes:
                    return buffer
        except IndexError:
            return None

    def _collect(self) -> None:
        """Makes the buffers that have come back idle, or drops those that are not needed."""
        while True:
            try:
                reference = self._returned.popleft()
            except IndexError:
                return
            _, buffer = self._lent.pop(id(reference))
            has_room = len(self._idle) < self._keep
            if has_room and buffer.nbytes >= self._buffer_bytes:
                self._idle.append(buffer)
