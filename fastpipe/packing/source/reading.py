"""A source file, or a member of a tar, as it was listed -> its bytes, or an error if it has changed since then."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fastpipe.errors import PackError, readable
from fastpipe.format.read_at import read_at
from fastpipe.packing.source.files import FLAGS, SourcePath
from fastpipe.packing.source.listing import Listing, Source

if TYPE_CHECKING:
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

    Args:
        root: the source folder.
        path: of the file in it.
        size_bytes, mtime_ns: as the file was listed.

    Raises:
        OSError: it cannot be read.
        PackError: it has changed, or is gone.
    """
    if not isinstance(root, Path):
        return _read_behind_url(root / path, 0, size_bytes, size_bytes, mtime_ns)

    def changed(now: str) -> PackError:
        if root.is_dir():
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
        data = read_at(handle, size_bytes, 0)
        check(os.fstat(handle))
    finally:
        os.close(handle)
    if len(data) != size_bytes:
        raise changed(f"now ends after {len(data):,}")
    return data


def read_member(tar: SourcePath, member: Source) -> bytes:
    """The bytes of a tar's member. The tar must have the size and time it was listed with, before reading and after.

    Raises:
        PackError: the tar cannot be read, or has changed.
    """
    if not isinstance(tar, Path):
        stop = member.offset_bytes + member.size_bytes
        return _read_behind_url(tar, member.offset_bytes, stop, member.archive_bytes, member.mtime_ns)

    def unchanged() -> bool:
        now = os.fstat(handle)
        return (now.st_size, now.st_mtime_ns) == (member.archive_bytes, member.mtime_ns)

    try:
        handle = os.open(tar, FLAGS)
        try:
            data = read_at(handle, member.size_bytes, member.offset_bytes) if unchanged() else b""
            sound = unchanged() and len(data) == member.size_bytes
        finally:
            os.close(handle)
    except OSError as problem:
        raise PackError(
            f"cannot read {readable(str(tar))}: {problem.strerror}. Finished shards are kept. Remove the cause, then "
            "run the same command again: it continues there"
        ) from problem
    if not sound:
        raise PackError(
            f"{readable(str(tar))} has changed since it was listed, so its members may be at other offsets. Finished "
            "shards are kept. Wait until nothing changes the source, then run the same command again: it continues "
            "with the tars as they are then"
        )
    return data


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
    from fastpipe.remote.objects import Facts

    return path.read_as_listed(start, stop, Facts(whole_bytes, mtime_ns, 0))


class Arriving:
    """Files behind a URL, or members of tars there, that will be read soon: fetched in advance, all at the same time.

    Args:
        listing: that the sources are of. One on this machine needs nothing of this.
        sources: some or all of them.
    """

    def __init__(self, listing: Listing, sources: Sequence[Source]) -> None:
        self._root = None if isinstance(listing.root, Path) else listing.root
        self._sources = sources
        self._begun: dict[range, list[object]] = {}
        self._lock = threading.Lock()

    def begin(self, run: range) -> None:
        """Begins to fetch sources."""
        if self._root is None:
            return
        begun = self._root.expect([_span(self._sources[at]) for at in run if self._sources[at].problem is None])
        with self._lock:
            self._begun[run] = begun

    def end(self, run: range) -> None:
        """Drops what is left of them."""
        if self._root is not None:
            with self._lock:
                begun = self._begun.pop(run)
            self._root.objects.forget(begun)


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
