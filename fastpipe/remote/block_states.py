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
from numpy.typing import NDArray

ABSENT, ALLOTTED, WRITTEN, SYNCED = range(4)

_MAGIC = b"fastpipe blocks 1\n"
HEADER_BYTES = 4096  # behind it, a byte a block
_BOOT_AT = 64


def shared_states(file: int, count: int) -> NDArray[np.uint8]:
    """(blocks,) uint8: the states of a dataset's blocks, shared with other processes.

    Args:
        file: descriptor of `blocks`.
        count: of blocks.

    Raises:
        OSError: the disk has no room for the file.
    """
    size = HEADER_BYTES + count
    if os.pread(file, len(_MAGIC), 0) != _MAGIC or os.fstat(file).st_size != size:
        os.ftruncate(file, 0)
        os.posix_fallocate(file, 0, size)  # a full disk is an error here, and a SIGBUS in the map
        os.pwrite(file, _MAGIC, 0)
    header = mmap.mmap(file, size)
    states = np.frombuffer(header, dtype=np.uint8, offset=HEADER_BYTES)
    boot = boot_id()
    if header[_BOOT_AT : _BOOT_AT + len(boot)] != boot:
        states[states == WRITTEN] = ALLOTTED
        header[_BOOT_AT : _BOOT_AT + len(boot)] = boot
    states[states > SYNCED] = ABSENT
    return states


def boot_id() -> bytes:
    """What names the time since the machine started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36].ljust(36)
    except OSError:
        return b"unknown".ljust(36)
