"""Values of the rows of a source -> a temporary file, so that they take no memory."""

from __future__ import annotations

import contextlib
import io
import tempfile
import weakref
from collections.abc import Iterator
from typing import NamedTuple

from fastpipe.dataset.format.open_file import read_at
from fastpipe.errors import PackError

_BUFFER_BYTES = 1 << 20


class Notes:
    """Pieces of data, one behind the other, in a temporary file that ends with this object."""

    def __init__(self) -> None:
        with _temporary_file_errors():
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        # A file that is only collected would give a ResourceWarning.
        weakref.finalize(self, file.close)
        self._file = io.BufferedWriter(file, _BUFFER_BYTES)
        self._size_bytes = 0

    def add(self, data: bytes) -> int:
        """Appends a piece, and returns its offset."""
        offset_bytes = self._size_bytes
        with _temporary_file_errors():
            self._size_bytes += self._file.write(data)
        return offset_bytes

    def flush(self) -> None:
        """Writes all pieces to the file. Call it before you read."""
        with _temporary_file_errors():
            self._file.flush()

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Reads a piece; several threads may."""
        return read_at(self._file.fileno(), size_bytes, offset_bytes)


@contextlib.contextmanager
def _temporary_file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise PackError(
            f"cannot keep the values of the source's rows in {tempfile.gettempdir()}: "
            f"{problem.strerror}. The environment variable TMPDIR names another folder"
        ) from problem


class Note(NamedTuple):
    """The values of a row's fields, as a line of JSON in `Listing.notes`."""

    offset_bytes: int
    size_bytes: int
    content: int  # hash of the values, and of the sizes of the files that they name
    state: int  # the same, with the times of these files
