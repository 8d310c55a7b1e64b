"""The folder of a cache -> the datasets in it, their sizes on the disk, and who uses them.

cache_dir/accounts                 bytes that the blocks of all datasets take
          FINGERPRINT/             a dataset's folder, as `fastpipe pack` writes it
                      url          where it came from
                      blocks       the states of its blocks
                      shard-*.tar  sparse, of the recorded size

A cache cannot lie on a network file system.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.native import _engine
from fastpipe.store.remote.blocks import PAGE_BYTES

BLOCKS_FILE = "blocks"
URL_FILE = "url"
FINGERPRINT = re.compile(r"[0-9a-f]{16,64}")

_ACCOUNTS_FILE = "accounts"
# The byte of `blocks` on which every process that uses a dataset has a shared lock.
_IN_USE_AT = 1
# struct flock of Linux, 64 bit: type, whence, start, length, process (0 for locks of an open file).
_FLOCK = "hhqqi4x"
_LOCKED = re.compile(r"OFDLCK +ADVISORY +WRITE .* (\d+) (\d+)$", re.MULTILINE)
_NETWORK = re.compile(r"nfs4?|cifs|smb3?|smbfs|afs|9p|fuse\.sshfs|ceph|fuse\.ceph")


def claim(descriptor: int, start: int, length: int, *, shared: bool = False) -> bool:
    """Locks a range for this open file, or changes its lock.

    Returns False if another open file has locked some of the range.
    """
    lock_type = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    lock = struct.pack(_FLOCK, lock_type, 0, start, length, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    except OSError as problem:
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def release(descriptor: int, start: int, length: int) -> None:
    lock = struct.pack(_FLOCK, fcntl.F_UNLCK, 0, start, length, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)


def holders(descriptor: int, offsets: Collection[int]) -> list[int]:
    """The processes that have locked some of these bytes of an open file.

    The lock of an open file names no process, but /proc shows the locks of each open file. It shows
    only the processes that this user may see.
    """
    file = os.fstat(descriptor)
    process_ids: set[int] = set()
    for process in os.listdir("/proc"):
        if not process.isdigit():
            continue
        # OSError: the process has ended, or belongs to another user.
        with suppress(OSError):
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    opened = os.stat(f"/proc/{process}/fd/{number}")
                    if os.path.samestat(opened, file):
                        fdinfo = Path(f"/proc/{process}/fdinfo/{number}").read_text()
                        if _has_lock(fdinfo, offsets):
                            process_ids.add(int(process))
    return sorted(process_ids)


def _has_lock(fdinfo: str, offsets: Collection[int]) -> bool:
    """Whether the text of a /proc/PID/fdinfo file has a lock on one of these bytes."""
    locked_ranges = [
        range(int(first), int(last) + 1) for first, last in _LOCKED.findall(fdinfo)
    ]
    return any(
        offset in bytes_of_lock for bytes_of_lock in locked_ranges for offset in offsets
    )


def make_root(root: Path, mounts: str | None = None) -> None:
    """Creates a cache's folder.

    Raises:
        ConfigError: the folder is on a network file system.
        DatasetError: the folder cannot be created.
    """
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
    if mounts is None:
        mounts = Path("/proc/self/mountinfo").read_text()
    kind = _file_system(root, mounts)
    if _NETWORK.fullmatch(kind):
        raise ConfigError(
            f"cache_dir={str(root)!r} is on a network file system ({kind}); expected a folder on a "
            "disk of this machine, because a cache on the network is no faster than the bucket. "
            "Pass cache_dir=, for example on NVMe, or cache_limit=0 with a cache_dir on any local "
            "disk"
        )


def datasets(root: Path) -> list[Path]:
    """The folders of the datasets in a cache."""
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    folders = []
    for name in names:
        folder = root / name
        if FINGERPRINT.fullmatch(name) and (folder / URL_FILE).exists():
            folders.append(folder)
    return sorted(folders)


def open_accounts(root: Path) -> _engine.Descriptor:
    """Opens the account of all datasets. The descriptor closes itself."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with writing(root):
        return _engine.Descriptor(os.open(root / _ACCOUNTS_FILE, flags, 0o666))


@contextmanager
def locked(accounts: _engine.Descriptor) -> Iterator[int]:
    """Holds the lock on a cache, which is on the first byte of its account."""
    file = accounts.number()
    lock = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 1, 0)
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, lock)
    try:
        yield file
    finally:
        release(file, 0, 1)


def disk_bytes(folder: Path) -> int:
    """The bytes that the files of a folder take on the disk."""
    # st_blocks counts 512 bytes, whatever the file system's blocks are.
    num_blocks = sum(status.st_blocks for _, status in _files(folder))
    return num_blocks * 512


def small_bytes(folder: Path) -> int:
    """The bytes that all files of a dataset but its shards take, and the folders themselves."""
    total = 4 * PAGE_BYTES
    for name, status in _files(folder):
        if not re.fullmatch(r"shard-.*\.tar", name):
            total += -(-status.st_size // PAGE_BYTES) * PAGE_BYTES
    return total


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for path, _, names in os.walk(folder):
        for name in names:
            # Another process may remove or rename a file after it was listed.
            with suppress(FileNotFoundError):
                yield name, os.lstat(os.path.join(path, name))


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turns every OSError inside the `with` into a DatasetError."""
    try:
        yield
    except OSError as problem:
        raise DatasetError(
            f"the cache in {root} cannot be written: {problem.strerror or problem}. Pass "
            "cache_dir=, a folder on a local disk that this user may write"
        ) from problem


class Hold:
    """A dataset's folder in a cache, which nobody removes as long as this object lives.

    Raises:
        DatasetError: the folder cannot be created.
    """

    def __init__(self, root: Path, fingerprint: str, url: str) -> None:
        self.folder = root / fingerprint
        self.url = url
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with writing(root), locked(open_accounts(root)):
            self.folder.mkdir(exist_ok=True)
            url_file = self.folder / URL_FILE
            url_file.write_text(url + "\n", encoding="utf-8")
            # It is open as long as this object lives: _file closes itself.
            blocks_file = self.folder / BLOCKS_FILE
            self.descriptor = os.open(blocks_file, flags, 0o666)
            self._file = _engine.Descriptor(self.descriptor)
            self.share()

    def share(self) -> None:
        claim(self.descriptor, _IN_USE_AT, 1, shared=True)

    @contextmanager
    def alone(self, beside: Hold) -> Iterator[bool]:
        """Whether nobody but this and `beside` uses the dataset.

        The caller holds the lock on the accounts meanwhile.
        """
        release(beside.descriptor, _IN_USE_AT, 1)
        try:
            yield claim(self.descriptor, _IN_USE_AT, 1)
        finally:
            self.share()
            beside.share()


@contextmanager
def _unused(folder: Path) -> Iterator[bool]:
    """Whether no process uses a dataset. Inside the `with`, none can begin to use it.

    False if this user may not write to the folder.
    """
    try:
        # The descriptor closes itself, which drops the lock.
        flags = os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(folder / BLOCKS_FILE, flags)
        file = _engine.Descriptor(descriptor)
        is_unused = claim(file.number(), _IN_USE_AT, 1)
    except FileNotFoundError:
        is_unused = True
    except PermissionError:
        is_unused = False
    yield is_unused


def in_use(folder: Path) -> bool:
    with _unused(folder) as is_unused:
        return not is_unused


def remove(folder: Path) -> bool:
    """Removes a dataset from a cache. Returns False if the dataset is in use."""
    with _unused(folder) as is_unused:
        if is_unused:
            shutil.rmtree(folder, ignore_errors=True)
        return is_unused


def used_at(folder: Path) -> float:
    """When a dataset was used last, in seconds since 1970; 0.0 if it has not been used."""
    with suppress(OSError):
        return os.stat(folder / BLOCKS_FILE).st_mtime
    return 0.0


def _file_system(folder: Path, mounts: str) -> str:
    """The type of a folder's file system. Source: proc(5), /proc/PID/mountinfo."""
    path = os.path.realpath(folder)
    longest_mount = ""
    kind = "unknown"
    for line in mounts.splitlines():
        # The fifth field is the mount point. The first one behind " - " is the type.
        before, _, after = line.partition(" - ")
        # Spaces in a mount point are escaped as \040.
        mount_point = before.split(" ")[4].encode().decode("unicode_escape")
        is_inside = path == mount_point or path.startswith(
            mount_point.rstrip("/") + "/"
        )
        # A later mount at the same place hides the earlier one.
        if is_inside and len(mount_point) >= len(longest_mount):
            longest_mount = mount_point
            kind = after.split(" ")[0]
    return kind
