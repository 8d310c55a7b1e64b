"""A dataset's folder in a cache -> kept as long as a process uses it; removed where none does."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastpipe.native import _engine
from fastpipe.remote import locks
from fastpipe.remote.cache_root import BLOCKS_FILE, URL_FILE, open_accounts, unusable

_IN_USE_AT = 1  # the byte of `blocks` on which every process that uses a dataset has a shared lock


class Hold:
    """A dataset's folder in a cache, which nobody removes as long as this object lives.

    Args:
        root: the cache's folder.
        fingerprint: of the dataset.
        url: where it comes from.

    Attributes:
        folder: of the dataset.

    Raises:
        DatasetError: the folder cannot be made.
    """

    def __init__(self, root: Path, fingerprint: str, url: str) -> None:
        self.folder = root / fingerprint
        accounts = open_accounts(root)
        try:
            with locks.held(accounts):
                self.folder.mkdir(exist_ok=True)
                (self.folder / URL_FILE).write_text(url + "\n", encoding="utf-8")
                file = os.open(self.folder / BLOCKS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._file = _engine.Descriptor(file)  # closes itself
                self.share()
        except OSError as problem:
            raise unusable(root, problem) from problem
        finally:
            os.close(accounts)

    @property
    def descriptor(self) -> int:
        """Of the dataset's file `blocks`, as long as this object lives."""
        return self._file.number()

    def share(self) -> None:
        """Counts as one of its users."""
        locks.claim(self.descriptor, _IN_USE_AT, 1, shared=True)

    def is_alone(self) -> bool:
        """Whether nobody else uses it. If so, nobody can before `share`: with the lock on the accounts only."""
        return locks.claim(self.descriptor, _IN_USE_AT, 1)

    def touch(self) -> None:
        """It is used now: the states change only while blocks come."""
        os.utime(self.descriptor)

    def let_go(self) -> None:
        """Gives up all locks, for good. Closing the file would not: the map of the states, and a forked child, have it
        open, too.
        """
        locks.release(self.descriptor, 0, 0)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Does not count as a user inside the `with`; to be used with the lock on the accounts only."""
        locks.release(self.descriptor, _IN_USE_AT, 1)
        try:
            yield
        finally:
            self.share()


def unfinished(file: Path) -> Path:
    """A name beside a file of a dataset, for it while it is written: no other thread, process or container has it."""
    return file.with_name(f".{file.name}.{uuid.uuid4().hex}")


def remove_unfinished(folder: Path) -> None:
    """Removes what killed processes have left; to be called where no other process uses the dataset."""
    for path in folder.rglob(".*"):
        path.unlink(missing_ok=True)


@contextmanager
def _unused(folder: Path) -> Iterator[bool]:
    """Whether no process uses a dataset of a cache, and none can inside the `with`; False where this user may not write
    its files.
    """
    try:
        file = _engine.Descriptor(os.open(folder / BLOCKS_FILE, os.O_RDWR | os.O_CLOEXEC))  # closes itself
        unused = locks.claim(file.number(), _IN_USE_AT, 1)
    except (FileNotFoundError, PermissionError) as problem:
        unused = isinstance(problem, FileNotFoundError)
    yield unused


def in_use(folder: Path) -> bool:
    """Whether a process uses a dataset of a cache; True for that of a user whose files this one may not write."""
    with _unused(folder) as unused:
        return not unused


def remove(folder: Path) -> bool:
    """Removes a dataset from a cache; False where a process uses it, or this user may not write it."""
    with _unused(folder) as unused:
        if unused:
            shutil.rmtree(folder, ignore_errors=True)
        return unused


def used_at(folder: Path) -> float:
    """When a dataset of a cache was used last, in seconds."""
    try:
        return os.stat(folder / BLOCKS_FILE).st_mtime
    except OSError:
        return 0.0
