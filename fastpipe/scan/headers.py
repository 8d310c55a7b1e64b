"""Files of a source -> width, height and kind of each, from their first bytes, in threads."""

from __future__ import annotations

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
from fastpipe.format.sample_layout import identity_of
from fastpipe.native import _engine
from fastpipe.packing.source.files import LocalFile
from fastpipe.packing.source.reading import OF_THE_FILE
from fastpipe.progress import shown
from fastpipe.scan.columns import ODD, PLAIN, UNKNOWN, Columns

_AT_ONCE = 256  # files that a thread takes
_THREADS = 16  # they wait for the disk
_START_BYTES = 64 << 10  # of a file that is no plain JPEG; where the size does not stand there, all of it is read


class _Scanned(NamedTuple):
    """How far a scan is, in files: of each only the start is read."""

    bytes: int
    total_bytes: int


def read_files(
    columns: Columns, numbers: NDArray[np.int64], find: Callable[[Columns, NDArray[np.int64]], object]
) -> None:
    """Fills in what `find`, `headers` or `identities`, finds out of some files, in threads. DatasetError: the system,
    not a file, is at fault: an I/O error, too many open files.
    """
    parts = [numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)]
    if not parts:
        return
    done = 0
    threads = ThreadPoolExecutor(min(_THREADS, len(parts)), thread_name_prefix="fastpipe-scan")
    try:
        doing = f"scanning {readable(str(columns.folder))}"
        with shown(Console(stderr=True), doing, lambda now: f"{now.bytes:,} of {now.total_bytes:,} files") as tell:
            for part, _ in zip(parts, threads.map(partial(find, columns), parts), strict=True):
                done += len(part)
                tell(_Scanned(done, len(numbers)))
    finally:
        threads.shutdown(cancel_futures=True)


def identities(columns: Columns, numbers: NDArray[np.int64]) -> None:
    """What names the pictures: sample_layout.identity_of."""
    for number in numbers.tolist():
        path, row = columns.file_of(number), columns.files[number]
        try:
            with LocalFile(path) as file:
                row["identity"] = identity_of(int(row["size"]), partial(_read_inside, file, int(row["offset"])))
        except OSError as problem:
            raise _unreadable(path, problem) from problem


def _read_inside(file: LocalFile, start: int, offset: int, size: int) -> bytes:
    return file.read_at(size, start + offset)


def headers(columns: Columns, numbers: NDArray[np.int64]) -> None:
    """Width, height and kind."""
    files = columns.files
    paths = [columns.file_of(number) for number in numbers.tolist()]
    found = _engine.read_headers(paths, files["offset"][numbers], files["size"][numbers])
    plain = found["plain"] == 1
    files["width"][numbers] = found["width"]
    files["height"][numbers] = found["height"]
    files["kind"][numbers] = np.where(plain, PLAIN, ODD)
    for place in np.flatnonzero(~plain).tolist():
        number = int(numbers[place])
        row = files[number]
        try:
            row["width"], row["height"] = _look(paths[place], int(row["offset"]), int(row["size"]))
        except ImageError as problem:
            columns.reject(number, str(problem))
        except OSError as problem:
            if problem.errno not in OF_THE_FILE:
                raise _unreadable(paths[place], problem) from problem
            columns.reject(number, f"cannot be read: {problem.strerror}")
            row["kind"] = UNKNOWN


def _unreadable(path: bytes, problem: OSError) -> DatasetError:
    return DatasetError(
        f"cannot read {readable(os.fsdecode(path))}: {problem.strerror}; check the disk and the limit on open files "
        "(ulimit -n)"
    )


def _look(path: bytes, start: int, size: int) -> tuple[int, int]:
    """Width and height of a file, or of a tar's member, that is no plain JPEG, as `fastpipe pack` would store it.
    ImageError: pack would refuse it for its header. OSError: it cannot be read.
    """
    from fastpipe.packing.picture.convert import stored_size
    from fastpipe.packing.picture.pillow import PNG_END, png_header
    from fastpipe.packing.picture.probe import image_format

    with LocalFile(path) as file:
        data = file.read_at(min(size, _START_BYTES), start)
        if size > _START_BYTES:
            if image_format(data) == "PNG" and file.read_at(len(PNG_END), start + size - len(PNG_END)) == PNG_END:
                data = png_header(data)
            with suppress(ImageError):  # perhaps because it is only the start
                return stored_size(data)
            data = file.read_at(size, start)
    return stored_size(data)
