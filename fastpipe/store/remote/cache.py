"""Blocks that have arrived -> kept on a disk within a limit, for all processes of the machine.

A dataset's file `blocks` has a header, and then a byte for each block: its state.

Note [states of a block]
ALLOTTED: the limit has room for the block. That is decided once, so the first blocks that fit are
the ones that are kept.
WRITTEN: the block's bytes are in the file, and were checked. Every process of this machine may read
them, even if the process that wrote them has been killed. But if the machine itself stops, the disk
may have the state and not the bytes. So WRITTEN counts only as long as the machine runs: the id of
the boot is in the header.
SYNCED: fdatasync of the shard has returned, some seconds later.
While a block is fetched, its byte in `blocks` is locked by a lock of the open file (OFD).
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

from fastpipe.arrays import Bools, Int64s, Uint8s
from fastpipe.native import _engine
from fastpipe.store.remote import cache_root
from fastpipe.store.remote.blocks import BLOCK_BYTES, PAGE_BYTES, Blocks
from fastpipe.store.remote.cache_root import Hold
from fastpipe.store.remote.objects import Objects
from fastpipe.store.remote.ring import punch
from fastpipe.warnings_once import warn_once

ABSENT, ALLOTTED, WRITTEN, SYNCED = range(4)

_MAGIC = b"fastpipe blocks 1\n"
# The states of the blocks begin behind the header.
HEADER_BYTES = 4096
_BOOT_AT = 64
# Where the file of accounts has the bytes that all datasets take.
_ACCOUNT_AT = 8
# The room that a file system itself needs for a sparse shard: the list of its pieces.
_SHARD_BYTES = 4 * PAGE_BYTES
_MAX_OPEN_SHARDS = 32
# Note [size of a write]
# The page cache takes a write in pieces of memory as large as the write, up to 2 MiB. A virtual
# machine that has given such pieces back to its host (page_reporting) has to get them again. A GB
# costs 0.6 to 1.5 s of a core in writes of a MiB, and 0.17 to 0.20 s in writes of 128 to 512 KiB.
# ext4 need not reserve room that is taken before block by block.
_WRITE_BYTES = 256 << 10


class Cache:
    """The blocks that a machine keeps of a dataset behind a URL. Safe in threads.

    Shards and blocks have their numbers among all that a loader reads.

    Raises:
        DatasetError: the cache cannot be written.
    """

    def __init__(
        self,
        hold: Hold,
        names: list[str],
        blocks: Blocks,
        first_shard: int,
        objects: Objects,
        limit: int,
        beside: Hold,
    ) -> None:
        """
        Args:
            hold: the dataset's folder in the cache.
            names: the names of the dataset's shards.
            blocks: the blocks of all shards that the loader reads.
            first_shard: the number of the dataset's first shard among these.
            objects: makes the requests of one reader.
            limit: the most bytes that the folder with all datasets may take; 0 keeps no block.
            beside: another hold of the same user, which does not count as another process.
        """
        self.folder = hold.folder
        self.root = hold.folder.parent
        self.objects = objects
        self.blocks = blocks
        self.limit = limit
        end_shard = first_shard + len(names)
        self.shards = range(first_shard, end_shard)
        # The number of the dataset's first block.
        self.first_block = int(blocks.first_blocks[first_shard])
        self._names = names
        self._url = hold.url
        self._hold: Hold | None = hold
        self._is_full = False
        self._open_file = lru_cache(_MAX_OPEN_SHARDS)(_open_shard_file)
        self._lock = threading.Lock()
        # Blocks that are written and not synced.
        self._unsynced: set[int] = set()
        self._accounts = cache_root.open_accounts(self.root)
        # With the lock on the accounts no other process begins to use the dataset, or counts.
        end_block = int(blocks.first_blocks[end_shard])
        num_blocks = end_block - self.first_block
        with (
            cache_root.writing(self.root),
            cache_root.locked(self._accounts) as accounts,
            hold.alone(beside) as alone,
        ):
            # (blocks of the dataset,) Note [states of a block]
            self.states = shared_states(hold.descriptor, num_blocks)
            used_bytes = self._keep_to_limit(alone=alone)
            _write_account(accounts, used_bytes)

    def _keep_to_limit(self, *, alone: bool) -> int:
        """Removes what the limit has no room for. Returns the bytes that all datasets take.

        First go datasets that no process uses, the one that was used longest ago first, as far as
        this dataset needs their room. Then go its own blocks, the last ones first, if no other
        process uses it (`alone`).
        """
        if alone:
            # Files that killed processes left.
            for partial in self.folder.rglob(".*"):
                partial.unlink(missing_ok=True)

        # Count anew: if a process was killed, the account may be too high.
        kept_in_dataset = np.flatnonzero(self.states)
        kept = kept_in_dataset + self.first_block  # (n,) blocks
        bytes_of_kept = self.blocks.bytes_of(kept)
        kept_bytes = int(bytes_of_kept.sum())
        shards_of_kept = self.blocks.shards_of(kept)
        num_kept_shards = len(np.unique(shards_of_kept))
        used_bytes = kept_bytes + num_kept_shards * _SHARD_BYTES
        used_bytes += cache_root.small_bytes(self.folder)
        other_bytes: dict[Path, int] = {}  # of each other dataset, by its folder
        for folder in cache_root.datasets(self.root):
            if folder != self.folder:
                other_bytes[folder] = cache_root.disk_bytes(folder)
        used_bytes += sum(other_bytes.values())
        used_bytes += PAGE_BYTES  # of the account itself

        # The blocks that this dataset still lacks.
        first = self.shards.start
        end = self.shards.stop
        shard_sizes = self.blocks.sizes[first:end]
        dataset_bytes = int(shard_sizes.sum())
        missing_bytes = dataset_bytes - kept_bytes
        longest_ago_first = sorted(other_bytes, key=cache_root.used_at)
        for folder in longest_ago_first:
            if used_bytes + missing_bytes <= self.limit:
                break
            if cache_root.remove(folder):
                used_bytes -= other_bytes[folder]

        if alone:
            last_first = kept[::-1].tolist()
            for block in last_first:
                if used_bytes <= self.limit:
                    break
                used_bytes -= self._drop(block)
        return used_bytes

    def _drop(self, block: int) -> int:
        """Removes a block from the disk. Returns the bytes that it took."""
        self.states[block - self.first_block] = ABSENT
        shard, start, stop = self.blocks.range_of(block)
        file = self._file_of(shard)
        punch(file.number(), start, stop)
        (block_bytes,) = self.blocks.bytes_of(np.array([block]))
        return int(block_bytes)

    def allot(self, blocks: Int64s) -> None:
        """Reserves room for those blocks of the dataset that have none, up to the limit."""
        # (m,) the dataset's blocks among them, as indices into the states.
        blocks_of_dataset = blocks[self.has(blocks)]
        mine = blocks_of_dataset - self.first_block
        is_absent = self.states[mine] == ABSENT
        if self._is_full or not is_absent.any():
            return
        with self._lock, cache_root.locked(self._accounts) as accounts:
            # Another process may have reserved room for some of them meanwhile.
            is_still_absent = self.states[mine] == ABSENT
            new = mine[is_still_absent]
            new_blocks = new + self.first_block
            used_bytes = _read_account(accounts)
            used_bytes += self._new_shard_bytes(new_blocks)
            block_bytes = self.blocks.bytes_of(new_blocks)
            # A block fits if it and all before it do.
            bytes_up_to = used_bytes + np.cumsum(block_bytes)
            fits = bytes_up_to <= self.limit
            if fits.any():
                fitting_bytes = block_bytes[fits]
                used_bytes += int(fitting_bytes.sum())
                _write_account(accounts, used_bytes)
                fitting = new[fits]
                self.states[fitting] = ALLOTTED
            self._is_full = not fits.all()
        # With a limit of 0 it keeps nothing on purpose.
        if self._is_full and self.limit:
            self._warn_of_limit()

    def _warn_of_limit(self) -> None:
        first = self.shards.start
        end = self.shards.stop
        dataset_gb = int(self.blocks.sizes[first:end].sum()) / 1e9
        limit_gb = self.limit / 1e9
        warn_once(
            f"full cache of {self._url}",
            f"the cache in {self.root} is full: cache_limit= is {limit_gb:.3g} GB, and the shards of "
            f"{self._url} have {dataset_gb:.3g} GB. What it does not keep is fetched again in each epoch. "
            "If the disk has room, pass a larger cache_limit= to fastpipe.open",
        )

    def _new_shard_bytes(self, blocks: Int64s) -> int:
        """The room for those shards of blocks of which nothing is kept yet."""
        total = 0
        shards_of_blocks = self.blocks.shards_of(blocks)
        for shard in np.unique(shards_of_blocks).tolist():
            # The shard's blocks, as indices into the states.
            first_and_end = self.blocks.first_blocks[shard : shard + 2]
            borders = first_and_end - self.first_block
            start, stop = borders.tolist()
            states_of_shard = self.states[start:stop]
            if not states_of_shard.any():
                total += _SHARD_BYTES
        return total

    def name_of(self, shard: int) -> str:
        shard_in_dataset = shard - self.shards.start
        return self._names[shard_in_dataset]

    def _file_of(self, shard: int) -> _engine.Descriptor:
        path = self.folder / self.name_of(shard)
        size_bytes = int(self.blocks.sizes[shard])
        return self._open_file(path, size_bytes)

    def has(self, blocks: Int64s) -> Bools:
        """(n,) which blocks belong to the dataset."""
        end_block = self.first_block + len(self.states)
        is_behind_begin = blocks >= self.first_block
        is_before_end = blocks < end_block
        return is_behind_begin & is_before_end

    def is_there(self, block: int) -> bool:
        """Whether a block is written. Another process may write it at any time."""
        state = self.states[block - self.first_block]
        return bool(state >= WRITTEN)

    def claim(self, block: int) -> bool:
        """Locks a block, to fetch it. False if another process fetches it, and after `close`."""
        if self._hold is None:
            return False
        offset = self._lock_offset(block)
        return cache_root.claim(self._hold.descriptor, offset, 1)

    def release(self, blocks: range) -> None:
        if self._hold is not None:
            offset = self._lock_offset(blocks.start)
            cache_root.release(self._hold.descriptor, offset, len(blocks))

    def holders(self, blocks: Iterable[int]) -> list[int]:
        """The processes that have locked some of the blocks, if this user may see them."""
        if self._hold is None:
            return []
        offsets = [self._lock_offset(block) for block in blocks]
        return cache_root.holders(self._hold.descriptor, offsets)

    def _lock_offset(self, block: int) -> int:
        return HEADER_BYTES + block - self.first_block

    def write(self, shard: int, start: int, data: Any) -> None:
        """Writes whole blocks that were checked, so that all processes see them.

        See Note [size of a write].

        Raises:
            OSError: writing fails.
        """
        view = memoryview(data)
        file = self._file_of(shard)
        try:
            os.posix_fallocate(file.number(), start, len(view))
        except OSError as problem:
            # A file system that cannot reserve room takes it bit by bit.
            if problem.errno != errno.EOPNOTSUPP:
                raise
        written = 0
        while written < len(view):
            end_of_piece = written + _WRITE_BYTES
            piece = view[written:end_of_piece]
            offset = start + written
            written += os.pwrite(file.number(), piece, offset)

        first_of_shard = int(self.blocks.first_blocks[shard])
        block_in_shard = start // BLOCK_BYTES
        first = first_of_shard + block_in_shard
        view_bytes = len(view)
        num_blocks = -(-view_bytes // BLOCK_BYTES)  # rounded up
        end = first + num_blocks
        first_state = first - self.first_block
        end_state = end - self.first_block
        self.states[first_state:end_state] = WRITTEN
        with self._lock:
            self._unsynced.update(range(first, end))

    def sync(self) -> None:
        """Waits until the disk has what was written. Then it counts after a crash, too."""
        with self._lock:
            ascending = sorted(self._unsynced)
            self._unsynced = set()
        unsynced = np.array(ascending, dtype=np.int64)
        shards = self.blocks.shards_of(unsynced)
        for shard in np.unique(shards).tolist():
            file = self._file_of(shard)
            os.fdatasync(file.number())
            is_of_shard = shards == shard
            synced = unsynced[is_of_shard] - self.first_block
            # A block that was forgotten meanwhile stays so.
            is_written = self.states[synced] == WRITTEN
            still_written = synced[is_written]
            self.states[still_written] = SYNCED

    def close(self) -> None:
        self._open_file.cache_clear()
        hold = self._hold
        self._hold = None
        if hold is not None:
            # `used_at` reads this time: the dataset that was used longest ago is removed first.
            os.utime(hold.descriptor)
            # Closing the file would not drop the locks: the map of the states has it open, too, and
            # so has a forked child.
            cache_root.release(hold.descriptor, 0, 0)


def _read_account(accounts: int) -> int:
    """The bytes that the blocks of all datasets take."""
    data = os.pread(accounts, 8, _ACCOUNT_AT)
    return int.from_bytes(data, "little")


def _write_account(accounts: int, used_bytes: int) -> None:
    data = used_bytes.to_bytes(8, "little")
    os.pwrite(accounts, data, _ACCOUNT_AT)


class Caches:
    """All shards that a loader reads: of datasets behind URLs, and of local ones."""

    def __init__(self, blocks: Blocks, remote: list[Cache]) -> None:
        self.blocks = blocks
        self.remote = remote
        # The cache of each shard behind a URL.
        self.cache_of_shard: dict[int, Cache] = {}
        for cache in remote:
            for shard in cache.shards:
                self.cache_of_shard[shard] = cache
        # (shards,) which are behind a URL
        num_shards = len(blocks.sizes)
        remote_shards = list(self.cache_of_shard)
        self.is_remote = np.zeros(num_shards, dtype=np.bool_)
        self.is_remote[remote_shards] = True

    def at(self, block: int) -> Cache:
        """The cache of a block."""
        shard, _, _ = self.blocks.range_of(block)
        return self.cache_of_shard[shard]

    def states(self, blocks: Int64s) -> Uint8s:
        """(n,) Note [states of a block]. Blocks of local files are SYNCED."""
        states = np.full(len(blocks), SYNCED, dtype=np.uint8)
        for cache in self.remote:
            is_mine = cache.has(blocks)
            blocks_of_dataset = blocks[is_mine] - cache.first_block
            states[is_mine] = cache.states[blocks_of_dataset]
        return states

    def least_state(self, first: Int64s, last: Int64s) -> Uint8s:
        """(n,) the least state of the blocks from first to last."""
        first_states = self.states(first)
        last_states = self.states(last)
        least = np.minimum(first_states, last_states)
        # A sample has few blocks, so the loop goes over the blocks between, for all samples at
        # once. A sample with fewer looks at its last one again.
        steps = last - first
        most_steps = int(steps.max(initial=0))
        for step in range(1, most_steps):
            between = np.minimum(first + step, last)
            states = self.states(between)
            least = np.minimum(least, states)
        return least

    def forget(self, blocks: Int64s) -> None:
        """Marks blocks whose content turned out to be wrong, so that they are fetched again."""
        for cache in self.remote:
            mine = blocks[cache.has(blocks)]
            blocks_of_dataset = mine - cache.first_block
            forget(cache.states, blocks_of_dataset)

    @property
    def given_up(self) -> bool:
        """Whether a disk was full, or no block of a dataset may be kept."""
        return any(cache.limit == 0 for cache in self.remote)


def forget(states: Uint8s, blocks: Int64s) -> None:
    """Marks written blocks as missing. They keep their room."""
    is_written = states[blocks] >= WRITTEN
    written = blocks[is_written]
    states[written] = ALLOTTED


def shared_states(file: int, count: int) -> Uint8s:
    """(count,) uint8 states of a dataset's blocks, shared with other processes.

    Raises:
        OSError: the disk has no room.
    """
    size = HEADER_BYTES + count
    first_bytes = os.pread(file, len(_MAGIC), 0)
    status = os.fstat(file)
    has_magic = first_bytes == _MAGIC
    has_size = status.st_size == size
    if not has_magic or not has_size:
        os.ftruncate(file, 0)
        # A full disk raises an error here; without this it would be a SIGBUS in the map.
        os.posix_fallocate(file, 0, size)
        os.pwrite(file, _MAGIC, 0)
    header = mmap.mmap(file, size)
    states = np.frombuffer(header, dtype=np.uint8, offset=HEADER_BYTES)
    boot = boot_id()
    boot_end = _BOOT_AT + len(boot)
    boot_bytes = slice(_BOOT_AT, boot_end)
    if header[boot_bytes] != boot:
        # The machine has started again: the bytes of WRITTEN blocks may be missing.
        is_written = states == WRITTEN
        states[is_written] = ALLOTTED
        header[boot_bytes] = boot
    # The file may be damaged.
    is_unknown = states > SYNCED
    states[is_unknown] = ABSENT
    return states


def boot_id() -> bytes:
    """The id of the time since the machine started. Source: random(4)."""
    try:
        line = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        line = b"unknown"
    # A UUID has 36 characters; the header has room for so many.
    uuid = line.strip()[:36]
    return uuid.ljust(36)


def _open_shard_file(path: Path, size_bytes: int) -> _engine.Descriptor:
    """Opens a shard of the cache, which is sparse. The descriptor closes itself."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    file = os.open(path, flags, 0o666)
    descriptor = _engine.Descriptor(file)
    status = os.fstat(file)
    if status.st_size != size_bytes:
        os.ftruncate(file, size_bytes)
    return descriptor
