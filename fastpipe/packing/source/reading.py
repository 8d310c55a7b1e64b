"""A source of a listing, a file or a member of a tar -> its bytes; some are fetched in advance."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fastpipe.errors import PackError, readable
from fastpipe.format.open_file import FileState
from fastpipe.packing.source.files import SourcePath, read_as_listed
from fastpipe.packing.source.listing import Listing, Source

if TYPE_CHECKING:
    from fastpipe.remote.remote_file import Coming

_Listed = TypeVar("_Listed", bound=Listing)

_GAP_BYTES = 16 << 10  # between members of a sample that are fetched as one
START_BYTES = 4096  # enough to tell an image's format
LARGE_BYTES = 16 << 20  # of such files the start is read first
# What is wrong with the file itself and will be so tomorrow; any other error is the system's.
OF_THE_FILE = {errno.EACCES, errno.EPERM}


def read_source(root: SourcePath, source: Source, most_bytes: int | None = None) -> bytes:
    """The content of a source file, or of a tar's member, or the first bytes of it; see `read_as_listed`. OSError only
    of a file that is a source by itself.
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
