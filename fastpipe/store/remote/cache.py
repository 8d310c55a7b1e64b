"""Blocks that have arrived -> kept on a local disk within a limit, shared by all processes of the machine.

A dataset's file `blocks` is a header, and a byte a block: its state.

Note [states of a block]
ALLOTTED: the limit has room for it; that is decided once, so the first blocks that fit are those that are kept.
WRITTEN: its bytes are in the file, checked; every process of this machine may read them, also when the one that wrote
them has been killed. But if the machine itself stops, the disk may have the state and not the bytes: so SYNCED comes
after fdatasync of the shard, some seconds later, and WRITTEN counts only as long as the machine runs (the boot's id
stands in the header). A block that is being fetched is locked: its byte in `blocks`, by a lock of the open file (OFD).
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.native import _engine
from fastpipe.store.remote import cache_root
from fastpipe.store.remote.blocks import BLOCK_BYTES, PAGE_BYTES, Blocks
from fastpipe.store.remote.cache_root import Hold
from fastpipe.store.remote.objects import Objects
from fastpipe.store.remote.ring import punch

ABSENT, ALLOTTED, WRITTEN, SYNCED = range(4)

_MAGIC = b"fastpipe blocks 1\n"
HEADER_BYTES = 4096  # behind it, a byte a block
_BOOT_AT = 64
# What a file system itself needs for a sparse shard: the list of its pieces.
_SHARD_BYTES = 4 * PAGE_BYTES
_MOST_OPEN = 32
# Note [size of a write]
# The page cache takes a write in pieces of memory as large as the write, up to 2 MiB, and a virtual machine that has
# given such pieces back to its host (page_reporting) has to get them again: a GB costs 0.6 to 1.5 s of a core in writes
# of a MiB, 0.17 to 0.20 s in those of 128 to 512 KiB. ext4 need not reserve room that is taken before block by block.
_WRITE_BYTES = 256 << 10


class Cache:
    """What is kept of a dataset behind a URL. Shards and blocks have their numbers among all that a loader reads. Safe
    in threads. DatasetError: it cannot be written.

    `blocks` are of all shards that the loader reads; `objects` has requests of one reader alone; `limit` is in bytes,
    of the folder with all datasets, 0: no block is kept from now on; who has the hold `beside` is no other user.
    """

    def __init__(
        self, hold: Hold, names: list[str], blocks: Blocks, first_shard: int, objects: Objects, limit: int, beside: Hold
    ) -> None:
        self.folder, self.root = hold.folder, hold.folder.parent
        self.objects, self.blocks, self.limit = objects, blocks, limit
        self.shards = range(first_shard, first_shard + len(names))
        self.first = int(blocks.first[first_shard])  # block
        self._names = names
        self._hold: Hold | None = hold
        self._full = False
        self._opened = lru_cache(_MOST_OPEN)(_shard_file)
        self._lock = threading.Lock()
        self._dirty: set[int] = set()  # blocks that are written and not synced
        self._accounts = cache_root.open_accounts(self.root)
        with cache_root.writing(self.root), cache_root.locked(self._accounts) as accounts, hold.alone(beside) as alone:
            # (blocks of the dataset,) Note [states of a block]
            self.states = shared_states(hold.descriptor, int(blocks.first[self.shards.stop]) - self.first)
            used = self._keep_to_limit(alone=alone)
            os.pwrite(accounts, used.to_bytes(8, "little"), 8)

    def _keep_to_limit(self, *, alone: bool) -> int:
        """Removes datasets that no process uses, least recently used first, where this one needs the room; then its own
        blocks, the last ones first, if it is alone. Returns the bytes that all datasets take.
        """
        for left in self.folder.rglob(".*") if alone else ():  # by killed processes
            left.unlink(missing_ok=True)
        # What all datasets take: after a process was killed, the account may be too high.
        kept = np.flatnonzero(self.states) + self.first
        kept_bytes = int(self.blocks.bytes_of(kept).sum())
        others = {
            folder: cache_root.disk_bytes(folder) for folder in cache_root.datasets(self.root) if folder != self.folder
        }
        used = kept_bytes + len(np.unique(self.blocks.shards_of(kept))) * _SHARD_BYTES
        used += cache_root.small_bytes(self.folder) + sum(others.values()) + PAGE_BYTES
        wanted = int(self.blocks.sizes[self.shards.start : self.shards.stop].sum()) - kept_bytes
        for folder in sorted(others, key=cache_root.used_at):
            if used + wanted <= self.limit:
                break
            if cache_root.remove(folder):
                used -= others[folder]
        for block in kept[::-1].tolist() if alone else ():
            if used <= self.limit:
                break
            self.states[block - self.first] = ABSENT
            shard, start, stop = self.blocks.place(range(block, block + 1))
            file = self._file_of(shard)
            punch(file.number(), start, stop)
            used -= int(self.blocks.bytes_of(np.array([block]))[0])
        return used

    def allot(self, blocks: NDArray[np.int64]) -> None:
        """Makes room for those blocks of the dataset that have none, in their order, as far as the limit goes."""
        mine = blocks[self.has(blocks)] - self.first
        if self._full or not (self.states[mine] == ABSENT).any():
            return
        with self._lock, cache_root.locked(self._accounts) as accounts:
            fresh = mine[self.states[mine] == ABSENT]
            costs = self.blocks.bytes_of(fresh + self.first)
            shards = np.unique(self.blocks.shards_of(fresh + self.first))
            bounds = self.blocks.first[np.stack([shards, shards + 1], axis=1)] - self.first
            overhead = sum(not self.states[a:b].any() for a, b in bounds) * _SHARD_BYTES
            used = int.from_bytes(os.pread(accounts, 8, 8), "little") + overhead
            fits = used + np.cumsum(costs) <= self.limit
            if fits.any():
                os.pwrite(accounts, (used + int(costs[fits].sum())).to_bytes(8, "little"), 8)
                self.states[fresh[fits]] = ALLOTTED
            self._full = not fits.all()

    def name_of(self, shard: int) -> str:
        return self._names[shard - self.shards.start]

    def _file_of(self, shard: int) -> _engine.Descriptor:
        return self._opened(self.folder / self.name_of(shard), int(self.blocks.sizes[shard]))

    def has(self, blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which blocks are the dataset's."""
        return (self.first <= blocks) & (blocks < self.first + len(self.states))

    def is_there(self, block: int) -> bool:
        """Whether a block is written; another process may do that at any time."""
        return bool(self.states[block - self.first] >= WRITTEN)

    def claim(self, block: int) -> bool:
        """Locks a block, to be fetched; False where another process is at it, and after `close`."""
        return self._hold is not None and cache_root.claim(self._hold.descriptor, self._lock_of(block), 1)

    def release(self, blocks: range) -> None:
        if self._hold is not None:
            cache_root.release(self._hold.descriptor, self._lock_of(blocks.start), len(blocks))

    def holders(self, blocks: Iterable[int]) -> list[int]:
        """The processes that have locked some of the blocks, as far as this one may see them."""
        return [] if self._hold is None else cache_root.holders(self._hold.descriptor, [*map(self._lock_of, blocks)])

    def _lock_of(self, block: int) -> int:
        return HEADER_BYTES + block - self.first

    def write(self, shard: int, start: int, data: Any) -> None:
        """Writes whole blocks that have been checked, for all processes to see; Note [size of a write]. OSError: the
        disk refuses.
        """
        view, done, file = memoryview(data), 0, self._file_of(shard)
        try:
            os.posix_fallocate(file.number(), start, len(view))
        except OSError as problem:
            if problem.errno != errno.EOPNOTSUPP:  # else room is taken bit by bit
                raise
        while done < len(view):
            done += os.pwrite(file.number(), view[done : done + _WRITE_BYTES], start + done)
        first = int(self.blocks.first[shard]) + start // BLOCK_BYTES
        blocks = range(first, first + -(-len(view) // BLOCK_BYTES))
        self.states[blocks.start - self.first : blocks.stop - self.first] = WRITTEN
        with self._lock:
            self._dirty.update(blocks)

    def sync(self) -> None:
        """Has the disk write what was written; afterwards it counts also when the machine stops."""
        with self._lock:
            dirty, self._dirty = np.array(sorted(self._dirty), dtype=np.int64), set()
        shards = self.blocks.shards_of(dirty)
        for shard in np.unique(shards).tolist():
            file = self._file_of(shard)
            os.fdatasync(file.number())
            mine = dirty[shards == shard] - self.first
            self.states[mine[self.states[mine] == WRITTEN]] = SYNCED

    def close(self) -> None:
        self._opened.cache_clear()
        hold, self._hold = self._hold, None
        if hold is not None:
            os.utime(hold.descriptor)
            # Closing the file would not: the map of the states, and a forked child, have it open, too.
            cache_root.release(hold.descriptor, 0, 0)


class Caches:
    """All shards that a loader reads: of datasets behind URLs, which have caches, and of others, which are all here."""

    def __init__(self, blocks: Blocks, remote: list[Cache]) -> None:
        self.blocks, self.remote = blocks, remote
        self.of = {shard: each for each in remote for shard in each.shards}
        self.is_remote = np.isin(np.arange(len(blocks.sizes)), list(self.of))  # (shards,)

    def at(self, block: int) -> Cache:
        return self.of[self.blocks.place(range(block, block + 1))[0]]

    def states(self, blocks: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n,) Note [states of a block]."""
        found = np.full(len(blocks), SYNCED, dtype=np.uint8)
        for each in self.remote:
            mine = each.has(blocks)
            found[mine] = each.states[blocks[mine] - each.first]
        return found

    def least_state(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n,) the least state of the blocks from first to last."""
        least = np.minimum(self.states(first), self.states(last))
        for between in range(1, int((last - first).max(initial=0))):
            least = np.minimum(least, self.states(np.minimum(first + between, last)))
        return least

    def forget(self, blocks: NDArray[np.int64]) -> None:
        """Blocks whose content turned out to be wrong: they are fetched again."""
        for each in self.remote:
            forget(each.states, blocks[each.has(blocks)] - each.first)

    @property
    def given_up(self) -> bool:
        """Whether a disk was full, or no block of a dataset may be kept."""
        return any(each.limit == 0 for each in self.remote)


def forget(states: NDArray[np.uint8], blocks: NDArray[np.int64]) -> None:
    """Blocks are not there any more, and keep their room."""
    states[blocks[states[blocks] >= WRITTEN]] = ALLOTTED


def shared_states(file: int, count: int) -> NDArray[np.uint8]:
    """(count,) uint8 states of a dataset's blocks, shared with other processes. OSError: the disk has no room."""
    size = HEADER_BYTES + count
    if os.pread(file, len(_MAGIC), 0) != _MAGIC or os.fstat(file).st_size != size:
        os.ftruncate(file, 0)
        os.posix_fallocate(file, 0, size)  # a full disk is an error here, and a SIGBUS in the map
        os.pwrite(file, _MAGIC, 0)
    header = mmap.mmap(file, size)
    states = np.frombuffer(header, dtype=np.uint8, offset=HEADER_BYTES)
    boot = boot_id()
    if header[_BOOT_AT : _BOOT_AT + len(boot)] != boot:
        states[states == WRITTEN] = ALLOTTED
        header[_BOOT_AT : _BOOT_AT + len(boot)] = boot
    states[states > SYNCED] = ABSENT
    return states


def boot_id() -> bytes:
    """What names the time since the machine started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36].ljust(36)
    except OSError:
        return b"unknown".ljust(36)


def _shard_file(path: Path, size_bytes: int) -> _engine.Descriptor:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    found = _engine.Descriptor(file)  # closes itself: the file is open as long as somebody has this
    if os.fstat(file).st_size != size_bytes:
        os.ftruncate(file, size_bytes)
    return found
