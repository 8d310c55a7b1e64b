"""Bytes -> a file that is complete under its final name, or does not exist; a work folder that one pack holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import platform
from pathlib import Path

from fastpipe.errors import PackError
from fastpipe.format.folder import Place

PARTIAL = ".partial"
LOCK_FILE = "lock"
# Errors of a file system that has no locks, such as Lustre without the option flock, or NFS without its lock service.
# 524 is ENOTSUPP, which the kernel should not let out, and some file systems do.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, 524}
_log = logging.getLogger("fastpipe")


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
    """A work folder, made and locked until `release`. PackError: another pack holds it, or the disk refuses.

    Where the file system has no locks, the lock's file names the process that packs. So another pack of this machine is
    noticed, and one of another machine is not: the log says so.
    """

    def __init__(self, path: Path, shown: Place) -> None:
        self.path = path
        self._file = self.path / LOCK_FILE
        if self.path.is_symlink():
            raise PackError(f"{self.path} is a link; expected a folder, because packing writes only into {path.parent}")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as refused:
                self._lock = refused.enter_context(open(self._file, "ab+", opener=no_link))
                self._claim(shown)
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

    def _claim(self, shown: Place) -> None:
        """BlockingIOError: another pack of this machine has the lock."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in _NO_LOCKS:
                raise
            self._lock.seek(0)
            holder = self._lock.read().decode(errors="replace")
            if holder and holder != _process(os.getpid()) and holder == _process_named(holder):
                raise BlockingIOError(f"{holder} has it") from problem
            self._lock.truncate(0)
            self._lock.write(_process(os.getpid()).encode())
            self._lock.flush()
            _log.warning(
                "the file system of %s has no locks (flock: %s), so packing goes on without one. Make sure that no "
                "other machine packs there at the same time",
                shown,
                problem.strerror,
            )

    def release(self) -> None:
        """Lets go of the lock, and removes the folder if there is nothing else in it."""
        with contextlib.suppress(OSError):
            if [file.name for file in self.path.iterdir()] == [LOCK_FILE]:
                self._file.unlink()
                self.path.rmdir()
        self._lock.close()


def _process(number: int) -> str:
    """The machine, the number of a process and when it began, which tells it from a later one of that number; "": it
    is not there, or the system does not say. Source: proc(5), /proc/PID/stat.
    """
    try:
        began = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{platform.node()} {number} {began}"


def _process_named(text: str) -> str:
    """The same of the process that such a text names, if it is of this machine and runs."""
    machine, _, rest = text.partition(" ")
    number = rest.partition(" ")[0]
    return _process(int(number)) if machine == platform.node() and number.isdecimal() else ""
