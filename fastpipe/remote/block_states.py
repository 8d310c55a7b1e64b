"""A dataset's file `blocks` -> which of its blocks are here, seen by all processes of the machine.

The file is a header, and a byte a block.

Note [states of a block]
ALLOTTED: the limit has room for it; that is decided once, so the first blocks that fit are those that are kept.
WRITTEN: its bytes are in the file, checked; every process of this machine may read them, also when the one that wrote
them has been killed. But if the machine itself stops, the disk may have the state and not the bytes: so SYNCED comes
after fdatasync of the shard, some seconds later, and WRITTEN counts only as long as the machine runs (the boot's id
stands in the header). A block that is being fetched is locked: its byte in `blocks`, by a lock of the open file (OFD),
which the kernel drops when the process is gone. There are no lock files.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from fastpipe.remote import locks

ABSENT, ALLOTTED, WRITTEN, SYNCED = range(4)

_MAGIC = b"fastpipe blocks 1\n"
_HEADER_BYTES = 4096
_BOOT_AT = 64


class BlockStates:
    """The states of a dataset's blocks.

    Args:
        file: descriptor of `blocks`, which has to stay open.
        count: of blocks.

    Attributes:
        states: (blocks,) uint8, shared with other processes.

    Raises:
        OSError: the disk has no room for the file.
    """

    def __init__(self, file: int, count: int) -> None:
        self._file = file
        size = _HEADER_BYTES + count
        if os.pread(file, len(_MAGIC), 0) != _MAGIC or os.fstat(file).st_size != size:
            os.ftruncate(file, 0)
            os.posix_fallocate(file, 0, size)  # a full disk is an error here, and a SIGBUS in the map
            os.pwrite(file, _MAGIC, 0)
        self._map = mmap.mmap(file, size)
        self.states = np.frombuffer(self._map, dtype=np.uint8, offset=_HEADER_BYTES)
        boot = boot_id()
        if self._map[_BOOT_AT : _BOOT_AT + len(boot)] != boot:
            self.states[self.states == WRITTEN] = ALLOTTED
            self._map[_BOOT_AT : _BOOT_AT + len(boot)] = boot
        self.states[self.states > SYNCED] = ABSENT

    def claim(self, block: int) -> bool:
        """Locks a block, to be fetched; False where another process is at it."""
        return locks.claim(self._file, _HEADER_BYTES + block, 1)

    def release(self, first: int, count: int) -> None:
        """Unlocks blocks."""
        locks.release(self._file, _HEADER_BYTES + first, count)


def boot_id() -> bytes:
    """What names the time since the machine started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36].ljust(36)
    except OSError:
        return b"unknown".ljust(36)
