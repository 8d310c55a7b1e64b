"""Bytes that no disk keeps -> a file in memory that the engine reads like a shard, given back when they are used.

All shards lie in it one behind the other, each at a place of its own, and all of that several times: in lanes, so that
an epoch that begins does not write where the one before it still reads and gives back. So it is as large as the dataset
a few times over, and takes memory only for what is in it. It has no name on any disk, and goes with the process.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.native import _engine
from fastpipe.remote.holes import punch

_PAGE = 4096
LANES = 8


class Ring:
    """The file.

    Args:
        sizes: (shards,) bytes of each shard.

    Attributes:
        path: by which other code of this process opens it.
        size_bytes: that it seems to have.
        base: (shards,) int64: where each shard begins in a lane.
    """

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        room = -(-sizes // _PAGE) * _PAGE
        self.base = np.cumsum(room) - room
        self._lane_bytes = int(room.sum())
        self.size_bytes = LANES * self._lane_bytes
        self._edges: Counter[int] = Counter()  # page -> ranges that have an end in it
        self._descriptor = _engine.Descriptor(os.memfd_create("fastpipe-ring", os.MFD_CLOEXEC))  # closes itself
        self._file = self._descriptor.number()
        os.ftruncate(self._file, self.size_bytes)
        self.path = f"/proc/self/fd/{self._file}"

    def write(self, lane: int, shard: int, start: int, data: Any) -> None:
        """Puts a range of a shard in; ranges do not overlap."""
        view, place = memoryview(data), self._place(lane, shard) + start
        for page in _edges(place, place + len(view)):
            self._edges[page] += 1
        done = 0
        while done < len(view):
            done += os.pwrite(self._file, view[done:], place + done)

    def read(self, lane: int, shard: int, start: int, size: int) -> bytes:
        """Bytes of a shard; zeros where nothing is."""
        return os.pread(self._file, size, self._place(lane, shard) + start)

    def thin(self, lane: int, shard: int, start: int, stop: int) -> None:
        """Gives back what a part of a range takes, but for the pages that it shares with what is beside it."""
        begin, end = self._place(lane, shard) + start, self._place(lane, shard) + stop
        punch(self._file, -(-begin // _PAGE) * _PAGE, end // _PAGE * _PAGE)

    def drop(self, lane: int, shard: int, start: int, stop: int) -> None:
        """Gives back a range that was put in."""
        self.thin(lane, shard, start, stop)
        begin = self._place(lane, shard) + start
        for page in _edges(begin, begin + stop - start):
            self._edges[page] -= 1
            if not self._edges[page]:
                del self._edges[page]
                punch(self._file, page * _PAGE, (page + 1) * _PAGE)

    def shift(self, lanes: NDArray[np.int64], shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) by how much further behind bytes lie here than in their shards."""
        shift: NDArray[np.int64] = lanes * self._lane_bytes + self.base[shards]
        return shift

    def origin(self, place: int) -> tuple[int, int]:
        """Shard and byte of a place."""
        inside = place % self._lane_bytes
        shard = int(np.searchsorted(self.base, inside, side="right")) - 1
        return shard, inside - int(self.base[shard])

    def _place(self, lane: int, shard: int) -> int:
        return lane * self._lane_bytes + int(self.base[shard])

    @property
    def memory_bytes(self) -> int:
        """That it takes now."""
        return os.fstat(self._file).st_blocks * 512


def _edges(begin: int, end: int) -> set[int]:
    """The pages at the ends of a range, which other ranges may share."""
    return {begin // _PAGE, (end - 1) // _PAGE}
