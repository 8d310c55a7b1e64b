"""A source file as it was listed -> its bytes; one that has changed since is an error."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from fastpipe.errors import PackError
from fastpipe.names import readable

# What opening a file says that was there when it was listed.
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


def read_as_listed(root: Path, path: str, size_bytes: int, mtime_ns: int) -> bytes:
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

    def changed(now: str) -> PackError:
        if root.is_dir():
            file = readable(str(root / path))
            what = f"{file} has changed while packing: it had {size_bytes:,} bytes when it was listed, and {now}"
        else:
            what = f"the source folder {readable(str(root))} is gone"
        return PackError(
            f"{what}. What was finished is kept; bring the source folder to rest, then run the same command again: "
            "it goes on with what is there then"
        )

    def check(now: os.stat_result) -> None:
        if not stat.S_ISREG(now.st_mode):
            raise changed("is no regular file now")
        if now.st_size != size_bytes:
            raise changed(f"has {now.st_size:,} now")
        if now.st_mtime_ns != mtime_ns:
            raise changed("has been written again since, to the same size")

    try:
        handle = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe by now? No waiting for it
    except OSError as problem:
        if problem.errno not in _GONE:
            raise
        raise changed(f"is gone now ({problem.strerror})") from problem
    try:
        check(os.fstat(handle))
        data = _read(handle, size_bytes)
        check(os.fstat(handle))
    finally:
        os.close(handle)
    if len(data) != size_bytes:
        raise changed(f"ends after {len(data):,} now")
    return data


def _read(handle: int, size_bytes: int) -> bytes:
    """So many bytes, or fewer where the file ends."""
    data = os.read(handle, size_bytes)
    if len(data) == size_bytes:
        return data
    pieces, missing = [data], size_bytes - len(data)
    while missing > 0 and (data := os.read(handle, missing)):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)
