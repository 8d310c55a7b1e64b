"""The folder of a cache -> the datasets in it, what they take of the disk, and who uses them; none on a network.

cache_dir/accounts                 bytes that the blocks of all datasets take
          FINGERPRINT/             a dataset's folder, as `fastpipe pack` writes it
                      url          where it came from
                      blocks       the states of its blocks
                      shard-*.tar  sparse, of the recorded size
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.native import _engine
from fastpipe.remote import locks
from fastpipe.remote.blocks import PAGE_BYTES

BLOCKS_FILE = "blocks"
URL_FILE = "url"
FINGERPRINT = re.compile(r"[0-9a-f]{16,64}")

_ACCOUNTS_FILE = "accounts"
_IN_USE_AT = 1  # the byte of `blocks` on which every process that uses a dataset has a shared lock
_NETWORK = re.compile(r"nfs4?|cifs|smb3?|smbfs|afs|9p|fuse\.sshfs|ceph|fuse\.ceph")


def make_root(root: Path, mounts: str | None = None) -> None:
    """Makes the cache's folder.

    Args:
        mounts: the content of /proc/self/mountinfo; None: that of this process.

    Raises:
        ConfigError: it lies on a network file system.
        DatasetError: it cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise unusable(root, problem) from problem
    kind = _file_system(root, Path("/proc/self/mountinfo").read_text() if mounts is None else mounts)
    if _NETWORK.fullmatch(kind):
        raise ConfigError(
            f"cache_dir={str(root)!r} lies on a network file system ({kind}); expected a folder on a disk of this "
            "machine, because a cache on the network is no faster than the bucket. Pass cache_dir=, for example on "
            "NVMe, or cache_limit=0 with a cache_dir on any local disk"
        )


def datasets(root: Path) -> list[Path]:
    """The folders of the datasets in a cache."""
    try:
        found = [Path(entry.path) for entry in os.scandir(root) if FINGERPRINT.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    return sorted(folder for folder in found if (folder / URL_FILE).exists())


def open_accounts(root: Path) -> int:
    """A descriptor of the account of all datasets; its first byte is the lock on the cache."""
    try:
        return os.open(root / _ACCOUNTS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        raise unusable(root, problem) from problem


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Holds the lock on a cache."""
    accounts = open_accounts(root)
    try:
        with locks.held(accounts):
            yield
    finally:
        os.close(accounts)


def disk_bytes(folder: Path) -> int:
    """What the files of a folder take on the disk."""
    return sum(status.st_blocks * 512 for _, status in _files(folder))


def small_bytes(folder: Path) -> int:
    """What the files of a dataset that are no shards take; those of any size."""
    small = [status.st_size for name, status in _files(folder) if not re.fullmatch(r"shard-.*\.tar", name)]
    return sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in small) + 4 * PAGE_BYTES  # of the folders themselves


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another process has removed it, or given it its name
                yield name, os.lstat(os.path.join(path, name))


def unusable(root: Path, problem: OSError) -> DatasetError:
    """The error for a cache that this process cannot write."""
    return DatasetError(
        f"the cache in {root} cannot be written: {problem.strerror or problem}. Pass cache_dir=, a folder on a local "
        "disk that this user may write"
    )


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
        try:
            with locked(root):
                self.folder.mkdir(exist_ok=True)
                (self.folder / URL_FILE).write_text(url + "\n", encoding="utf-8")
                file = os.open(self.folder / BLOCKS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._file = _engine.Descriptor(file)  # closes itself
                self.share()
        except OSError as problem:
            raise unusable(root, problem) from problem

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


def _file_system(folder: Path, mounts: str) -> str:
    """The kind of file system that a folder lies on."""
    real, best, kind = os.path.realpath(folder), "", "unknown"
    for line in mounts.splitlines():
        before, _, behind = line.partition(" - ")
        where = before.split(" ")[4].encode().decode("unicode_escape")
        inside = real == where or real.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, behind.split(" ")[0]
    return kind
