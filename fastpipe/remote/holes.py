"""Parts of a sparse file -> room on the disk taken for them, or given back to the disk or the memory."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)


def take_room(descriptor: int, start: int, stop: int) -> None:
    """Has the disk put bytes that will be written into one place; where a file system cannot, it does so bit by bit.

    Raises:
        OSError: the disk is full.
    """
    if _fallocate()(descriptor, _KEEP_SIZE, start, stop - start) != 0 and ctypes.get_errno() != errno.EOPNOTSUPP:
        raise _problem()


def punch(descriptor: int, start: int, stop: int) -> None:
    """Bytes read as zeros afterwards, and take no room.

    Raises:
        OSError: the file system cannot.
    """
    if stop <= start:
        return
    if _fallocate()(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, stop - start) != 0:
        raise _problem()


def _problem() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function
