"""A number of bytes -> host memory of that size, page-locked for a GPU until nothing refers to it any more.

torch's own pinned memory comes in powers of two: 64 MB for a batch of 38.5. A batch's memory is mapped here instead,
and registered with CUDA.

Note [pages after a fork]
A fork shares the pages of private memory until one process writes to them; the writer then gets pages of its own, but
the GPU goes on reading the old ones: a batch of an earlier time, without an error. So the memory is mapped as shared:
it has the same pages for ever. A child never unregisters: CUDA does not work there, and the pages are its parent's.
"""

from __future__ import annotations

import atexit
import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    """Makes page-locked memory. `register` is CUDA's, of (address, bytes); RuntimeError: it refuses.

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
