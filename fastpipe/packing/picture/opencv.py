"""Turns the bytes of an image file into an array through OpenCV: one thread a call, and no chatter."""

from __future__ import annotations

import threading

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError

__all__ = ["decode_bgr", "decode_unchanged", "quiet_cv2"]

_lock = threading.Lock()
_is_quiet = False


def quiet_cv2() -> None:
    """Make OpenCV use only the calling thread and keep its complaints to itself; once a process.

    Packing runs one Python thread a core. OpenCV would start a pool of as many threads for each call,
    which then fight over the same cores; 0 means that it works in the calling thread. And it writes
    to stderr about bad files, which we report ourselves with their reason.
    """
    global _is_quiet
    with _lock:
        if not _is_quiet:
            cv2.setNumThreads(0)
            # OpenCV 5 moved it; 0 is "silent" in both.
            (cv2.setLogLevel if hasattr(cv2, "setLogLevel") else cv2.utils.logging.setLogLevel)(0)
            _is_quiet = True


def decode_bgr(data: bytes | bytearray) -> NDArray[np.uint8]:
    """Decode to (height, width, 3) uint8 BGR, as stored (EXIF orientation ignored). Releases the GIL.

    Raises:
        ImageError: OpenCV cannot decode it.
    """
    pixels = _imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise ImageError(f"cannot be decoded to 8-bit color (got {pixels.shape} {pixels.dtype})")
    return pixels.astype(np.uint8, copy=False)


def decode_unchanged(data: bytes | bytearray) -> NDArray[np.generic]:
    """Decode to whatever depth and channels the file has. Releases the GIL.

    Raises:
        ImageError: OpenCV cannot decode it.
    """
    return _imdecode(data, cv2.IMREAD_UNCHANGED)


def _imdecode(data: bytes | bytearray, flags: int) -> NDArray[np.generic]:
    quiet_cv2()
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except (cv2.error, MemoryError) as error:
        reason = getattr(error, "err", None) or str(error)
        raise ImageError(f"cannot be decoded: {reason}") from error
    if pixels is None:
        raise ImageError("cannot be decoded: the picture data are damaged, cut short or of an unsupported kind")
    return np.asarray(pixels)
