"""Ranges of bytes of an open file -> locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import errno
import fcntl
import struct
from collections.abc import Iterator
from contextlib import contextmanager

# struct flock of Linux, 64 bit: type, whence, start, length, process (0 for locks of an open file).
_FLOCK = "hhqqi4x"


def claim(descriptor: int, start: int, length: int, *, shared: bool = False) -> bool:
    """Locks a range for this open file; False where another open file holds some of it. A lock that the same open
    file has there already is changed.
    """
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, 0, start, length, 0))
    except OSError as problem:
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def release(descriptor: int, start: int, length: int) -> None:
    """Gives a range up."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, 0, start, length, 0))


@contextmanager
def held(descriptor: int) -> Iterator[None]:
    """Waits for the lock on the first byte of a file, and holds it."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 1, 0))
    try:
        yield
    finally:
        release(descriptor, 0, 1)
