"""Bytes -> a file that is complete under its name, or does not exist; a locked work folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import platform
from pathlib import Path

from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.layout import LOCK_FILE
from fastpipe.errors import PackError, no_permission
from fastpipe.machine.environment import count_ranks
from fastpipe.store.other_ranks import describe_folder_of_each_rank

PARTIAL = ".partial"
# Errors of a file system that has no locks, such as Lustre without the option flock, or NFS without
# its lock service. 524 is ENOTSUPP, which the kernel should keep to itself; some file systems let
# it out.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, 524}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}
_log = logging.getLogger("fastpipe")


def publish(partial: Path, final: Path) -> None:
    """Gives a whole, synced file its final name. The name survives a power cut."""
    os.replace(partial, final)
    flags = os.O_RDONLY | os.O_DIRECTORY
    handle = os.open(final.parent, flags)
    try:
        os.fsync(handle)
    except OSError as problem:
        # Some file systems, such as FUSE, cannot sync a folder.
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def make_in_shared(folder: Path) -> None:
    """Creates a folder, but not its parent: a machine that does not see the parent would create
    another one on its own disk.

    Raises:
        PackError: this machine does not see the parent folder.
        OSError: writing fails.
    """
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError as problem:
        raise PackError(
            f"{folder.parent} is not on the machine {platform.node()}; expected DST, and the "
            "folder of --spool, to be folders of a file system that all machines see by the same "
            "path. Mount it there, or choose another folder"
        ) from problem


def no_link(path: str, flags: int) -> int:
    """An opener that refuses a symbolic link, because a link may lead out of the destination."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def write_error(path: Path | str, problem: OSError, verb: str = "write") -> PackError:
    """The error of a file that cannot be written, or, with another verb, not even read."""
    return PackError(
        no_permission(problem)
        or f"cannot {verb} {path}: {problem.strerror or problem}. Finished shards are kept. Make room "
        "or repair the disk, then run the same command again: it continues there"
    )


class WorkFolder:
    """A work folder, created and locked until `release`.

    If the file system has no locks, the lock's file names the process that packs. Then another pack
    of this machine is noticed. One of another machine is not, and a warning says so.

    Raises:
        PackError: another pack holds the folder, or writing fails.
    """

    def __init__(self, path: Path, destination: Place) -> None:
        self.path = path
        self._file = path / LOCK_FILE
        if path.is_symlink():
            raise PackError(
                f"{path} is a link; expected a folder, because packing writes only into "
                f"{path.parent}"
            )
        try:
            # Alone: a folder that is missing here is no sign of another pack, which one that is
            # missing below is.
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise _unwritable_error(destination, problem) from problem
        try:
            with contextlib.ExitStack() as on_error:
                self._lock = on_error.enter_context(
                    open(self._file, "ab+", opener=no_link)
                )
                self._claim(destination)
                locked_file = os.fstat(self._lock.fileno())
                if not os.path.samestat(locked_file, os.stat(self._file)):
                    # Another pack has just ended and removed the file that we locked.
                    raise FileNotFoundError
                # From here on `release` closes the file.
                on_error.pop_all()
        except (BlockingIOError, FileNotFoundError):
            raise _locked_error(destination) from None
        except OSError as problem:
            raise _unwritable_error(destination, problem) from problem

    def _claim(self, destination: Place) -> None:
        """Locks the file. Raises BlockingIOError if another pack of this machine has the lock."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in _NO_LOCKS:
                raise
            self._claim_by_name(problem)
            _log.warning(
                "the file system of %s has no locks (flock: %s), so packing goes on without one. "
                "Make sure that no other machine packs there at the same time",
                destination,
                problem.strerror,
            )

    def _claim_by_name(self, problem: OSError) -> None:
        """Writes this process into the lock's file, unless another one that runs stands there."""
        self._lock.seek(0)
        holder = self._lock.read().decode(errors="replace")
        this_process = _identify_process(os.getpid())
        if holder and holder != this_process and _is_running(holder):
            raise BlockingIOError(f"{holder} has it") from problem
        self._lock.truncate(0)
        self._lock.write(this_process.encode())
        self._lock.flush()

    def release(self) -> None:
        """Unlocks the folder, and removes it if only the lock's file is left in it."""
        with contextlib.suppress(OSError):
            names = [file.name for file in self.path.iterdir()]
            if names == [LOCK_FILE]:
                self._file.unlink()
                self.path.rmdir()
        self._lock.close()


def _locked_error(destination: Place) -> PackError:
    text = (
        f"another program is writing to {destination}; wait for it, or choose another folder. If "
        "several processes pack one source, pack in one of them alone, and let the others wait. If "
        "each writes samples of its own with a fastpipe.Writer, "
    )
    if count_ranks() > 1:
        return PackError(text + describe_folder_of_each_rank(destination))
    return PackError(
        f"{text}give each a folder of its own and the same classes=, and read them as one dataset "
        "with fastpipe.concat(...)"
    )


def _unwritable_error(destination: Place, problem: OSError) -> PackError:
    """The error of a destination where no locked work folder can be."""
    if problem.errno in _FULL:
        remedy = "Make room"
    elif problem.errno in _NOT_ALLOWED:
        remedy = "Allow writing there"
    elif problem.errno in (errno.ENOENT, errno.ENOTDIR):
        remedy = ""  # a folder such as /proc, where nobody can create one
    else:
        remedy = "Repair the disk, or allow writing and locks (flock) there"
    advice = "Choose another folder"
    if remedy:
        advice = f"{remedy}, then run the same command again; or choose another folder"
    return PackError(
        f"cannot write to {destination}, or lock a file there: {problem.strerror}. {advice}"
    )


def _identify_process(pid: int) -> str:
    """The machine, the process id and when the process began; "" if it does not run.

    The time tells a process from a later one with the same id. Source: proc(5), /proc/PID/stat.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        # The second field, the program's name, is in brackets and may have spaces. The time is
        # field 22.
        start_time = stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{platform.node()} {pid} {start_time}"


def _is_running(identity: str) -> bool:
    """Whether a text of `_identify_process` names a process of this machine that runs."""
    machine, _, rest = identity.partition(" ")
    pid = rest.partition(" ")[0]
    if machine != platform.node() or not pid.isdecimal():
        return False
    return _identify_process(int(pid)) == identity
