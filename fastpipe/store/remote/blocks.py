"""Shards -> their blocks of a MiB, numbered through; samples -> their bytes, and wrong ones."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import xxhash

from fastpipe.arrays import Int64s, Uint64s
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.parts import part_and_number, parts_of, starts_of

BLOCK_BYTES = 1 << 20
PAGE_BYTES = 4096
_KNOWN_SHARDS = 16


class Blocks:
    """The blocks of shards. A shard's last one may be short; no block has bytes of two shards."""

    def __init__(self, sizes: Uint64s) -> None:
        # (shards,) bytes of each shard
        self.sizes = sizes.astype(np.int64)
        blocks_per_shard = -(-self.sizes // BLOCK_BYTES)  # rounded up
        # (shards + 1,) the number of the first block of each shard, and at the end of all blocks
        self.first_blocks = starts_of(blocks_per_shard)

    def shards_of(self, blocks: Int64s) -> Int64s:
        """(n,) the shard of each block."""
        return parts_of(self.first_blocks, blocks)

    def sizes_of(self, blocks: Int64s) -> Int64s:
        """(n,) the number of bytes in each block."""
        shards = self.shards_of(blocks)
        # (n,) where each block begins in its shard, and how much of the shard follows.
        first_of_shards = self.first_blocks[shards]
        blocks_in_shards = blocks - first_of_shards
        offsets = blocks_in_shards * BLOCK_BYTES
        remaining = self.sizes[shards] - offsets
        return np.asarray(np.minimum(BLOCK_BYTES, remaining))

    def bytes_of(self, blocks: Int64s) -> Int64s:
        """(n,) the bytes that each block takes on a disk, in whole pages."""
        sizes = self.sizes_of(blocks)
        page_counts = -(-sizes // PAGE_BYTES)  # rounded up
        return np.asarray(page_counts * PAGE_BYTES)

    def byte_range(self, run: range) -> tuple[int, int, int]:
        """Neighbouring blocks of one shard -> shard, first byte, and the byte after the last."""
        shard, block_in_shard = part_and_number(self.first_blocks, run.start)
        start = block_in_shard * BLOCK_BYTES
        run_bytes = len(run) * BLOCK_BYTES
        # The last block of a shard may be short.
        shard_bytes = int(self.sizes[shard])
        stop = min(start + run_bytes, shard_bytes)
        return shard, start, stop

    def range_of(self, block: int) -> tuple[int, int, int]:
        """As `byte_range`, of one block."""
        run_of_one = range(block, block + 1)
        return self.byte_range(run_of_one)

    def touched(
        self, shard: Int64s, start: Int64s, stop: Int64s
    ) -> tuple[Int64s, Int64s]:
        """(n,) the first and the last block of each range of bytes."""
        first_of_shard = self.first_blocks[shard]
        last_byte = stop - 1
        first_in_shard = start // BLOCK_BYTES
        last_in_shard = last_byte // BLOCK_BYTES
        first = first_of_shard + first_in_shard
        last = first_of_shard + last_in_shard
        return first, last

    def runs(self, blocks: list[int], most_bytes: int) -> list[range]:
        """Blocks -> runs of neighbours in one shard, in their order, of at most `most_bytes`."""
        if not blocks:
            return []
        # A run never crosses from one shard into the next, so none goes on at a shard's first
        # block. A set of those that matter, because a lookup in an array is slow.
        next_shards = np.searchsorted(self.first_blocks, blocks)
        first_of_shards = self.first_blocks[next_shards]
        shard_starts = set(first_of_shards.tolist())
        runs: list[range] = []
        for block in blocks:
            next_block = block + 1
            if runs and block not in shard_starts:
                last_run = runs[-1]
                run_bytes = len(last_run) * BLOCK_BYTES
                is_neighbour = last_run.stop == block
                if is_neighbour and run_bytes < most_bytes:
                    runs[-1] = range(last_run.start, next_block)
                    continue
            runs.append(range(block, next_block))
        return runs


class Extents:
    """The byte ranges of an index's samples, in shards of these sizes in bytes. Safe in threads.

    A sample's bytes go from its image's first byte to the next sample's: all of the sample in the
    shard but its label, which the index has, too.
    """

    def __init__(self, index: Index, sizes: Int64s) -> None:
        self._index = index
        self._sizes = sizes
        self._records = lru_cache(_KNOWN_SHARDS)(index.records_of_shard)

    def of(self, samples: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """(n,) shard, first byte and the byte after the last of each sample."""
        last_sample = len(self._index) - 1
        next_samples = np.minimum(samples + 1, last_sample)
        # One call for both: (n,) each, the records of the samples and of those that follow.
        both = np.stack([samples, next_samples])
        records, next_records = self._index.records_of(both)

        # The index may be damaged: no shard or offset leads out of the files.
        last_shard = len(self._sizes) - 1
        shard = np.minimum(records["shard"], last_shard)
        shard = shard.astype(np.int64)
        size = self._sizes[shard]
        last_byte = size - 1
        offset = records["offset"].astype(np.int64)
        start = np.minimum(offset, last_byte)

        # A sample ends where the next one begins, or with the shard.
        next_offset = next_records["offset"].astype(np.int64)
        next_start = np.minimum(next_offset, size)
        next_is_elsewhere = next_records["shard"] != records["shard"]
        is_last_of_all = samples == last_sample
        is_last_of_shard = is_last_of_all | next_is_elsewhere
        stop = np.where(is_last_of_shard, size, next_start)
        # At least one byte, whatever a damaged index has.
        least_stop = start + 1
        stop = np.maximum(stop, least_stop)
        return shard, start, stop

    def sample_at(self, shard: int, offset: int) -> int:
        """The sample that has a byte of a shard."""
        offsets = self._records(shard)["offset"]
        samples_up_to = np.searchsorted(offsets, offset, side="right")
        sample_in_shard = int(samples_up_to) - 1
        first_sample = int(self._index.shard_starts[shard])
        return first_sample + sample_in_shard

    def wrong(self, shard: int, start: int, data: Any) -> list[int]:
        """The samples that are wholly in these bytes of a shard, and whose hash is another one.

        Args:
            shard: the shard's number.
            start: the offset of the first byte in the shard.
            data: the bytes, which have the buffer protocol.
        """
        view = memoryview(data)
        records = self._records(shard)
        # (samples of the shard,) relative to the first of these bytes
        offsets = records["offset"].astype(np.int64)
        starts = offsets - start
        stops = starts + records["size"]
        begins_inside = starts >= 0
        ends_inside = stops <= len(view)
        is_inside = begins_inside & ends_inside
        # (m,) the samples, by their numbers in the shard, whose bytes are all in the view.
        inside = np.flatnonzero(is_inside)

        hashes = np.empty(len(inside), dtype=np.uint64)
        firsts = starts[inside].tolist()
        ends = stops[inside].tolist()
        byte_ranges = zip(firsts, ends, strict=True)
        for row, (first, end) in enumerate(byte_ranges):
            sample_bytes = view[first:end]
            hashes[row] = xxhash.xxh3_64_intdigest(sample_bytes)

        expected_hashes = records["xxh3_64"][inside]
        is_wrong = hashes != expected_hashes
        wrong_in_shard = inside[is_wrong]
        first_sample = int(self._index.shard_starts[shard])
        wrong_samples = first_sample + wrong_in_shard
        samples: list[int] = wrong_samples.tolist()
        return samples
