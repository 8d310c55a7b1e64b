"""A folder on a local disk -> the blocks of remote shards that are kept there, shared by all processes of the machine.

    cache_dir/accounts                 bytes that the blocks of all datasets take
              FINGERPRINT/             a dataset's folder, as `fastpipe pack` writes it
                          url          where it came from
                          blocks       a header, and a byte a block: BLOCK_*
                          shard-*.tar  sparse, of the recorded size

Note [states of a block]
A block is a MiB of a shard. ALLOTTED: the limit has room for it; that is decided once, so the first blocks that fit are
those that are kept. WRITTEN: its bytes are in the file, checked; every process of this machine may read them, also when
the one that wrote them has been killed. But if the machine itself stops, the disk may have the state and not the bytes:
so SYNCED comes after fdatasync of the shard, some seconds later, and WRITTEN counts only as long as the machine runs
(the boot's id stands in the header). A block that is being fetched is locked: its byte in `blocks`, by a lock of the
open file (OFD), which the kernel drops when the process is gone. There are no lock files.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.native import _engine
from fastpipe.remote import locks
from fastpipe.remote.holes import punch

BLOCK_BYTES = 1 << 20
ABSENT, ALLOTTED, WRITTEN, SYNCED = range(4)

ACCOUNTS_FILE = "accounts"
BLOCKS_FILE = "blocks"
URL_FILE = "url"

_MAGIC = b"fastpipe blocks 1\n"
_HEADER_BYTES = 4096
_BOOT_AT = 64
_IN_USE_AT = 1  # the byte of the header on which every process that uses a dataset has a shared lock
_PAGE = 4096
# What a file system itself needs for a sparse shard: the list of its pieces.
_SHARD_BYTES = 4 * _PAGE
_MOST_OPEN = 32
_NETWORK = re.compile(r"nfs4?|cifs|smb3?|smbfs|afs|9p|fuse\.sshfs|ceph|fuse\.ceph")
FINGERPRINT = re.compile(r"[0-9a-f]{16,64}")


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
        accounts = _accounts(root)
        try:
            with locks.held(accounts):
                self.folder.mkdir(exist_ok=True)
                (self.folder / URL_FILE).write_text(url + "\n", encoding="utf-8")
                file = os.open(self.folder / BLOCKS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._file = _engine.Descriptor(file)  # closes itself
                locks.claim(self.descriptor, _IN_USE_AT, 1, shared=True)
        except OSError as problem:
            raise _unusable(root, problem) from problem
        finally:
            os.close(accounts)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Does not count as a user inside the `with`; to be used with the lock on the accounts only."""
        locks.release(self.descriptor, _IN_USE_AT, 1)
        try:
            yield
        finally:
            locks.claim(self.descriptor, _IN_USE_AT, 1, shared=True)

    @property
    def descriptor(self) -> int:
        """Of the dataset's file `blocks`, as long as this object lives."""
        return self._file.number()


class Cache:
    """The kept blocks of one dataset. All methods may be called by several threads.

    Args:
        root: the cache's folder.
        hold: the dataset's, whose small files are there.
        names, sizes: of its shards.
        limit: bytes that the whole folder `root` may take.
        beside: the hold of who makes this cache: it is no other user of the dataset.

    Attributes:
        folder: of the dataset.
        first_block: (shards + 1,) int64: number of the first block of each shard.
        states: (blocks,) uint8, shared with other processes; Note [states of a block].

    Raises:
        ConfigError: the folder lies on a network file system.
        DatasetError: it cannot be written.
    """

    def __init__(
        self,
        root: Path,
        hold: Hold,
        names: list[str],
        sizes: NDArray[np.uint64],
        limit: int,
        beside: Hold | None = None,
    ) -> None:
        self.root, self.folder = root, hold.folder
        self._hold: Hold | None = hold
        self._names, self._limit = names, limit
        self.sizes = sizes.astype(np.int64)
        counts = -(-self.sizes // BLOCK_BYTES)
        self.first_block = np.concatenate([[0], np.cumsum(counts)])
        self._full = limit == 0
        self._files: OrderedDict[int, int] = OrderedDict()  # shard -> descriptor, least recently used first
        self._lock = threading.Lock()
        self._dirty: set[int] = set()  # blocks that are written and not synced
        self._accounts_file = _engine.Descriptor(_accounts(root))
        self._accounts = self._accounts_file.number()
        try:
            self._blocks = hold.descriptor
            with locks.held(self._accounts), beside.aside() if beside is not None else nullcontext():
                self._begin(int(self.first_block[-1]))
        except OSError as problem:
            raise _unusable(root, problem) from problem

    def _begin(self, blocks: int) -> None:
        size = _HEADER_BYTES + blocks
        head = os.pread(self._blocks, len(_MAGIC), 0)
        if head != _MAGIC or os.fstat(self._blocks).st_size != size:
            os.ftruncate(self._blocks, 0)
            os.posix_fallocate(self._blocks, 0, size)  # a full disk is an error here, and a SIGBUS in the map
            os.pwrite(self._blocks, _MAGIC, 0)
        self._map = mmap.mmap(self._blocks, size)
        self.states = np.frombuffer(self._map, dtype=np.uint8, offset=_HEADER_BYTES)
        boot = boot_id()
        if self._map[_BOOT_AT : _BOOT_AT + len(boot)] != boot:
            self.states[self.states == WRITTEN] = ALLOTTED
            self._map[_BOOT_AT : _BOOT_AT + len(boot)] = boot
        self.states[self.states > SYNCED] = ABSENT
        alone = locks.claim(self._blocks, _IN_USE_AT, 1)
        used = self._recount()
        if used + self._missing_bytes() > self._limit:
            used = self._drop_others(used)
        if used > self._limit and alone:
            used = self._shrink(used)
        self._set_used(used)
        locks.claim(self._blocks, _IN_USE_AT, 1, shared=True)

    # ---- the limit

    def allot(self, blocks: NDArray[np.int64]) -> None:
        """Makes room for blocks that have none, in their order, as far as the limit goes."""
        if self._full or not len(blocks) or not (self.states[blocks] == ABSENT).any():
            return
        with self._lock, locks.held(self._accounts):
            fresh = blocks[self.states[blocks] == ABSENT]
            costs = self.bytes_of(fresh)
            shards = self.shards_of(fresh)
            new = [not self.states[self.first_block[s] : self.first_block[s + 1]].any() for s in np.unique(shards)]
            overhead = sum(new) * _SHARD_BYTES
            used = self._used()
            fits = used + overhead + np.cumsum(costs) <= self._limit
            taken = fresh[fits]
            if len(taken):
                self._set_used(used + overhead + int(costs[fits].sum()))
                self.states[taken] = ALLOTTED
            self._full = len(taken) < len(fresh)

    def give_up(self) -> None:
        """Keeps no more blocks: the disk is full. Those that are there stay."""
        self._full = True
        self._limit = 0

    @property
    def given_up(self) -> bool:
        """Whether the disk was full."""
        return self._limit == 0 and self._full

    def bytes_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) the room that blocks take on the disk."""
        room: NDArray[np.int64] = -(-self.sizes_of(blocks) // _PAGE) * _PAGE
        return room

    def sizes_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) how many bytes blocks have: the last of a shard may be short."""
        shards = self.shards_of(blocks)
        left = self.sizes[shards] - (blocks - self.first_block[shards]) * BLOCK_BYTES
        sizes: NDArray[np.int64] = np.minimum(BLOCK_BYTES, left)
        return sizes

    def shards_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) the shard of each block."""
        return np.searchsorted(self.first_block, blocks, side="right") - 1

    def _used(self) -> int:
        return int.from_bytes(os.pread(self._accounts, 8, 8), "little")

    def _set_used(self, used: int) -> None:
        os.pwrite(self._accounts, used.to_bytes(8, "little"), 8)

    def _own_bytes(self) -> int:
        kept = np.flatnonzero(self.states)
        if not len(kept):
            return _small_bytes(self.folder)
        touched = len(np.unique(self.shards_of(kept)))
        return int(self.bytes_of(kept).sum()) + touched * _SHARD_BYTES + _small_bytes(self.folder)

    def _missing_bytes(self) -> int:
        return int(self.sizes.sum()) - int(self.bytes_of(np.flatnonzero(self.states)).sum())

    def _recount(self) -> int:
        """What all datasets take: after a process was killed, the account may be too high."""
        others = [folder for folder in datasets(self.root) if folder != self.folder]
        return self._own_bytes() + sum(disk_bytes(folder) for folder in others) + _PAGE

    def _drop_others(self, used: int) -> int:
        """Removes datasets that no process uses, least recently used first; returns what is used then."""
        unused = [folder for folder in datasets(self.root) if folder != self.folder]
        for folder in sorted(unused, key=_used_at):
            if used + self._missing_bytes() <= self._limit:
                break
            room = disk_bytes(folder)
            if remove(folder):
                used -= room
        return used

    def _shrink(self, used: int) -> int:
        """Gives blocks back, the last ones first, until the limit holds."""
        for block in np.flatnonzero(self.states)[::-1].tolist():
            if used <= self._limit:
                break
            shard, begin, stop = self._place(block)
            self.states[block] = ABSENT
            punch(self._file(shard), begin, stop)
            used -= int(self.bytes_of(np.array([block]))[0])
        return used

    # ---- blocks

    def claim(self, block: int) -> bool:
        """Locks a block, to be fetched; False where another process is at it."""
        return locks.claim(self._blocks, _HEADER_BYTES + block, 1)

    def release(self, first: int, count: int) -> None:
        """Unlocks blocks."""
        locks.release(self._blocks, _HEADER_BYTES + first, count)

    def write(self, shard: int, start: int, data: Any) -> None:
        """Writes whole blocks, whose content has been checked, and has all processes see them.

        Raises:
            OSError: the disk refuses, for example because it is full.
        """
        view = memoryview(data)
        with self._lock:
            file = os.dup(self._file(shard))
        try:
            done = 0
            while done < len(view):
                done += os.pwrite(file, view[done:], start + done)
        finally:
            os.close(file)
        first = int(self.first_block[shard]) + start // BLOCK_BYTES
        blocks = range(first, first + -(-len(view) // BLOCK_BYTES))
        self.states[blocks.start : blocks.stop] = WRITTEN
        with self._lock:
            self._dirty.update(blocks)

    def forget(self, blocks: NDArray[np.int64]) -> None:
        """Blocks whose content turned out to be wrong: they are fetched again."""
        self.states[blocks[self.states[blocks] >= WRITTEN]] = ALLOTTED

    def sync(self) -> None:
        """Has the disk write what was written; afterwards it counts also when the machine stops."""
        with self._lock:
            dirty, self._dirty = np.array(sorted(self._dirty), dtype=np.int64), set()
        shards = self.shards_of(dirty)
        for shard in np.unique(shards).tolist():
            file = os.open(self.folder / self._names[shard], os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
            mine = dirty[shards == shard]
            self.states[mine[self.states[mine] == WRITTEN]] = SYNCED

    def close(self) -> None:
        """Lets go of files and locks. The states can be read no more."""
        with self._lock:
            for file in self._files.values():
                os.close(file)
            self._files.clear()
            self._hold = None

    def _place(self, block: int) -> tuple[int, int, int]:
        """Shard, first byte, and the one after the last."""
        shard = int(self.shards_of(np.array([block]))[0])
        begin = (block - int(self.first_block[shard])) * BLOCK_BYTES
        return shard, begin, min(begin + BLOCK_BYTES, int(self.sizes[shard]))

    def _file(self, shard: int) -> int:
        file = self._files.pop(shard, None)
        if file is None:
            file = os.open(self.folder / self._names[shard], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if os.fstat(file).st_size != int(self.sizes[shard]):
                os.ftruncate(file, int(self.sizes[shard]))
            while len(self._files) >= _MOST_OPEN:
                os.close(self._files.popitem(last=False)[1])
        self._files[shard] = file
        return file


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
        raise _unusable(root, problem) from problem
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


def disk_bytes(folder: Path) -> int:
    """What the files of a folder take on the disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:  # another process has removed it
                continue
    return total


def in_use(folder: Path) -> bool:
    """Whether a process uses a dataset of a cache."""
    try:
        file = os.open(folder / BLOCKS_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not locks.claim(file, _IN_USE_AT, 1)
    finally:
        os.close(file)


def remove(folder: Path) -> bool:
    """Removes a dataset from a cache; False where a process uses it."""
    try:
        file = os.open(folder / BLOCKS_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT)
    except FileNotFoundError:
        return True
    try:
        if not locks.claim(file, _IN_USE_AT, 1):
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True
    finally:
        os.close(file)


def boot_id() -> bytes:
    """What names the time since the machine started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36].ljust(36)
    except OSError:
        return b"unknown".ljust(36)


def _accounts(root: Path) -> int:
    try:
        return os.open(root / ACCOUNTS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        raise _unusable(root, problem) from problem


def _unusable(root: Path, problem: OSError) -> DatasetError:
    return DatasetError(
        f"the cache in {root} cannot be written: {problem.strerror or problem}. Pass cache_dir=, a folder on a local "
        "disk that this user may write"
    )


def _small_bytes(folder: Path) -> int:
    """What the files of a dataset that are no shards take; those of any size."""
    total = 4 * _PAGE  # the folders themselves
    for path, _, names in os.walk(folder):
        for name in names:
            if not (name.startswith("shard-") and name.endswith(".tar")):
                total += -(-os.lstat(os.path.join(path, name)).st_size // _PAGE) * _PAGE
    return total


def _used_at(folder: Path) -> float:
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
