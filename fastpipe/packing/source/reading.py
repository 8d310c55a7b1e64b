"""A source file, or a member of a tar, as it was listed -> its bytes, or an error if it has changed since then."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fastpipe.errors import PackError, readable
from fastpipe.format.file_state import FileState
from fastpipe.format.read_at import read_at
from fastpipe.packing.source.files import FLAGS, SourcePath
from fastpipe.packing.source.listing import Listing, Source

if TYPE_CHECKING:
    from fastpipe.remote.remote_file import Coming
    from fastpipe.remote.remote_path import RemotePath

_Listed = TypeVar("_Listed", bound=Listing)

_GAP_BYTES = 16 << 10  # between members of a sample that are fetched as one
START_BYTES = 4096  # enough to tell an image's format
LARGE_BYTES = 16 << 20  # of such files the start is read first
# What is wrong with the file itself and will be so tomorrow; any other error is the system's.
OF_THE_FILE = {errno.EACCES, errno.EPERM}
# What opening a file says that was there when it was listed.
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


def read_as_listed(root: SourcePath, path: str, size_bytes: int, mtime_ns: int) -> bytes:
    """The whole content of a file, which must have the size and time that it was listed with, before reading and after.

    So a file that something else is writing is never packed half old and half new, and what dataset.json says of the
    sources is true of what was packed. (Not ctime: backups and indexers change that of files that stay the same.)

    Raises:
        OSError: it cannot be read.
        PackError: it has changed, or is gone.
    """
    return _range_as_listed(root, path, 0, size_bytes, size_bytes, mtime_ns)


def _range_as_listed(root: SourcePath, path: str, start: int, stop: int, size_bytes: int, mtime_ns: int) -> bytes:
    """Bytes `start` to `stop` of a file that had `size_bytes`."""
    if not isinstance(root, Path):
        return _read_behind_url(root / path, start, stop, size_bytes, mtime_ns)

    def changed(now: str) -> PackError:
        if root.is_dir() or not path:  # the source is a tar
            file = readable(str(root / path))
            what = f"{file} has changed while packing: it had {size_bytes:,} bytes when it was listed, and {now}"
        else:
            what = f"the source folder {readable(str(root))} has disappeared"
        return PackError(
            f"{what}. Finished shards are kept. Wait until nothing changes the source folder, then run the same "
            "command again: it continues with the files as they are then"
        )

    def check(now: os.stat_result) -> None:
        if not stat.S_ISREG(now.st_mode):
            raise changed("is no longer a regular file")
        if now.st_size != size_bytes:
            raise changed(f"now has {now.st_size:,}")
        if now.st_mtime_ns != mtime_ns:
            raise changed("was written again, with the same size")

    try:
        handle = os.open(root / path, FLAGS)
    except OSError as problem:
        if problem.errno not in _GONE:
            raise
        raise changed(f"has disappeared ({problem.strerror})") from problem
    try:
        check(os.fstat(handle))
        data = read_at(handle, stop - start, start)
        check(os.fstat(handle))
    finally:
        os.close(handle)
    if len(data) != stop - start:
        raise changed(f"now ends after {start + len(data):,}")
    return data


def read_source(root: SourcePath, source: Source) -> bytes:
    """The whole content of a source file, or of a tar's member; see `read_as_listed`.

    Raises:
        OSError: a file that is a source by itself cannot be read.
        PackError: it, or its tar, has changed since it was listed, or is gone; or its tar cannot be read.
    """
    if source.archive is None:
        return read_as_listed(root, source.file_path, source.size_bytes, source.mtime_ns)
    stop = source.offset_bytes + source.size_bytes
    try:
        return _range_as_listed(root, source.archive, source.offset_bytes, stop, source.archive_bytes, source.mtime_ns)
    except OSError as problem:
        raise PackError(
            f"cannot read {readable(str(root / source.archive))}: {problem.strerror}. Finished shards are kept. Remove "
            "the cause, then run the same command again: it continues there"
        ) from problem


def changed(path: SourcePath) -> PackError:
    """The error for a file that is no longer the one that was listed."""
    return PackError(
        f"{readable(str(path))} has changed while packing. Finished shards are kept. Wait until nothing changes the "
        "source, then run the same command again: it continues with the files as they are then"
    )


def read_start(root: SourcePath, source: Source, size_bytes: int) -> bytes:
    """The first bytes of a source file, from which its format can be told.

    Raises:
        OSError: it cannot be read.
        PackError: of one behind a URL: it does not come, or has changed.
    """
    path = root / (source.file_path if source.archive is None else source.archive)
    size_bytes = min(source.size_bytes, size_bytes)
    if not isinstance(path, Path):
        whole = source.size_bytes if source.archive is None else source.archive_bytes
        at = source.offset_bytes
        return _read_behind_url(path, at, at + size_bytes, whole, source.mtime_ns)
    handle = os.open(path, FLAGS)
    try:
        return read_at(handle, size_bytes, source.offset_bytes)
    finally:
        os.close(handle)


def _read_behind_url(path: RemotePath, start: int, stop: int, whole_bytes: int, mtime_ns: int) -> bytes:
    return path.read_as_listed(start, stop, FileState(whole_bytes, mtime_ns, 0))


class Arriving:
    """Files behind a URL, or members of tars there, that will be read soon: fetched in advance, all at the same time.

    Args:
        listing: that the sources are of. One on this machine needs nothing of this.
    """

    def __init__(self, listing: Listing) -> None:
        self._root = None if isinstance(listing.root, Path) else listing.root
        self._begun: dict[int, list[Coming]] = {}

    def begin(self, run: Sequence[Source]) -> None:
        """Begins to fetch sources."""
        if self._root is not None:
            self._begun[id(run)] = self._root.expect([_span(source) for source in run if source.problem is None])

    def end(self, run: Sequence[Source]) -> None:
        """Drops what is left of them."""
        if self._root is not None:
            self._root.objects.forget(self._begun.pop(id(run)))


def _span(source: Source) -> tuple[str, int, int]:
    """File, first byte, and the one after the last; with the members beside it in its tar that are its fields."""
    start, stop = source.offset_bytes, source.offset_bytes + source.size_bytes
    if source.archive is None:
        return source.file_path, start, stop
    for offset, size in sorted(part for part in source.parts if part is not None):
        if offset + size > stop and offset - stop <= _GAP_BYTES:
            stop = offset + size
    for offset, size in sorted((part for part in source.parts if part is not None), reverse=True):
        if offset < start and start - (offset + size) <= _GAP_BYTES:
            start = offset
    return source.archive, start, stop


def with_own_requests(listing: _Listed) -> _Listed:
    """The same listing; requests for its files can be given up."""
    return listing if isinstance(listing.root, Path) else replace(listing, root=listing.root.apart())


def give_up_requests(listing: Listing) -> None:
    """Gives up the requests of a listing `with_own_requests`: threads that wait for them end."""
    if not isinstance(listing.root, Path):
        listing.root.objects.cancel()
