"""Ranges of bytes of an open file -> locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# struct flock of Linux, 64 bit: type, whence, start, length, process (0 for locks of an open file).
_FLOCK = "hhqqi4x"
_LOCKED = re.compile(r"OFDLCK +ADVISORY +WRITE .* (\d+) (\d+)$", re.MULTILINE)


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
    """Gives a range up; a length of 0 goes to the end of the file."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, 0, start, length, 0))


def holders(descriptor: int, places: Collection[int]) -> list[int]:
    """The processes that have locked some of these bytes of an open file, as far as this user may see them. The locks
    themselves name no process, but /proc has the locks of each open file of each process.
    """
    found, file = set(), os.fstat(descriptor)
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended, or is another user's
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    if os.path.samestat(os.stat(f"/proc/{process}/fd/{number}"), file):
                        text = Path(f"/proc/{process}/fdinfo/{number}").read_text()
                        spans = [(int(first), int(last)) for first, last in _LOCKED.findall(text)]
                        if any(first <= place <= last for first, last in spans for place in places):
                            found.add(int(process))
    return sorted(found)


@contextmanager
def held(descriptor: int) -> Iterator[None]:
    """Waits for the lock on the first byte of a file, and holds it."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 1, 0))
    try:
        yield
    finally:
        release(descriptor, 0, 1)
