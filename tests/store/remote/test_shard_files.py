"""What arrives is written in pieces of 256 KiB, into room that was taken before."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fastpipe.store.remote.blocks import Blocks
from fastpipe.store.remote.cache import Cache
from fastpipe.store.remote.cache_root import Hold

MIB = 1 << 20
SHARD = f"{'a' * 32}/shard-000000.tar"


def cache_in(folder: Path, size_bytes: int) -> Cache:
    blocks = Blocks(np.array([size_bytes], dtype=np.uint64))
    hold = Hold(folder, "a" * 32, "u")
    return Cache(hold, ["shard-000000.tar"], blocks, 0, None, 100 * MIB, hold)


def test_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_in(tmp_path, 9 * MIB)
    steps: list[tuple[str, int, int]] = []
    write, take = os.pwrite, os.posix_fallocate

    def written(file: int, data: memoryview, place: int) -> int:
        steps.append(("write", place, place + len(data)))
        return write(file, data, place)

    def taken(file: int, start: int, size: int) -> None:
        steps.append(("room", start, start + size))
        take(file, start, size)

    monkeypatch.setattr("fastpipe.store.remote.cache.os.pwrite", written)
    monkeypatch.setattr("fastpipe.store.remote.cache.os.posix_fallocate", taken)
    data = np.random.default_rng(3).integers(0, 256, 2 * MIB + 77, dtype=np.uint8).tobytes()
    cache.write(0, 5 * MIB, data)
    end = 7 * MIB + 77
    edges = [*range(5 * MIB, end, 256 << 10), end]
    assert steps == [("room", 5 * MIB, end), *(("write", a, b) for a, b in pairwise(edges))]
    found = (tmp_path / SHARD).read_bytes()
    assert found == bytes(5 * MIB) + data + bytes(2 * MIB - 77)
    assert os.stat(tmp_path / SHARD).st_blocks * 512 < 3 * MIB  # no more room than for what came
    cache.close()


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSPC])
def test_room_that_cannot_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    cache = cache_in(tmp_path, MIB)

    def refused(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fastpipe.store.remote.cache.os.posix_fallocate", refused)
    if number == errno.ENOSPC:
        with pytest.raises(OSError, match="No space left on device"):
            cache.write(0, 0, bytes(MIB))
    else:  # the file system takes room when bytes are written
        cache.write(0, 0, b"x" * MIB)
        assert (tmp_path / SHARD).read_bytes() == b"x" * MIB
    cache.close()
