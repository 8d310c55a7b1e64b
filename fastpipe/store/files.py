"""Bytes -> a file that is complete under its final name, or does not exist; a work folder that one pack holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
from pathlib import Path

from fastpipe.errors import PackError
from fastpipe.format.folder import Place

PARTIAL = ".partial"
LOCK_FILE = "lock"


def publish(partial: Path, final: Path) -> None:
    """Gives a whole, synced file its final name, also through a power cut."""
    os.replace(partial, final)
    handle = os.open(final.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot sync a folder, such as FUSE
            raise
    finally:
        os.close(handle)


def make_in_shared(folder: Path) -> None:
    """Makes a folder, but not the one that it is in: a machine that does not see that would make another one.
    PackError: this machine does not see it. OSError: the disk refuses.
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
    return PackError(
        f"cannot {verb} {path}: {problem.strerror or problem}. Finished shards are kept. Make room or repair the "
        "disk, then run the same command again: it continues there"
    )


class WorkFolder:
    """A work folder, made and locked until `release`. PackError: another pack holds it, or the disk refuses."""

    def __init__(self, path: Path, shown: Place) -> None:
        self.path = path
        self._file = self.path / LOCK_FILE
        if self.path.is_symlink():
            raise PackError(f"{self.path} is a link; expected a folder, because packing writes only into {path.parent}")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as refused:
                self._lock = refused.enter_context(open(self._file, "wb", opener=no_link))
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(self._lock.fileno()), os.stat(self._file)):
                    raise FileNotFoundError
                refused.pop_all()  # it stays open until `release`
        except OSError as problem:
            # Another pack holds it; or the pack that made it has just ended and removed it.
            if isinstance(problem, (BlockingIOError, FileNotFoundError)):
                raise PackError(
                    f"another pack is writing to {shown}; wait for it, or choose another folder"
                ) from problem
            raise PackError(
                f"cannot write to {shown}, or lock a file there: {problem.strerror}. Make room, repair the disk or "
                "allow writing and locks (flock), then run the same command again; or choose another folder"
            ) from problem

    def release(self) -> None:
        """Lets go of the lock, and removes the folder if there is nothing else in it."""
        with contextlib.suppress(OSError):
            if [file.name for file in self.path.iterdir()] == [LOCK_FILE]:
                self._file.unlink()
                self.path.rmdir()
        self._lock.close()
