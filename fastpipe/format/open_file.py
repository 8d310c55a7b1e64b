"""A file -> its state; an open file of a dataset -> ranges or rows of it, or an error that says what to do."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError, PackError, readable
from fastpipe.format.layout import DATASET_FILE
from fastpipe.native import _engine

RESTORE = "restore it (fastpipe verify DATA --repair SRC), or pack the source again, with --overwrite"

# Ranges that lie closer to one another are read in one go: 4 kB more of memory cost less than one more system call.
_NEAR_BYTES = 4608
_PIECE_BYTES = 64 << 20  # at once: a range whose length is a lie must not cost its memory
_TRIES = 10
_HEADER_BYTES = 4096  # more than an .npy file of ours has


class FileState(NamedTuple):
    """What os.stat or a server says of a file: as long as that stays, so does its content. Times are since 1970."""

    size_bytes: int
    mtime_ns: int  # behind a URL the hash of the ETag; where there is none, when it was written
    ctime_ns: int  # behind a URL the end of the second in which it was written: servers tell seconds only
    is_regular: bool = True  # no folder, pipe, socket or device


def state_of(info: os.stat_result) -> FileState:
    return FileState(info.st_size, info.st_mtime_ns, info.st_ctime_ns, stat.S_ISREG(info.st_mode))


def changed(path: object, how: str = "") -> PackError:
    """The error for a file that is no longer the one that was listed; `how` says what is known of it."""
    return PackError(
        f"{readable(str(path))} has changed while packing{how}. Finished shards are kept. Wait until nothing changes "
        "the source, then run the same command again: it continues with the files as they are then"
    )


def read_at(descriptor: int, size_bytes: int, offset_bytes: int) -> bytes:
    """A range, in as many reads as the system needs; shorter only where the file ends. OSError: the disk refuses."""
    pieces, left = [], size_bytes
    while left and (data := os.pread(descriptor, min(left, _PIECE_BYTES), offset_bytes + size_bytes - left)):
        pieces.append(data)
        left -= len(data)
    return b"".join(pieces)


class OpenFile:
    """An open file, for threads and forked children, too: nothing in it changes. DatasetError: it cannot be opened."""

    def __init__(self, file: Path, restore: str = "check that it exists") -> None:
        self.path = file
        try:
            self._open = _engine.Descriptor(os.open(file, os.O_RDONLY | os.O_CLOEXEC))  # closes itself
        except OSError as problem:
            raise DatasetError(
                f"{file} cannot be opened: {problem.strerror}; {restore}. Check the disk and the limit on open files "
                "(ulimit -n)"
            ) from problem
        self.descriptor = self._open.number()

    @property
    def identity(self) -> tuple[int, ...]:
        """Values that another file, or this one when it is written again, does not have."""
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

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
        """Bytes that hold (n,) ranges of the file, near ones in one read, and (n,) where each begins in them."""
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


class Rows:
    """An open file of rows of one size, for rows here and there; for threads and forked children, too.

    Note [records of the index]
    Loaders and `fastpipe.Dataset` read rows from the file, not from a map of it. A file that has become too short, or a
    disk that fails, is then an error; looking at a map of it ends the process by SIGBUS. And a process that looks up
    random rows of a map comes to have all of its pages, of which those that no other process has yet count as its
    private memory. What is read leaves nothing behind.
    """

    def __init__(self, file: OpenFile, first_byte: int, dtype: np.dtype[Any]) -> None:
        self.file, self._first_byte, self._dtype = file, first_byte, dtype
        self.path, self.row_bytes = file.path, dtype.itemsize

    def take(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """The rows of these numbers, in the same shape. DatasetError: the file cannot be read, or is now too short."""
        data, places = self.gather(numbers.ravel(), numbers.ravel() + 1)
        rows: NDArray[Any] = np.frombuffer(data, self._dtype)
        return rows.take(places.reshape(numbers.shape) // self.row_bytes, axis=0)

    def around(self, numbers: NDArray[np.int64], count: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Rows among which are those of (n,) numbers and their neighbours, below `count`, and where each is."""
        begins = np.maximum(numbers - 1, 0)
        data, places = self.gather(begins, np.minimum(numbers + 2, count))
        return np.frombuffer(data, self._dtype), places // self.row_bytes + (numbers - begins)

    def ranges(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
        """The rows from begins[i] to before ends[i], one range behind the other. DatasetError: as `take`."""
        lengths = ends - begins
        if not lengths.any():
            return np.empty((0, *self._dtype.shape), dtype=self._dtype.base)
        data, places = self.gather(begins, ends)
        shifts = places // self.row_bytes - (np.cumsum(lengths) - lengths)
        rows: NDArray[Any] = np.frombuffer(data, self._dtype)[np.arange(lengths.sum()) + np.repeat(shifts, lengths)]
        return rows

    def gather(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
        """The bytes of ranges of rows, as `OpenFile.gather` has them."""
        return self.file.gather(self._first_byte + begins * self.row_bytes, self._first_byte + ends * self.row_bytes)

    def mapped(self, count: int) -> np.memmap[tuple[int], np.dtype[Any]]:
        """The first rows, in a map of the file. DatasetError: the system refuses it."""
        try:
            return np.memmap(self.path, self._dtype, "r", self._first_byte, (count,))
        except (OSError, ValueError) as problem:
            raise DatasetError(
                f"{self.path} cannot be mapped: {getattr(problem, 'strerror', problem)}; check the disk and the limits "
                "on memory and open files (ulimit -v, ulimit -n)"
            ) from problem


def _header(head: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """numpy reads it with Python's own parser, whose count of its depth threads of Python 3.11 share: SystemError."""
    start = head.tell()
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return np.lib.format.read_array_header_1_0(head)
        head.seek(start)
    return np.lib.format.read_array_header_1_0(head)


def open_npy(path: Path, row: np.dtype[Any], rows: int | None) -> tuple[Rows, int]:
    """The rows of an .npy file of a dataset, which has so many, None: any number; and how many. Or DatasetError."""
    file = OpenFile(path, RESTORE)
    try:
        head = io.BytesIO(read_at(file.descriptor, _HEADER_BYTES, 0))
        if np.lib.format.read_magic(head) != (1, 0):
            raise ValueError("not of version 1.0")
        shape, in_columns, dtype = _header(head)
        if in_columns or not shape or rows not in (None, shape[0]) or np.dtype((dtype, shape[1:])) != row:
            raise ValueError(f"{shape} of {dtype}")
        size_bytes, expected = os.fstat(file.descriptor).st_size, head.tell() + shape[0] * row.itemsize
        if size_bytes != expected:
            raise ValueError(f"{size_bytes:,} bytes, not {expected:,}")
    except OSError as problem:
        raise DatasetError(f"{path} cannot be read: {problem.strerror}; check the disk") from problem
    except Exception as problem:  # numpy reads the header with Python's own parser, which raises what it likes
        wanted = "any number of" if rows is None else f"{rows:,}"
        raise DatasetError(
            f"{path} is not a complete .npy file of {wanted} rows of {row}, as {DATASET_FILE} has it: got "
            f"{' '.join(str(problem).split())[:200] or type(problem).__name__}; {RESTORE}"
        ) from problem
    return Rows(file, head.tell(), row), shape[0]
