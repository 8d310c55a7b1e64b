"""Blocks that have arrived -> kept on a local disk within a limit, shared by all processes of the machine.

A dataset's file `blocks` is a header, and a byte a block: its state.

Note [states of a block]
ALLOTTED: the limit has room for it; that is decided once, so the first blocks that fit are those that are kept.
WRITTEN: its bytes are in the file, checked; every process of this machine may read them, also when the one that wrote
them has been killed. But if the machine itself stops, the disk may have the state and not the bytes: so SYNCED comes
after fdatasync of the shard, some seconds later, and WRITTEN counts only as long as the machine runs (the boot's id
stands in the header). A block that is being fetched is locked: its byte in `blocks`, by a lock of the open file (OFD),
which the kernel drops when the process is gone. There are no lock files.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.native import _engine
from fastpipe.remote import locks
from fastpipe.remote.blocks import BLOCK_BYTES, PAGE_BYTES, Blocks
from fastpipe.remote.cache_root import (
    Hold,
    datasets,
    disk_bytes,
    open_accounts,
    remove,
    remove_unfinished,
    small_bytes,
    unusable,
    used_at,
)
from fastpipe.remote.shard_files import ShardFiles

ABSENT, ALLOTTED, WRITTEN, SYNCED = range(4)

_MAGIC = b"fastpipe blocks 1\n"
HEADER_BYTES = 4096  # behind it, a byte a block
_BOOT_AT = 64
# What a file system itself needs for a sparse shard: the list of its pieces.
_SHARD_BYTES = 4 * PAGE_BYTES


class Cache:
    """The kept blocks of one dataset. All methods may be called by several threads.

    Args:
        hold: the dataset's, whose small files are there.
        names, sizes: of its shards.
        limit: bytes that the whole folder `root` may take.
        beside: the hold of who makes this cache: it is no other user of the dataset.

    Attributes:
        folder: of the dataset.
        root: the folder that has all datasets of the cache.
        blocks: of its shards.
        states: (blocks,) uint8, shared with other processes; Note [states of a block].

    Raises:
        DatasetError: it cannot be written.
    """

    def __init__(
        self, hold: Hold, names: list[str], sizes: NDArray[np.uint64], limit: int, beside: Hold | None = None
    ) -> None:
        self.folder, self.root = hold.folder, hold.folder.parent
        self._hold: Hold | None = hold
        self._limit = limit
        self.blocks = Blocks(sizes)
        self._full = False
        self._files = ShardFiles(self.folder, names, self.blocks.sizes)
        self._lock = threading.Lock()
        self._dirty: set[int] = set()  # blocks that are written and not synced
        self._accounts_file = _engine.Descriptor(open_accounts(self.root))
        self._accounts = self._accounts_file.number()
        try:
            with locks.held(self._accounts), beside.aside() if beside is not None else nullcontext():
                self.states = shared_states(hold.descriptor, len(self.blocks))
                self._keep_to_limit(alone=hold.is_alone())
                hold.share()
        except OSError as problem:
            raise unusable(self.root, problem) from problem

    def _keep_to_limit(self, *, alone: bool) -> None:
        """Removes datasets that no process uses, least recently used first, where this one needs the room; and gives
        its own blocks back, the last ones first, where there are too many and nobody else uses them.
        """
        if alone:
            remove_unfinished(self.folder)
        used, kept = self._recount(), np.flatnonzero(self.states)
        wanted = int(self.blocks.sizes.sum()) - int(self.blocks.bytes_of(kept).sum())
        for folder in sorted(self._others(), key=used_at):
            if used + wanted <= self._limit:
                break
            room = disk_bytes(folder)
            if remove(folder):
                used -= room
        for block in kept[::-1].tolist() if alone else ():
            if used <= self._limit:
                break
            self.states[block] = ABSENT
            self._files.punch(*self.blocks.place(range(block, block + 1)))
            used -= int(self.blocks.bytes_of(np.array([block]))[0])
        self._set_used(used)

    # ---- the limit

    def allot(self, blocks: NDArray[np.int64]) -> None:
        """Makes room for blocks that have none, in their order, as far as the limit goes."""
        if self._full or not len(blocks) or not (self.states[blocks] == ABSENT).any():
            return
        with self._lock, locks.held(self._accounts):
            fresh = blocks[self.states[blocks] == ABSENT]
            costs = self.blocks.bytes_of(fresh)
            first = self.blocks.first
            shards = np.unique(self.blocks.shards_of(fresh))
            overhead = sum(not self.states[first[s] : first[s + 1]].any() for s in shards) * _SHARD_BYTES
            used = self._used()
            fits = used + overhead + np.cumsum(costs) <= self._limit
            taken = fresh[fits]
            if len(taken):
                self._set_used(used + overhead + int(costs[fits].sum()))
                self.states[taken] = ALLOTTED
            self._full = len(taken) < len(fresh)

    def give_up(self) -> None:
        """Keeps no more blocks: the disk is full. Those that are there stay."""
        self._limit = 0

    @property
    def given_up(self) -> bool:
        """Whether the disk was full, or no block may be kept."""
        return self._limit == 0

    def _used(self) -> int:
        return int.from_bytes(os.pread(self._accounts, 8, 8), "little")

    def _set_used(self, used: int) -> None:
        os.pwrite(self._accounts, used.to_bytes(8, "little"), 8)

    def _recount(self) -> int:
        """What all datasets take: after a process was killed, the account may be too high."""
        kept = np.flatnonzero(self.states)
        own = int(self.blocks.bytes_of(kept).sum()) + len(np.unique(self.blocks.shards_of(kept))) * _SHARD_BYTES
        return own + small_bytes(self.folder) + sum(map(disk_bytes, self._others())) + PAGE_BYTES

    def _others(self) -> list[Path]:
        return [folder for folder in datasets(self.root) if folder != self.folder]

    # ---- blocks

    def claim(self, block: int) -> bool:
        """Locks a block, to be fetched; False where another process is at it, and after `close`."""
        return self._hold is not None and locks.claim(self._hold.descriptor, HEADER_BYTES + block, 1)

    def release(self, first: int, count: int) -> None:
        """Unlocks blocks."""
        if self._hold is not None:
            locks.release(self._hold.descriptor, HEADER_BYTES + first, count)

    def holders(self, blocks: Iterable[int]) -> list[int]:
        """The processes that have locked some of the blocks, as far as this one may see them."""
        if self._hold is None:
            return []
        return locks.holders(self._hold.descriptor, [HEADER_BYTES + block for block in blocks])

    def write(self, shard: int, start: int, data: Any) -> None:
        """Writes whole blocks, whose content has been checked, and has all processes see them.

        Raises:
            OSError: the disk refuses, for example because it is full.
        """
        self._files.write(shard, start, data)
        first = int(self.blocks.first[shard]) + start // BLOCK_BYTES
        blocks = range(first, first + -(-len(memoryview(data)) // BLOCK_BYTES))
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
        shards = self.blocks.shards_of(dirty)
        for shard in np.unique(shards).tolist():
            self._files.sync(shard)
            mine = dirty[shards == shard]
            self.states[mine[self.states[mine] == WRITTEN]] = SYNCED

    def close(self) -> None:
        """Lets go of files and locks."""
        self._files.close()
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.touch()
            hold.let_go()


def shared_states(file: int, count: int) -> NDArray[np.uint8]:
    """(blocks,) uint8: the states of a dataset's blocks, shared with other processes.

    Args:
        file: descriptor of `blocks`.
        count: of blocks.

    Raises:
        OSError: the disk has no room for the file.
    """
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
