"""Bytes that no disk keeps -> places in a file in memory that the engine reads like a shard; places are used again.

Note [used again]
Bytes that are not needed any more leave their place to those that come: no page is taken from the system or given back
while as much comes as goes, which would cost as much as the copy itself. Places have lengths of a few dozen kinds, so
that one which is free nearly always fits. If more is free than in use, as at the end of an epoch, it goes back.
Whoever reads a place that has got other bytes meanwhile finds another hash.
"""

from __future__ import annotations

import mmap
import os
from collections import defaultdict, deque
from typing import Any

from fastpipe.native import _engine

_PAGE = mmap.PAGESIZE
_SIZE_BYTES = 1 << 50  # that the file seems to have: more than can ever be in it
_SPARE_BYTES = 4 << 20


class Ring:
    """The file. It has no name on any disk, and goes with the process.

    Attributes:
        path: by which other code of this process opens it.
        size_bytes: that it seems to have; it takes memory only for places that are in use, or free to be used again.
    """

    def __init__(self) -> None:
        self.size_bytes = _SIZE_BYTES
        self._descriptor = _engine.Descriptor(os.memfd_create("fastpipe-ring", os.MFD_CLOEXEC))  # closes itself
        self._file = self._descriptor.number()
        os.ftruncate(self._file, self.size_bytes)
        self.path = f"/proc/self/fd/{self._file}"
        self._end = 0  # of all places so far
        self._used_bytes = self._free_bytes = 0
        # By the room that they have: places whose memory is kept, and others.
        self._free: defaultdict[int, deque[int]] = defaultdict(deque)
        self._empty: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, size: int) -> int:
        """A place for so many bytes, where nothing else is."""
        room = room_of(size)
        self._used_bytes += room
        if self._free[room]:
            self._free_bytes -= room
            return self._free[room].pop()
        if self._empty[room]:
            return self._empty[room].pop()
        self._end += room
        return self._end - room

    def give_back(self, place: int, size: int) -> None:
        """Leaves a place of `take` to others; Note [used again]."""
        room = room_of(size)
        self._used_bytes -= room
        self._free_bytes += room
        self._free[room].append(place)
        while self._free_bytes > self._used_bytes + _SPARE_BYTES:
            room, places = next(each for each in self._free.items() if each[1])
            self._empty[room].append(places.popleft())
            punch(self._file, self._empty[room][-1], self._empty[room][-1] + room)
            self._free_bytes -= room

    def write(self, place: int, data: Any) -> None:
        """Puts bytes into a place."""
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.pwrite(self._file, view[done:], place + done)

    def read(self, place: int, size: int) -> bytes:
        """Bytes of a place."""
        return os.pread(self._file, size, place)

    @property
    def memory_bytes(self) -> int:
        """That it takes now."""
        return os.fstat(self._file).st_blocks * 512


def room_of(size: int) -> int:
    """What a place for so many bytes takes: whole pages, and at most a sixteenth more."""
    pages = -(-size // _PAGE)
    step = 1 << max(pages.bit_length() - 5, 0)
    return -(-pages // step) * step * _PAGE


def punch(descriptor: int, start: int, stop: int) -> None:
    """Gives whole pages of a file back to the disk or the memory; they read as zeros afterwards.

    Raises:
        OSError: the file system cannot.
    """
    with mmap.mmap(descriptor, stop - start, offset=start) as pages:
        pages.madvise(mmap.MADV_REMOVE)
