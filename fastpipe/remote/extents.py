"""Samples -> where their bytes lie in the shards; bytes that have arrived -> the samples in them that are wrong.

A sample's bytes go from its image's first byte to the next sample's: all that it has in the shard but its label, which
the index has, too.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.remote.parts import Part

_KNOWN_SHARDS = 16


class Extents:
    """Where the samples of a dataset lie. All methods may be called by several threads.

    Args:
        index: of the dataset.
        sizes: (shards,) int64 bytes of each shard.
    """

    def __init__(self, index: Index, sizes: NDArray[np.int64]) -> None:
        self._index, self._sizes = index, sizes
        self._records = lru_cache(_KNOWN_SHARDS)(partial(_records_of, index))

    def of(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Shard, first byte and the one after the last of each sample; see the top."""
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
        """The sample whose bytes a place of a shard is one of."""
        starts = self._records(shard)["offset"]
        return int(self._index.shard_starts[shard]) + int(np.searchsorted(starts, place, side="right")) - 1

    def wrong(self, part: Part, data: Any) -> list[int]:
        """Samples that lie wholly in a part, whose bytes have another hash than that of their records."""
        records = self._records(part.shard)
        starts = records["offset"].astype(np.int64) - part.start
        stops = starts + records["size"]
        inside = np.flatnonzero((starts >= 0) & (stops <= part.stop - part.start))
        view, digest = memoryview(data), xxhash.xxh3_64_intdigest
        found = [digest(view[a:b]) for a, b in zip(starts[inside].tolist(), stops[inside].tolist(), strict=True)]
        rows = inside[np.array(found, dtype=np.uint64) != records["xxh3_64"][inside]]
        wrong: list[int] = (int(self._index.shard_starts[part.shard]) + rows).tolist()
        return wrong


def _records_of(index: Index, shard: int) -> NDArray[np.void]:
    first = int(index.shard_starts[shard])
    return index.records_of(np.arange(first, first + index.shards[shard].samples))
