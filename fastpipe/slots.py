"""A shape -> batch buffers that are used again once nobody looks at them any more."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class SlotRing:
    """Lends buffers. A buffer comes back by itself when the array that was lent, and all that refers to it, is gone.

    A user may keep batches: then the ring lends new buffers, so two batches never share memory and nothing waits.
    Fresh memory costs a page fault every 4 kB, which is why buffers are kept at all.

    Args:
        shape: of each buffer, uint8.
        keep: the most idle buffers to hold on to.
        allocate: makes a buffer; None: ordinary memory.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        keep: int,
        allocate: Callable[[tuple[int, ...]], NDArray[np.uint8]] | None = None,
    ) -> None:
        self._shape = shape
        self._allocate = allocate or _pageable
        self._keep = keep
        self._idle: deque[NDArray[np.uint8]] = deque()
        self._lent: dict[int, weakref.ref[Any]] = {}  # keeps the weak references alive

    @property
    def lent(self) -> int:
        """Buffers that somebody has."""
        return len(self._lent)

    @property
    def idle(self) -> int:
        """Buffers that nobody has and that are kept."""
        return len(self._idle)

    def take(self) -> NDArray[np.uint8]:
        """A buffer with no particular content.

        Derive from the array itself (torch.from_numpy does): numpy's own slices of it refer to the buffer beneath
        and would not keep it from being lent again.
        """
        try:
            buffer = self._idle.pop()
        except IndexError:
            buffer = self._allocate(self._shape)
        lent = buffer[...]
        idle, keep, references = self._idle, self._keep, self._lent

        # May run in any thread, at any time; takes no lock, only single operations that the interpreter makes atomic.
        def come_back(reference: weakref.ref[Any]) -> None:
            del references[id(reference)]
            if len(idle) < keep:
                idle.append(buffer)

        reference = weakref.ref(lent, come_back)
        references[id(reference)] = reference
        return lent


def _pageable(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.empty(shape, dtype=np.uint8)
