"""Parts of a sparse file -> given back to the disk or the memory that they took."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)


def punch(descriptor: int, start: int, stop: int) -> None:
    """Bytes read as zeros afterwards, and take no room.

    Raises:
        OSError: the file system cannot.
    """
    if stop <= start:
        return
    if _fallocate()(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, stop - start) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function
