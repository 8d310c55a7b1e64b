"""The folder of a cache -> the datasets in it, what they take of the disk, and who uses them; none on a network.

cache_dir/accounts                 bytes that the blocks of all datasets take
          FINGERPRINT/             a dataset's folder, as `fastpipe pack` writes it
                      url          where it came from
                      blocks       the states of its blocks
                      shard-*.tar  sparse, of the recorded size
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
_IN_USE_AT = 1  # the byte of `blocks` on which every process that uses a dataset has a shared lock
# struct flock of Linux, 64 bit: type, whence, start, length, process (0 for locks of an open file).
_FLOCK = "hhqqi4x"
_LOCKED = re.compile(r"OFDLCK +ADVISORY +WRITE .* (\d+) (\d+)$", re.MULTILINE)
_NETWORK = re.compile(r"nfs4?|cifs|smb3?|smbfs|afs|9p|fuse\.sshfs|ceph|fuse\.ceph")


def claim(descriptor: int, start: int, length: int, *, shared: bool = False) -> bool:
    """Locks a range for this open file, or changes its lock; False where another open file holds some of it."""
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, 0, start, length, 0))
    except OSError as problem:
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def release(descriptor: int, start: int, length: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, 0, start, length, 0))


def holders(descriptor: int, places: Collection[int]) -> list[int]:
    """The processes that have locked some of these bytes of an open file, as far as /proc shows this user its locks."""
    found, file = set(), os.fstat(descriptor)
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended, or is another user's
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    if os.path.samestat(os.stat(f"/proc/{process}/fd/{number}"), file):
                        text = Path(f"/proc/{process}/fdinfo/{number}").read_text()
                        spans = [(int(first), int(last)) for first, last in _LOCKED.findall(text)]
                        if any(first <= place <= last for first, last in spans for place in places):
                            found.add(int(process))
    return sorted(found)


def make_root(root: Path, mounts: str | None = None) -> None:
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
    kind = _file_system(root, Path("/proc/self/mountinfo").read_text() if mounts is None else mounts)
    if _NETWORK.fullmatch(kind):
        raise ConfigError(
            f"cache_dir={str(root)!r} lies on a network file system ({kind}); expected a folder on a disk of this "
            "machine, because a cache on the network is no faster than the bucket. Pass cache_dir=, for example on "
            "NVMe, or cache_limit=0 with a cache_dir on any local disk"
        )


def datasets(root: Path) -> list[Path]:
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    return sorted(root / name for name in names if FINGERPRINT.fullmatch(name) and (root / name / URL_FILE).exists())


def open_accounts(root: Path) -> _engine.Descriptor:
    """The account of all datasets, which closes itself."""
    with writing(root):
        return _engine.Descriptor(os.open(root / _ACCOUNTS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))


@contextmanager
def locked(accounts: _engine.Descriptor) -> Iterator[int]:
    """Holds the lock on a cache: on the first byte of its account."""
    file = accounts.number()
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 1, 0))
    try:
        yield file
    finally:
        release(file, 0, 1)


def disk_bytes(folder: Path) -> int:
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


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Whatever the system refuses inside the `with` -> DatasetError."""
    try:
        yield
    except OSError as problem:
        raise DatasetError(
            f"the cache in {root} cannot be written: {problem.strerror or problem}. Pass cache_dir=, a folder on a "
            "local disk that this user may write"
        ) from problem


class Hold:
    """A dataset's folder in a cache, which nobody removes as long as this lives. DatasetError: it cannot be made."""

    def __init__(self, root: Path, fingerprint: str, url: str) -> None:
        self.folder = root / fingerprint
        with writing(root), locked(open_accounts(root)):
            self.folder.mkdir(exist_ok=True)
            (self.folder / URL_FILE).write_text(url + "\n", encoding="utf-8")
            # Of the file `blocks`, as long as this object lives.
            self.descriptor = os.open(self.folder / BLOCKS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._file = _engine.Descriptor(self.descriptor)  # closes itself
            self.share()

    def share(self) -> None:
        claim(self.descriptor, _IN_USE_AT, 1, shared=True)

    @contextmanager
    def alone(self, beside: Hold) -> Iterator[bool]:
        """Whether nobody but this and `beside` uses it; the lock on the accounts has to be held meanwhile."""
        release(beside.descriptor, _IN_USE_AT, 1)
        try:
            yield claim(self.descriptor, _IN_USE_AT, 1)
        finally:
            self.share()
            beside.share()


@contextmanager
def _unused(folder: Path) -> Iterator[bool]:
    """Whether no process uses a dataset, and none can inside the `with`; False where this user may not write."""
    try:
        file = _engine.Descriptor(os.open(folder / BLOCKS_FILE, os.O_RDWR | os.O_CLOEXEC))  # closes itself
        unused = claim(file.number(), _IN_USE_AT, 1)
    except (FileNotFoundError, PermissionError) as problem:
        unused = isinstance(problem, FileNotFoundError)
    yield unused


def in_use(folder: Path) -> bool:
    with _unused(folder) as unused:
        return not unused


def remove(folder: Path) -> bool:
    """Removes a dataset from a cache, unless it is in use; see `in_use`."""
    with _unused(folder) as unused:
        if unused:
            shutil.rmtree(folder, ignore_errors=True)
        return unused


def used_at(folder: Path) -> float:
    with suppress(OSError):
        return os.stat(folder / BLOCKS_FILE).st_mtime
    return 0.0


def _file_system(folder: Path, mounts: str) -> str:
    real, best, kind = os.path.realpath(folder), "", "unknown"
    for line in mounts.splitlines():
        before, _, behind = line.partition(" - ")
        where = before.split(" ")[4].encode().decode("unicode_escape")
        inside = real == where or real.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, behind.split(" ")[0]
    return kind
