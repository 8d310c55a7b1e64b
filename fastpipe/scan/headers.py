"""Files of a source -> width, height and kind of each, from their first bytes, in threads."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from fastpipe.errors import DatasetError, ImageError, readable
from fastpipe.format.identity import identity_of
from fastpipe.format.read_at import read_at
from fastpipe.native import _engine
from fastpipe.progress import shown
from fastpipe.scan.columns import ODD, PLAIN, Columns

_AT_ONCE = 256  # files that a thread takes
_THREADS = 16  # they wait for the disk
_START_BYTES = 64 << 10  # of a file that is no plain JPEG; where the size does not stand there, all of it is read
_OF_THE_FILE = {errno.EACCES, errno.EPERM}  # as packing has it: another error is the system's


class Scanned(NamedTuple):
    """How far a scan is.

    Attributes:
        files, total: read, and to be read.
    """

    files: int
    total: int

    @property
    def bytes(self) -> int:
        """Files count here: of each only the start is read."""
        return self.files

    @property
    def total_bytes(self) -> int:
        """As `bytes`."""
        return self.total


def read_files(
    columns: Columns, numbers: NDArray[np.int64], find: Callable[[Columns, NDArray[np.int64]], object]
) -> None:
    """Fills in what is found out of some files, in threads.

    Args:
        columns: of the source; changed in place.
        numbers: (m,) of the files.
        find: `headers` or `identities`; different threads fill in different rows.

    Raises:
        DatasetError: the system, not a file, is at fault: an I/O error, too many open files.
    """
    parts = [numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)]
    if not parts:
        return
    done = 0
    threads = ThreadPoolExecutor(min(_THREADS, len(parts)), thread_name_prefix="fastpipe-scan")
    try:
        with shown(Console(stderr=True), f"scanning {readable(str(columns.folder))}", _words) as tell:
            for part, _ in zip(parts, threads.map(lambda part: find(columns, part), parts), strict=True):
                done += len(part)
                tell(Scanned(done, len(numbers)))
    finally:
        threads.shutdown(cancel_futures=True)


def _words(scan: Scanned) -> str:
    return f"{scan.files:,} of {scan.total:,} files"


def identities(columns: Columns, numbers: NDArray[np.int64]) -> None:
    """What names the pictures: format/identity.py."""
    for number in numbers.tolist():
        path, start = columns.file_of(number), int(columns.offsets[number])
        try:
            with open(path, "rb", buffering=0) as file:
                read = partial(_read_inside, file.fileno(), start)
                columns.identities[number] = identity_of(int(columns.sizes[number]), read)
        except OSError as problem:
            raise _unreadable(path, problem) from problem


def _read_inside(handle: int, start: int, offset: int, size: int) -> bytes:
    return read_at(handle, size, start + offset)


def headers(columns: Columns, numbers: NDArray[np.int64]) -> None:
    """Width, height and kind."""
    paths = [columns.file_of(number) for number in numbers.tolist()]
    found = _engine.read_headers(paths, columns.offsets[numbers], columns.sizes[numbers])
    plain = found["plain"] == 1
    columns.widths[numbers] = found["width"]
    columns.heights[numbers] = found["height"]
    columns.kinds[numbers] = np.where(plain, PLAIN, ODD)
    for place in np.flatnonzero(~plain).tolist():
        number = int(numbers[place])
        try:
            columns.widths[number], columns.heights[number] = _look(columns, number, paths[place])
        except ImageError as problem:
            columns.reject(number, str(problem))
        except OSError as problem:
            if problem.errno not in _OF_THE_FILE:
                raise _unreadable(paths[place], problem) from problem
            columns.reject(number, f"cannot be read: {problem.strerror}")
            columns.unread.add(number)


def _unreadable(path: bytes, problem: OSError) -> DatasetError:
    return DatasetError(
        f"cannot read {readable(os.fsdecode(path))}: {problem.strerror}; check the disk and the limit on open files "
        "(ulimit -n)"
    )


def _look(columns: Columns, number: int, path: bytes) -> tuple[int, int]:
    """Width and height of a file that is no plain JPEG, as `fastpipe pack` would store it.

    Raises:
        ImageError: pack would refuse it for its header.
        OSError: it cannot be read.
    """
    from fastpipe.packing.picture.convert import stored_size
    from fastpipe.packing.picture.pillow import PNG_END, png_header
    from fastpipe.packing.picture.probe import image_format

    size_bytes, offset_bytes = int(columns.sizes[number]), int(columns.offsets[number])
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = read_at(handle, min(size_bytes, _START_BYTES), offset_bytes)
        name = image_format(data)
        if size_bytes > _START_BYTES:
            if name == "PNG" and read_at(handle, len(PNG_END), offset_bytes + size_bytes - len(PNG_END)) == PNG_END:
                data = png_header(data)
            with suppress(ImageError):  # perhaps because it is only the start
                return stored_size(data)
            data = read_at(handle, size_bytes, offset_bytes)
    finally:
        os.close(handle)
    return stored_size(data)
