"""Shards of some sizes -> their blocks of a MiB, numbered through: where each is, and which blocks a range touches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 20
PAGE_BYTES = 4096


class Blocks:
    """The blocks of a dataset. The last one of a shard may be short; no block has bytes of two shards.

    Args:
        sizes: (shards,) bytes of each shard.

    Attributes:
        sizes: (shards,) int64.
        first: (shards + 1,) int64: number of the first block of each shard, and of all blocks.
    """

    def __init__(self, sizes: NDArray[np.uint64]) -> None:
        self.sizes = sizes.astype(np.int64)
        self.first = np.concatenate([[0], np.cumsum(-(-self.sizes // BLOCK_BYTES))])

    def __len__(self) -> int:
        return int(self.first[-1])

    def shards_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) the shard of each block."""
        return np.searchsorted(self.first, blocks, side="right") - 1

    def sizes_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) how many bytes blocks have."""
        shards = self.shards_of(blocks)
        left = self.sizes[shards] - (blocks - self.first[shards]) * BLOCK_BYTES
        sizes: NDArray[np.int64] = np.minimum(BLOCK_BYTES, left)
        return sizes

    def bytes_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) the room that blocks take on a disk."""
        room: NDArray[np.int64] = -(-self.sizes_of(blocks) // PAGE_BYTES) * PAGE_BYTES
        return room

    def place(self, run: range) -> tuple[int, int, int]:
        """Shard, first byte, and the one after the last, of neighbours in a shard."""
        shard = int(self.shards_of(np.array([run.start]))[0])
        begin = (run.start - int(self.first[shard])) * BLOCK_BYTES
        return shard, begin, min(begin + len(run) * BLOCK_BYTES, int(self.sizes[shard]))

    def touched(
        self, shard: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) the first and the last block of each range."""
        base = self.first[shard]
        return base + start // BLOCK_BYTES, base + (stop - 1) // BLOCK_BYTES

    def runs(self, blocks: list[int], most_bytes: int) -> list[range]:
        """Blocks -> runs of neighbours of one shard, in their order, of at most so many bytes."""
        runs: list[range] = []
        heads = set(self.first[np.searchsorted(self.first, blocks)].tolist()) if blocks else set()
        for block in blocks:
            joined = runs and runs[-1].stop == block and block not in heads
            if joined and len(runs[-1]) * BLOCK_BYTES < most_bytes:
                runs[-1] = range(runs[-1].start, block + 1)
            else:
                runs.append(range(block, block + 1))
        return runs
