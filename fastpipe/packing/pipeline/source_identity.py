"""A listed source -> the identity of its picture, by three pieces of its file.

The index has the identity of each sample, so a file and a sample are compared without converting.
"""

from __future__ import annotations

from fastpipe.dataset.format.open_file import FileState
from fastpipe.dataset.format.sample_layout import identity_of
from fastpipe.errors import FastpipeError
from fastpipe.sources.files import SourcePath, read_listed_file
from fastpipe.sources.listing import Source
from fastpipe.sources.source_bytes import LARGE_BYTES


def identity_of_source(root: SourcePath, source: Source) -> int | None:
    """The identity of a source's picture; None: it cannot be known.

    `root`: of the listing.
    """
    if source.identity is not None:
        return source.identity
    # A large file may have been packed from its pixels, not from its bytes.
    if not source.has_image or source.size_bytes > LARGE_BYTES:
        return None
    path = source.file_path
    size_bytes = source.size_bytes
    if source.archive is not None:
        path = source.archive
        size_bytes = source.archive_bytes
    state = FileState(size_bytes, source.mtime_ns, 0)

    def read(offset: int, piece_bytes: int) -> bytes:
        start = source.offset_bytes + offset
        return read_listed_file(root, path, state, start, start + piece_bytes)

    try:
        return identity_of(source.size_bytes, read)
    except (FastpipeError, OSError):
        return None
