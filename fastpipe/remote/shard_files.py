"""Ranges of shards -> written into sparse files of the recorded sizes, and given back."""

from __future__ import annotations

import errno
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.native import _engine
from fastpipe.remote.ring import punch

_MOST_OPEN = 32
# Note [size of a write]
# The page cache takes a write in pieces of memory as large as the write, up to 2 MiB. A virtual machine that gives
# large free pieces back to its host (page_reporting) has to get them again, for 1 to 2 s of a core a GB. Smaller
# pieces are found among those that it still has: 0.17 to 0.20 s a GB with writes of 128 to 512 KiB where those of a
# MiB cost 0.6 to 1.5. With memory at hand all of them cost 0.14, and writes of 64 KiB 0.18. Where the disk's room is
# taken before, ext4 need not reserve it block by block.
_WRITE_BYTES = 256 << 10


class ShardFiles:
    """The files of a dataset's shards in a cache. All methods may be called by several threads.

    Args:
        folder: of the dataset.
        names, sizes: of its shards.
    """

    def __init__(self, folder: Path, names: list[str], sizes: NDArray[np.int64]) -> None:
        self._open = lru_cache(_MOST_OPEN)(partial(_opened, folder, names, sizes))

    def write(self, shard: int, start: int, data: Any) -> None:
        """Writes a range; Note [size of a write].

        Raises:
            OSError: the disk refuses, for example because it is full.
        """
        view, done = memoryview(data), 0
        opened = self._open(shard)  # open as long as this refers to it
        try:
            os.posix_fallocate(opened.number(), start, len(view))
        except OSError as problem:
            if problem.errno != errno.EOPNOTSUPP:  # else room is taken bit by bit
                raise
        while done < len(view):
            done += os.pwrite(opened.number(), view[done : done + _WRITE_BYTES], start + done)

    def punch(self, shard: int, start: int, stop: int) -> None:
        """Gives a range back to the disk."""
        opened = self._open(shard)
        punch(opened.number(), start, stop)

    def sync(self, shard: int) -> None:
        """Has the disk write what was written."""
        opened = self._open(shard)
        os.fdatasync(opened.number())

    def close(self) -> None:
        """Lets go of the files."""
        self._open.cache_clear()


def _opened(folder: Path, names: list[str], sizes: NDArray[np.int64], shard: int) -> _engine.Descriptor:
    file = os.open(folder / names[shard], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    opened = _engine.Descriptor(file)  # closes itself
    if os.fstat(file).st_size != int(sizes[shard]):
        os.ftruncate(file, int(sizes[shard]))
    return opened
