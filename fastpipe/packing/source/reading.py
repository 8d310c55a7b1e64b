"""A source file, or a member of a tar, as it was listed -> its bytes, or an error if it has changed since then."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fastpipe.errors import PackError, readable
from fastpipe.format.file_state import FileState
from fastpipe.packing.source.files import SourcePath, changed, opened
from fastpipe.packing.source.listing import Listing, Source

if TYPE_CHECKING:
    from fastpipe.remote.remote_file import Coming

_Listed = TypeVar("_Listed", bound=Listing)

_GAP_BYTES = 16 << 10  # between members of a sample that are fetched as one
START_BYTES = 4096  # enough to tell an image's format
LARGE_BYTES = 16 << 20  # of such files the start is read first
# What is wrong with the file itself and will be so tomorrow; any other error is the system's.
OF_THE_FILE = {errno.EACCES, errno.EPERM}
# What opening a file says that was there when it was listed.
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR}


def read_as_listed(root: SourcePath, path: str, listed: FileState, start: int = 0, stop: int | None = None) -> bytes:
    """Bytes `start` to `stop` of a file, which must have the size and time that it was listed with, before and after.

    So a file that something else is writing is never packed half old and half new, and what dataset.json says of the
    sources is true of what was packed. (Not ctime: backups and indexers change that of files that stay the same.)

    Raises:
        OSError: it cannot be read.
        PackError: it has changed, or is gone.
    """
    stop = listed.size_bytes if stop is None else stop
    if not isinstance(root, Path):
        return (root / path).read_as_listed(start, stop, listed)

    def refuse(how: str) -> PackError:
        return changed(root / path, f": it had {listed.size_bytes:,} bytes when it was listed, and {how}")

    def check(now: FileState) -> None:
        if now[:2] != listed[:2] or not now.is_regular:
            raise refuse(f"now has {now.size_bytes:,}: it was written again, or something else is in its place")

    try:
        file = opened(root / path)
    except OSError as problem:
        if problem.errno not in _GONE:
            raise
        with_all = "" if root.exists() else ", with all of the source"
        raise refuse(f"has disappeared{with_all} ({problem.strerror})") from problem
    with file:
        check(file.state)
        data = file.read_at(stop - start, start)
        check(file.state)
    if len(data) != stop - start:
        raise refuse(f"now ends after {start + len(data):,}")
    return data


def read_source(root: SourcePath, source: Source, most_bytes: int | None = None) -> bytes:
    """The content of a source file, or of a tar's member, or the first bytes of it; see `read_as_listed`.

    Raises:
        OSError: a file that is a source by itself cannot be read.
        PackError: it, or its tar, has changed since it was listed, or is gone; or its tar cannot be read.
    """
    start, size = source.offset_bytes, min(source.size_bytes, most_bytes or source.size_bytes)
    if source.archive is None:
        return read_as_listed(root, source.file_path, FileState(source.size_bytes, source.mtime_ns, 0), 0, size)
    try:
        listed = FileState(source.archive_bytes, source.mtime_ns, 0)
        return read_as_listed(root, source.archive, listed, start, start + size)
    except OSError as problem:
        raise PackError(
            f"cannot read {readable(str(root / source.archive))}: {problem.strerror}. Finished shards are kept. Remove "
            "the cause, then run the same command again: it continues there"
        ) from problem


class Arriving:
    """Files behind a URL, or members of tars there, that will be read soon: fetched in advance, all at the same time.
    Those of a listing on this machine need nothing of this.
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
    parts = sorted(part for part in source.parts if part is not None)
    for offset, size in parts:
        if offset + size > stop and offset - stop <= _GAP_BYTES:
            stop = offset + size
    for offset, size in reversed(parts):
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
