"""A work folder of this machine, which one pack holds at a time, and which is removed when it is empty."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from fastpipe.errors import PackError
from fastpipe.format.folder import Place
from fastpipe.store.files import no_link

LOCK_FILE = "lock"


class WorkFolder:
    """Locked until `release`.

    Args:
        path: of the work folder; made if it is not there.
        shown: the dataset in messages.

    Raises:
        PackError: another pack holds it, or it cannot be made or locked.
    """

    def __init__(self, path: Path, shown: Place) -> None:
        self.path = path
        self._file = self.path / LOCK_FILE
        if self.path.is_symlink():
            raise PackError(f"{self.path} is a link; expected a folder, because packing writes only into {path.parent}")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise _cannot_write(shown, problem) from problem
        try:
            self._lock: BinaryIO = open(self._file, "wb", opener=no_link)  # noqa: SIM115 (held until release)
        except FileNotFoundError as problem:  # the pack that made the folder has just ended and removed it
            raise _another(shown) from problem
        except OSError as problem:
            raise _cannot_write(shown, problem) from problem
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(self._lock.fileno()), os.stat(self._file)):
                raise BlockingIOError  # the pack that made it has just ended and removed it
        except (BlockingIOError, FileNotFoundError) as problem:
            self._lock.close()
            raise _another(shown) from problem
        except OSError as problem:
            self._lock.close()
            raise PackError(
                f"cannot lock {self._file}: {problem.strerror}; DST must be on a file system that supports flock"
            ) from problem

    def release(self) -> None:
        """Lets go of the lock, and removes the folder if there is nothing else in it."""
        with contextlib.suppress(OSError):
            if [file.name for file in self.path.iterdir()] == [LOCK_FILE]:
                self._file.unlink()
                self.path.rmdir()
        self._lock.close()


def _another(destination: Place) -> PackError:
    return PackError(f"another pack is writing to {destination}; wait for it, or choose another folder")


def _cannot_write(destination: Place, problem: OSError) -> PackError:
    return PackError(
        f"cannot write to {destination}: {problem.strerror}. Make room, repair the disk or allow writing, then run "
        "the same command again; or choose another folder"
    )
