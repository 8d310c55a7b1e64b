"""A shard of many pages, and which of them are in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.plan.byte_ranges import RANGE_DTYPE

PAGE = mmap.PAGESIZE


def ranges(*parts: tuple[int, int, int]) -> NDArray[np.void]:
    """Of (shard, offset, size) each."""
    return np.array(list(parts), dtype=RANGE_DTYPE)


def in_page_cache(path: Path) -> NDArray[np.bool_]:
    """Which pages of a file are in memory."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
        pages = -(-len(mapped) // PAGE)
        known = (ctypes.c_ubyte * pages)()
        view = ctypes.c_char.from_buffer(mapped)
        mincore = ctypes.CDLL(None, use_errno=True).mincore
        failed = mincore(
            ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(len(mapped)), known
        )
        del view
        assert failed == 0, os.strerror(ctypes.get_errno())
        return (np.frombuffer(known, np.uint8) & 1).astype(bool)


def forget(path: Path) -> None:
    """Drops a file from the page cache; skips the test where that cannot be."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)  # os.fsync does nothing in tests
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    if in_page_cache(path).any():
        pytest.skip(f"{path} stays in memory: its file system has no other place")


def lengthened(dataset: Path) -> Path:
    """The same dataset, whose shard goes on for 12 MB after its samples."""
    shard = dataset / "shard-000000.tar"
    with open(shard, "ab") as file:
        file.write(bytes(range(256)) * (12 * 4096))
    size_bytes = shard.stat().st_size
    description = (dataset / "dataset.json").read_text()
    old = PackedIndex(dataset).shards[0].size_bytes
    assert description.count(f'"size_bytes": {old}') == 1
    (dataset / "dataset.json").write_text(
        description.replace(f'"size_bytes": {old}', f'"size_bytes": {size_bytes}')
    )
    return dataset
