"""The files of a scan -> the facts of their headers, and the identities of their pictures."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from rich.console import Console

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.sample_layout import identity_of
from fastpipe.errors import DatasetError, ImageError, readable
from fastpipe.machine.progress import WorkProgress, show_progress
from fastpipe.native import _engine
from fastpipe.sources.files import LocalFile
from fastpipe.sources.scan.scanned_files import (
    CONVERTED,
    HEADER_FIELDS,
    PLAIN,
    UNKNOWN,
    Scan,
)
from fastpipe.sources.source_bytes import FILE_ERRNOS

# A thread reads this many files at a time.
_CHUNK_FILES = 256
# More threads than cores, since they wait for the disk.
_THREADS = 16
# Python reads only the start of a file that the engine cannot read. All of the file is read where
# the start does not tell the size.
_START_BYTES = 64 << 10


def read_files(
    scan: Scan,
    numbers: Int64s,
    read_chunk: Callable[[Scan, Int64s], object],
) -> None:
    """Reads files in threads, and shows the progress.

    Args:
        scan: gets what was read.
        numbers: (n,) of the files.
        read_chunk: `read_headers` or `read_identities`.

    Raises:
        DatasetError: the system, not a file, is at fault.
    """
    if not len(numbers):
        return
    starts = range(0, len(numbers), _CHUNK_FILES)
    chunks = []
    for start in starts:
        chunks.append(numbers[start : start + _CHUNK_FILES])
    title = f"scanning {readable(scan.folder)}"
    console = Console(stderr=True)
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fastpipe-scan")
    try:
        with show_progress(console, title, _describe_progress) as show:
            # `map` gives the chunks in their order, and raises the error of a thread here.
            results = threads.map(partial(read_chunk, scan), chunks)
            for chunk_count, _ in enumerate(results, 1):
                # Of each file only the start is read, so progress is counted in files.
                num_done = min(chunk_count * _CHUNK_FILES, len(numbers))
                total = len(numbers)
                show(WorkProgress(num_done, total, num_done, total))
    finally:
        threads.shutdown(cancel_futures=True)


def _describe_progress(progress: WorkProgress) -> str:
    return f"{progress.done:,} of {progress.total:,} files"


def read_headers(scan: Scan, numbers: Int64s) -> None:
    """Finds out width, height, channels, bits and kind of files.

    Args:
        scan: gets what was read.
        numbers: (n,) of the files.

    Raises:
        DatasetError: the system, not a file, is at fault.
    """
    files = scan.files
    # The engine reads all of these in one call, without the GIL.
    paths = [scan.path_on_disk(number) for number in numbers.tolist()]
    headers = _engine.read_headers(
        paths, files["offset"][numbers], files["size"][numbers]
    )
    is_plain = headers["plain"] == 1
    for name in HEADER_FIELDS:
        files[name][numbers] = headers[name]
    files["kind"][numbers] = np.where(is_plain, PLAIN, CONVERTED)

    # `index` is a position in `numbers`.
    for index in np.flatnonzero(~is_plain).tolist():
        number = int(numbers[index])
        record = files[number]
        try:
            header = _read_other_header(
                paths[index], int(record["offset"]), int(record["size"])
            )
        except ImageError as problem:
            scan.reject(number, str(problem))
        except OSError as problem:
            # Without memory or open files, for example, all files that follow would be rejected.
            if problem.errno not in FILE_ERRNOS:
                raise _read_error(paths[index], problem) from problem
            scan.reject(number, f"cannot be read: {problem.strerror}")
            # The next scan tries again: a change of permissions changes no time of a file.
            files["kind"][number] = UNKNOWN
        else:
            files[HEADER_FIELDS][number] = header


def _read_other_header(
    path: bytes, offset: int, size: int
) -> tuple[int, int, int, int]:
    """Reads a header that the engine cannot read.

    Returns:
        Width, height, channels and bits.

    Raises:
        ImageError: packing would refuse the picture.
    """
    from fastpipe.sources.picture.convert import read_stored_header

    with LocalFile(path) as file:
        if size > _START_BYTES:
            try:
                return read_stored_header(file.read_at(_START_BYTES, offset))
            except ImageError:
                pass  # perhaps the file is sound, and its start does not tell the size
        data = file.read_at(size, offset)
    return read_stored_header(data)


def read_identities(scan: Scan, numbers: Int64s) -> None:
    """Finds out the identities of pictures: see `identity_of`."""
    for number in numbers.tolist():
        path = scan.path_on_disk(number)
        record = scan.files[number]
        try:
            record["identity"] = _identity(
                path, int(record["offset"]), int(record["size"])
            )
        except OSError as problem:
            raise _read_error(path, problem) from problem


def _identity(path: bytes, start: int, size: int) -> int:
    with LocalFile(path) as file:

        def read_range(offset: int, count: int) -> bytes:
            return file.read_at(count, start + offset)

        return identity_of(size, read_range)


def _read_error(path: bytes, problem: OSError) -> DatasetError:
    return DatasetError(
        f"cannot read {readable(os.fsdecode(path))}: {problem.strerror}; check the disk and the "
        "limit on open files (ulimit -n)"
    )
