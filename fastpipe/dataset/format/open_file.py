"""A file -> its state; an open file of a dataset -> ranges or rows of it, or a useful error."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.array_file import read_npy_header
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import (
    DatasetError,
    PackError,
    in_one_line,
    no_permission,
    readable,
)
from fastpipe.native import _engine

RESTORE = "restore it (fastpipe verify DATA --repair SRC), or pack the source again, with --overwrite"

# Ranges that lie closer to one another are read in one go: 4 kB more of memory cost less than one
# more system call.
_NEAR_BYTES = 4608
# The most that is read at once: a damaged file may announce a range of any length, which must not
# cost its memory.
_PIECE_BYTES = 64 << 20
_HEADER_BYTES = 4096  # more than the header of an .npy file of a dataset has


class FileState(NamedTuple):
    """A file's state by os.stat or a server. While it stays the same, so does the content.

    Times are since 1970.
    """

    size_bytes: int
    # Behind a URL the hash of the ETag; without an ETag, when it was written.
    mtime_ns: int
    # Behind a URL the end of the second in which it was written: servers give seconds only.
    ctime_ns: int
    is_regular: bool = True  # not a folder, pipe, socket or device


def state_of(info: os.stat_result) -> FileState:
    """The state in a result of os.stat."""
    is_regular = stat.S_ISREG(info.st_mode)
    return FileState(
        size_bytes=info.st_size,
        mtime_ns=info.st_mtime_ns,
        ctime_ns=info.st_ctime_ns,
        is_regular=is_regular,
    )


def changed_error(path: object, details: str = "") -> PackError:
    """The error for a file that is no longer as it was listed; `details` says how it changed."""
    return PackError(
        f"{readable(path)} has changed while packing{details}. Finished shards are kept. Wait "
        "until nothing changes the source, then run the same command again: it continues with the "
        "files as they are then"
    )


def read_at(descriptor: int, size_bytes: int, offset_bytes: int) -> bytes:
    """Reads a range, in as many reads as the system needs. It is shorter if the file ends before.

    Raises:
        OSError: the disk refuses.
    """
    pieces = []
    offset = offset_bytes
    end = offset_bytes + size_bytes
    while offset < end:
        missing_bytes = end - offset
        size = min(missing_bytes, _PIECE_BYTES)
        data = os.pread(descriptor, size, offset)
        if not data:
            break
        pieces.append(data)
        offset += len(data)
    return b"".join(pieces)


class OpenFile:
    """An open file. It never changes, so threads and forked children may share it.

    Raises:
        DatasetError: the file cannot be opened.
    """

    def __init__(self, file: Path, restore: str = "check that it exists") -> None:
        self.path = file
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            handle = os.open(file, flags)
            self._open = _engine.Descriptor(handle)  # closes itself
        except OSError as problem:
            raise DatasetError(
                no_permission(problem)
                or f"{file} cannot be opened: {problem.strerror}; {restore}. Check the disk and the "
                "limit on open files (ulimit -n)"
            ) from problem
        self.descriptor = self._open.number()

    @property
    def identity(self) -> tuple[int, ...]:
        """Values that differ if another file takes its place, or if it is written again."""
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """A range of the file. DatasetError: it cannot be read, or the file ends before."""
        try:
            data = read_at(self.descriptor, size_bytes, offset_bytes)
        except OSError as problem:
            raise DatasetError(
                f"{self.path} cannot be read: {problem.strerror}, for {size_bytes:,} bytes at byte "
                f"{offset_bytes:,}; check the disk or the network, or copy the dataset to another "
                "disk"
            ) from problem
        if len(data) < size_bytes:
            raise DatasetError(
                f"{self.path} was truncated after it was opened: expected {size_bytes:,} bytes at "
                f"byte {offset_bytes:,}, got {len(data):,}. Restore it (fastpipe verify DATA "
                "--repair SRC). While a dataset is in use, pack into another folder"
            )
        return data

    def gather(self, starts: Int64s, stops: Int64s) -> tuple[bytes, Int64s]:
        """Reads (n,) ranges of the file, near ones in one read.

        Returns:
            Bytes that hold all of them, and (n,) where each range begins in these.
        """
        if not len(starts):
            return b"", np.empty(0, dtype=np.int64)
        order = np.argsort(starts)
        sorted_starts = starts[order]
        # (n,) the furthest end of a range and of all before it, because ranges may overlap.
        reached = np.maximum.accumulate(stops[order])

        # With a million ranges each array takes 8 MB. Temporary ones have no names, so they are
        # freed at once.
        # (n - 1,) whether a range is too far behind all before it to be read with them.
        is_far = sorted_starts[1:] - reached[:-1] > _NEAR_BYTES
        begins_read = np.concatenate([[True], is_far])
        firsts = np.flatnonzero(begins_read)  # (reads,) the first range of each read
        # (reads,) the last range of each read: the one before the next read's first, or the last.
        next_firsts = firsts[1:]
        lasts = np.append(next_firsts - 1, -1)
        read_offsets = sorted_starts[firsts]
        read_sizes = reached[lasts] - read_offsets
        pieces = map(self.read, read_offsets.tolist(), read_sizes.tolist())
        data = b"".join(pieces)

        # (reads,) where each read begins in `data`, and then the distance from a byte of the file to
        # its position there.
        shifts = np.cumsum(read_sizes)
        shifts -= read_sizes
        shifts -= read_offsets
        # (n,) the shift of each range by the number of its read, and then its position.
        sorted_positions = shifts[np.cumsum(begins_read) - 1]
        sorted_positions += sorted_starts
        positions = np.empty(len(starts), dtype=np.int64)
        positions[order] = sorted_positions
        return data, positions


class Rows:
    """An open file of rows of one size, for rows here and there.

    It never changes, so threads and forked children may share it.

    Note [records of the index]
    Loaders and `fastpipe.Dataset` read rows from the file, not from a map of it. A file that has
    become too short, or a disk that fails, is then an error; looking at a map of it ends the
    process by SIGBUS. And a process that looks up random rows of a map comes to have all of its
    pages, and those that no other process has count as its private memory. What is read leaves
    nothing behind.
    """

    def __init__(self, file: OpenFile, first_byte: int, dtype: np.dtype[Any]) -> None:
        self.file = file
        self.path = file.path
        self.row_bytes = dtype.itemsize
        self._first_byte = first_byte
        self._dtype = dtype

    def take(self, numbers: Int64s) -> NDArray[Any]:
        """The rows of these numbers, in the same shape.

        Raises:
            DatasetError: the file cannot be read, or is now too short.
        """
        flat_numbers = numbers.ravel()
        data, positions = self.gather(flat_numbers, flat_numbers + 1)
        rows: NDArray[Any] = np.frombuffer(data, self._dtype)
        flat_indices = positions // self.row_bytes
        indices = flat_indices.reshape(numbers.shape)
        return rows.take(indices, axis=0)

    def around(self, numbers: Int64s, count: int) -> tuple[NDArray[Any], Int64s]:
        """Reads rows together with their neighbours.

        Args:
            numbers: (n,) of the rows.
            count: how many rows the file has.

        Returns:
            Rows among which they are, and (n,) the position of each in these.
        """
        begins = np.maximum(numbers - 1, 0)
        ends = np.minimum(numbers + 2, count)
        data, positions = self.gather(begins, ends)
        rows: NDArray[Any] = np.frombuffer(data, self._dtype)
        # The first row of each range, and from there to the row itself.
        indices = positions // self.row_bytes
        indices += numbers - begins
        return rows, indices

    def ranges(self, begins: Int64s, ends: Int64s) -> NDArray[Any]:
        """The rows from begins[i] to before ends[i], one range behind the other.

        Raises:
            DatasetError: as `take`.
        """
        lengths = ends - begins
        if not lengths.any():
            return np.empty((0, *self._dtype.shape), dtype=self._dtype.base)
        data, positions = self.gather(begins, ends)
        # (n,) the distance from a row of the result to its position in what was read.
        ends_in_result = np.cumsum(lengths)
        starts_in_result = ends_in_result - lengths
        starts_in_data = positions // self.row_bytes
        shifts = starts_in_data - starts_in_result
        row_shifts = np.repeat(shifts, lengths)
        row_numbers = np.arange(len(row_shifts))
        row_numbers += row_shifts
        rows_read = np.frombuffer(data, self._dtype)
        rows: NDArray[Any] = rows_read[row_numbers]
        return rows

    def gather(self, begins: Int64s, ends: Int64s) -> tuple[bytes, Int64s]:
        """The bytes of ranges of rows, as `OpenFile.gather` returns them."""
        # Both in bytes from the first row on, and then from the start of the file.
        starts = begins * self.row_bytes
        stops = ends * self.row_bytes
        starts += self._first_byte
        stops += self._first_byte
        return self.file.gather(starts, stops)

    def mapped(self, count: int) -> np.memmap[tuple[int], np.dtype[Any]]:
        """The first rows, in a map of the file. DatasetError: the system refuses it."""
        try:
            return np.memmap(
                self.path,
                self._dtype,
                mode="r",
                offset=self._first_byte,
                shape=(count,),
            )
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", problem)
            raise DatasetError(
                f"{self.path} cannot be mapped: {reason}; check the disk and the limits on memory "
                "and open files (ulimit -v, ulimit -n)"
            ) from problem


def open_npy(path: Path, row: np.dtype[Any], rows: int | None) -> tuple[Rows, int]:
    """Opens an .npy file of a dataset.

    Args:
        path: of the file.
        row: the type of its rows, with their shape.
        rows: how many it has; None: any number.

    Returns:
        The rows, and how many there are.

    Raises:
        DatasetError: the file is missing, damaged, or not of that type and length.
    """
    file = OpenFile(path, RESTORE)
    advice = RESTORE
    try:
        first_bytes = read_at(file.descriptor, _HEADER_BYTES, 0)
        head = io.BytesIO(first_bytes)
        version = np.lib.format.read_magic(head)
        if version != (1, 0):
            raise ValueError("not of version 1.0")
        shape, is_fortran, dtype = read_npy_header(head)
        # A file of one number has no rows.
        is_expected = bool(shape) and rows in (None, shape[0])
        shape_of_row = shape[1:]
        file_row = np.dtype((dtype, shape_of_row))
        if shape and file_row == row and not is_expected:
            advice = (
                f"if it is of another pack than {DATASET_FILE}, copy all files of the dataset again; "
                f"else {RESTORE}"
            )
        if is_fortran or not is_expected or file_row != row:
            raise ValueError(f"{shape} of {dtype}")
        row_count = shape[0]
        header_bytes = head.tell()
        size_bytes = os.fstat(file.descriptor).st_size
        expected_bytes = header_bytes + row_count * row.itemsize
        if size_bytes != expected_bytes:
            raise ValueError(f"{size_bytes:,} bytes, not {expected_bytes:,}")
    except OSError as problem:
        raise DatasetError(
            f"{path} cannot be read: {problem.strerror}; check the disk"
        ) from problem
    except Exception as problem:  # Python's parser raises errors of many kinds
        count = "any number of"
        if rows is not None:
            count = f"{rows:,}"
        # The parser's messages have line breaks, and may quote the whole header.
        words = in_one_line(problem, 200) or type(problem).__name__
        raise DatasetError(
            f"{path} is not a complete .npy file of {count} rows of {row}, as {DATASET_FILE} has "
            f"it: got {words}; {advice}"
        ) from problem
    return Rows(file, header_bytes, row), row_count
