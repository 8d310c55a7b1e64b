"""A source file, or a member of a tar, as it was listed -> its bytes, or an error if it has changed since then."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.format.read_at import read_at
from fastpipe.packing.source.listing import Source

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # no waiting for the writer of a pipe
START_BYTES = 4096  # enough to tell an image's format
LARGE_BYTES = 16 << 20  # of such files the start is read first
# What is wrong with the file itself and will be so tomorrow; any other error is the system's.
OF_THE_FILE = {errno.EACCES, errno.EPERM}
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


def read_member(tar: Path, member: Source) -> bytes:
    """The bytes of a tar's member. The tar must have the size and time it was listed with, before reading and after.

    Raises:
        PackError: the tar cannot be read, or has changed.
    """

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


def changed(path: Path) -> PackError:
    """The error for a file that is no longer the one that was listed."""
    return PackError(
        f"{readable(str(path))} has changed while packing. Finished shards are kept. Wait until nothing changes the "
        "source, then run the same command again: it continues with the files as they are then"
    )
