"""A shape -> batch buffers that are used again when the program no longer uses them."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Note [callbacks]
# Ctrl-C becomes an exception in whatever Python code runs next in the main thread. Where that is the callback of a weak
# reference, a finalizer or a __del__, the interpreter prints it and goes on: the program does not end. That is no rare
# moment: it may be the first code to run after a long operation whose operand dies with it. So what is to be done when
# a batch or a loader dies is a method written in C, or a destructor in C++; the rest waits for the next batch.


_ALIGNMENT = 64  # what begins at a multiple of it, JAX takes without a copy


def aligned(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Ordinary memory that begins where vectors of any CPU may."""
    size_bytes = math.prod(shape)
    memory = np.empty(size_bytes + _ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size_bytes].reshape(shape)


class SlotRing:
    """Lends buffers. A buffer comes back by itself when the array that was lent, and all that refers to it, is gone.
    A user may keep batches: then the ring lends new buffers. Fresh memory costs a page fault every 4 kB: so many idle
    buffers are kept. `allocate` makes one; None: `aligned`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        keep: int,
        allocate: Callable[[tuple[int, ...]], NDArray[np.uint8]] = aligned,
        dtype: DTypeLike = np.uint8,
    ) -> None:
        self._shape, self._dtype = shape, np.dtype(dtype)
        self._largest = math.prod(shape) * self._dtype.itemsize  # bytes of a new buffer
        self._allocate = allocate
        self._keep = keep
        self._idle: deque[NDArray[np.uint8]] = deque()
        self._lent: dict[int, tuple[weakref.ref[Any], NDArray[np.uint8]]] = {}  # keeps the weak references alive
        self._back: deque[weakref.ref[Any]] = deque()  # of those that nothing refers to any more

    @property
    def lent(self) -> int:
        """Buffers that somebody has and that will come back. Any thread may ask: it changes nothing."""
        return max(0, len(self._lent) - len(self._back))

    @property
    def idle(self) -> int:
        """Buffers that nobody has and that are kept. Any thread may ask: it changes nothing."""
        return min(self._keep, len(self._idle) + len(self._back))

    def take(self, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """An array of this shape. Derive from it (torch.from_numpy does): numpy's slices are of the buffer beneath."""
        self._collect()
        shape = self._shape if shape is None else shape
        size_bytes = math.prod(shape) * self._dtype.itemsize
        self._largest = max(self._largest, size_bytes)
        try:
            buffer = self._idle.pop()
            while buffer.nbytes < size_bytes:
                buffer = self._idle.pop()
        except IndexError:
            buffer = self._allocate((self._largest,))
        lent = buffer[:size_bytes].view(self._dtype).reshape(shape)
        if len(self._lent) < 2 * self._keep:  # beyond that somebody keeps batches: their memory goes when they do
            reference = weakref.ref(lent, self._back.append)  # Note [callbacks]
            self._lent[id(reference)] = reference, buffer
        return lent

    def _collect(self) -> None:
        """Single operations that the interpreter makes atomic, since batches are made and die in any thread."""
        while True:
            try:
                reference = self._back.popleft()
            except IndexError:
                return
            _, buffer = self._lent.pop(id(reference))
            if len(self._idle) < self._keep and buffer.nbytes >= self._largest:
                self._idle.append(buffer)
