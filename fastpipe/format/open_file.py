"""An open file of a dataset -> ranges of its bytes, or an error that says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.native import _engine

# Ranges that lie closer to one another are read in one go: 4 kB more of memory cost less than one more system call.
_NEAR_BYTES = 4608
_PIECE_BYTES = 64 << 20  # at once: a range whose length is a lie must not cost its memory


def read_at(descriptor: int, size_bytes: int, offset_bytes: int) -> bytes:
    """A range of an open file, in as many reads as the system needs for it; shorter only where the file ends before.
    OSError: the disk refuses.
    """
    data = os.pread(descriptor, min(size_bytes, _PIECE_BYTES), offset_bytes)
    if len(data) == size_bytes or not data:
        return data
    pieces, read = [data], len(data)
    while read < size_bytes and (
        data := os.pread(descriptor, min(size_bytes - read, _PIECE_BYTES), offset_bytes + read)
    ):
        pieces.append(data)
        read += len(data)
    return b"".join(pieces)


class OpenFile:
    """A file that is read here and there; see Note [records of the index] in records.py. DatasetError: it cannot be
    opened.

    Threads and forked children may use the same one: nothing in it changes.
    """

    def __init__(self, file: Path) -> None:
        self.path = file
        try:
            self._descriptor = _engine.Descriptor(os.open(file, os.O_RDONLY | os.O_CLOEXEC))  # closes itself
        except OSError as problem:
            raise DatasetError(
                f"{file} cannot be opened: {problem.strerror}; check that it exists, and check the disk and the limit "
                "on open files (ulimit -n)"
            ) from problem

    @property
    def descriptor(self) -> int:
        """Of the file, as long as this object lives."""
        return self._descriptor.number()

    def size_bytes(self) -> int:
        """Of the file now; raises OSError."""
        return os.fstat(self.descriptor).st_size

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """A range of the file. DatasetError: it cannot be read, or the file ends before."""
        try:
            data = read_at(self.descriptor, size_bytes, offset_bytes)
        except OSError as problem:
            raise DatasetError(
                f"{self.path} cannot be read: {problem.strerror}, for {size_bytes:,} bytes at byte {offset_bytes:,}; "
                "check the disk or the network, or copy the dataset to another disk"
            ) from problem
        if len(data) < size_bytes:
            raise DatasetError(
                f"{self.path} was truncated after it was opened: expected {size_bytes:,} bytes at byte "
                f"{offset_bytes:,}, got {len(data):,}. Restore it (fastpipe verify DATA --repair SRC). While a dataset "
                "is in use, pack into another folder"
            )
        return data

    def gather(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
        """Bytes that hold (n,) ranges of the file, from `starts` to before `stops`, and (n,) where each begins in them.
        Ranges that lie near each other come in one read. DatasetError: as `read`.
        """
        if not len(starts):
            return b"", np.empty(0, dtype=np.int64)
        order = np.argsort(starts)
        first, end = starts[order], np.maximum.accumulate(stops[order])
        far = np.concatenate([[True], first[1:] - end[:-1] > _NEAR_BYTES])  # begins a read
        heads = np.flatnonzero(far)
        begins = first[heads]
        sizes = end[np.concatenate([heads[1:] - 1, [-1]])] - begins
        data = b"".join(map(self.read, begins.tolist(), sizes.tolist()))
        moved = np.cumsum(sizes) - sizes - begins  # from a byte of the file to its place in what was read
        places = np.empty(len(starts), dtype=np.int64)
        places[order] = first + moved[np.cumsum(far) - 1]
        return data, places
