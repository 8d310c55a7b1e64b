"""Shards -> their blocks of a MiB, numbered through; samples -> where their bytes lie, and which of them came wrong."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.draws import Int64s

BLOCK_BYTES = 1 << 20
PAGE_BYTES = 4096
_KNOWN_SHARDS = 16


class Blocks:
    """The blocks of shards. The last one of a shard may be short; no block has bytes of two shards."""

    def __init__(self, sizes: NDArray[np.uint64]) -> None:
        self.sizes = sizes.astype(np.int64)  # (shards,) bytes
        # (shards + 1,) the number of the first block of each shard, and of all blocks.
        self.first = np.concatenate([[0], np.cumsum(-(-self.sizes // BLOCK_BYTES))])

    def shards_of(self, blocks: Int64s) -> Int64s:
        """(n,) the shard of each block."""
        return np.searchsorted(self.first, blocks, side="right") - 1

    def sizes_of(self, blocks: Int64s) -> Int64s:
        """(n,) how many bytes blocks have."""
        shards = self.shards_of(blocks)
        left = self.sizes[shards] - (blocks - self.first[shards]) * BLOCK_BYTES
        return np.asarray(np.minimum(BLOCK_BYTES, left))

    def bytes_of(self, blocks: Int64s) -> Int64s:
        """(n,) the room that blocks take on a disk."""
        return np.asarray(-(-self.sizes_of(blocks) // PAGE_BYTES) * PAGE_BYTES)

    def place(self, run: range) -> tuple[int, int, int]:
        """Shard, first byte, and the one after the last, of neighbours in a shard."""
        shard = int(np.searchsorted(self.first, run.start, side="right")) - 1
        begin = (run.start - int(self.first[shard])) * BLOCK_BYTES
        return shard, begin, min(begin + len(run) * BLOCK_BYTES, int(self.sizes[shard]))

    def touched(self, shard: Int64s, start: Int64s, stop: Int64s) -> tuple[Int64s, Int64s]:
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


class Extents:
    """Where the samples of an index lie, in shards of these sizes in bytes. Safe in threads.

    A sample's bytes go from its image's first byte to the next sample's: all that it has in the shard but its label,
    which the index has, too.
    """

    def __init__(self, index: Index, sizes: Int64s) -> None:
        self._index, self._sizes = index, sizes
        self._records = lru_cache(_KNOWN_SHARDS)(index.records_of_shard)

    def of(self, samples: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """(n,) shard, first byte and the one after the last of each sample."""
        index = self._index
        following = np.minimum(samples + 1, len(index) - 1)
        records, behind = index.records_of(np.stack([samples, following]))
        shard = np.minimum(records["shard"], len(self._sizes) - 1).astype(np.int64)
        size = self._sizes[shard]
        last = (samples == len(index) - 1) | (behind["shard"] != records["shard"])
        start = np.minimum(records["offset"].astype(np.int64), size - 1)
        stop = np.where(last, size, np.minimum(behind["offset"].astype(np.int64), size))
        return shard, start, np.maximum(stop, start + 1)

    def sample_at(self, shard: int, place: int) -> int:
        """The sample that has a byte of a shard."""
        starts = self._records(shard)["offset"]
        return int(self._index.shard_starts[shard]) + int(np.searchsorted(starts, place, side="right")) - 1

    def wrong(self, shard: int, start: int, data: Any) -> list[int]:
        """Samples that lie wholly in these bytes of a shard, and have another hash than their records say."""
        view, digest = memoryview(data), xxhash.xxh3_64_intdigest
        records = self._records(shard)
        starts = records["offset"].astype(np.int64) - start
        stops = starts + records["size"]
        inside = np.flatnonzero((starts >= 0) & (stops <= len(view)))
        found = [digest(view[a:b]) for a, b in zip(starts[inside].tolist(), stops[inside].tolist(), strict=True)]
        rows = inside[np.array(found, dtype=np.uint64) != records["xxh3_64"][inside]]
        wrong: list[int] = (int(self._index.shard_starts[shard]) + rows).tolist()
        return wrong
