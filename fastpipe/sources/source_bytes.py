"""A listed source -> its bytes, which must be those that were listed."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastpipe.dataset.format.open_file import FileState
from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, read_listed_file
from fastpipe.sources.listing import Source

if TYPE_CHECKING:
    from fastpipe.store.remote.remote_path import RemotePath


_GAP_BYTES = 16 << 10  # between members of a sample that are fetched as one
START_BYTES = 4096  # enough to recognise an image's format
LARGE_BYTES = 16 << 20  # of larger files the start is read first
# The file itself is at fault, and will be tomorrow. Any other error is the system's.
FILE_ERRNOS = {errno.EACCES, errno.EPERM}


def read_source(
    root: SourcePath, source: Source, most_bytes: int | None = None
) -> bytes:
    """The content of a source, or its first bytes; see `read_listed_file`.

    OSError: a source that is a file by itself cannot be read. PackError: its tar cannot be read.
    """
    start = source.offset_bytes
    size_bytes = source.size_bytes
    if most_bytes is not None:
        size_bytes = min(size_bytes, most_bytes)
    if source.archive is None:
        state = FileState(source.size_bytes, source.mtime_ns, 0)
        return read_listed_file(root, source.file_path, state, 0, size_bytes)
    try:
        state = FileState(source.archive_bytes, source.mtime_ns, 0)
        return read_listed_file(root, source.archive, state, start, start + size_bytes)
    except OSError as problem:
        raise PackError(
            f"cannot read {readable(root / source.archive)}: {problem.strerror}. Finished "
            "shards are kept. Remove the cause, then run the same command again: it continues there"
        ) from problem


def prefetch_sources(root: RemotePath, run: Sequence[Source]) -> None:
    """Begins to fetch sources behind a URL that will be read soon, all at the same time.

    `forget_sources` has to be called with the same list when they have been read.
    """
    spans = []
    for source in run:
        if source.problem is None:
            name, start, stop = _span_of(source)
            spans.append(((root / name).key, start, stop))
    root.objects.expect(id(run), spans)


def forget_sources(root: RemotePath, run: Sequence[Source]) -> None:
    """Drops what `prefetch_sources` has fetched for this list of sources."""
    root.objects.forget(id(run))


def _span_of(source: Source) -> tuple[str, int, int]:
    """The file of a source, its first byte, and the one after its last.

    Members beside it in its tar that are its fields belong to the span.
    """
    start = source.offset_bytes
    stop = start + source.size_bytes
    if source.archive is None:
        return source.file_path, start, stop
    members = sorted(member for part in source.parts for member in part)
    # Members that follow the image, the nearest first, and then those before it.
    for offset, size_bytes in members:
        end = offset + size_bytes
        if end > stop and offset - stop <= _GAP_BYTES:
            stop = end
    for offset, size_bytes in reversed(members):
        end = offset + size_bytes
        if offset < start and start - end <= _GAP_BYTES:
            start = offset
    return source.archive, start, stop
