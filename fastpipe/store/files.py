"""Bytes -> a file that is complete under its final name, or does not exist."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path

from fastpipe.errors import PackError

PARTIAL = ".partial"


def sync_folder(folder: Path) -> None:
    """Makes the renames in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot sync a folder, such as FUSE
            raise
    finally:
        os.close(handle)


def publish(partial: Path, final: Path) -> None:
    """Gives a whole, synced file its final name."""
    os.replace(partial, final)
    sync_folder(final.parent)


def make_in_shared(folder: Path) -> None:
    """Makes a folder, but not the one that it is in: a machine that does not see that would make another one.

    Raises:
        PackError: this machine does not see it.
        OSError: the disk refuses.
    """
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError as problem:
        raise PackError(
            f"{folder.parent} is not on the machine {platform.node()}; expected DST, and the folder of --spool, to be "
            "folders of a file system that all machines see by the same path. Mount it there, or choose another folder"
        ) from problem


def no_link(path: str, flags: int) -> int:
    """An opener for files to write: one that is a link is refused, since it may lead out of the destination."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def cannot_write(path: Path | str, problem: OSError, verb: str = "write") -> PackError:
    """The error for a file that the disk refuses."""
    return PackError(
        f"cannot {verb} {path}: {problem.strerror or problem}. Finished shards are kept. Make room or repair the "
        "disk, then run the same command again: it continues there"
    )
