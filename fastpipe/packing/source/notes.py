"""Pieces of bytes, kept in a file without a name until they are read, so that they take no memory."""

from __future__ import annotations

import os
import tempfile
import weakref

from fastpipe.errors import PackError
from fastpipe.format.read_at import read_at

_BUFFER_BYTES = 1 << 20


class Notes:
    """Pieces, one behind the other, in a file of the folder for temporary files. It ends with this object."""

    def __init__(self) -> None:
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._handle = os.dup(file.fileno())
        except OSError as problem:
            raise _cannot_keep(problem) from problem
        weakref.finalize(self, os.close, self._handle)
        self._buffer = bytearray()
        self._size_bytes = 0

    def add(self, data: bytes) -> int:
        """Appends a piece; gives its offset.

        Raises:
            PackError: the disk refuses.
        """
        offset = self._size_bytes
        self._buffer += data
        self._size_bytes += len(data)
        if len(self._buffer) >= _BUFFER_BYTES:
            self.flush()
        return offset

    def flush(self) -> None:
        """Writes down what was added; before anything is read.

        Raises:
            PackError: the disk refuses.
        """
        try:
            while self._buffer:
                written = os.write(self._handle, self._buffer)
                del self._buffer[:written]
        except OSError as problem:
            raise _cannot_keep(problem) from problem

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """A piece; safe in threads."""
        return read_at(self._handle, size_bytes, offset_bytes)


def _cannot_keep(problem: OSError) -> PackError:
    return PackError(
        f"cannot keep the values of the source's rows in {tempfile.gettempdir()}: {problem.strerror}. The environment "
        "variable TMPDIR names another folder"
    )
