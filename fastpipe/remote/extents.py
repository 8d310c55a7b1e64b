"""Samples -> where their bytes lie in the shards; bytes that have arrived -> the samples in them that are wrong.

A sample's bytes go from its JPEG's first byte to the next sample's: all that it has in the shard but its label, which
the index has, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.format.recent import Recent
from fastpipe.remote.parts import Part

_KNOWN_SHARDS = 16


@dataclass(frozen=True)
class _Jpegs:
    """The JPEGs of a shard, in their order.

    Attributes:
        starts, stops: (n,) int64 bytes of the shard.
        hashes: (n,) uint64.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    hashes: NDArray[np.uint64]


class Extents:
    """Where the samples of a dataset lie. All methods may be called by several threads.

    Args:
        index: of the dataset.
        sizes: (shards,) int64 bytes of each shard.
    """

    def __init__(self, index: Index, sizes: NDArray[np.int64]) -> None:
        self._index, self._sizes = index, sizes
        self._known = Recent[_Jpegs](_KNOWN_SHARDS)

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
        row = int(np.searchsorted(self._known.get(shard, self._jpegs).starts, place, side="right")) - 1
        return int(self._index.shard_starts[shard]) + row

    def wrong(self, part: Part, data: Any) -> list[int]:
        """Samples that lie wholly in a part, whose bytes have another hash than that of their records."""
        jpegs = self._known.get(part.shard, self._jpegs)
        inside = np.flatnonzero((jpegs.starts >= part.start) & (jpegs.stops <= part.stop))
        starts, stops = jpegs.starts[inside] - part.start, jpegs.stops[inside] - part.start
        view, digest = memoryview(data), xxhash.xxh3_64_intdigest
        found = [digest(view[a:b]) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        rows = inside[np.array(found, dtype=np.uint64) != jpegs.hashes[inside]]
        wrong: list[int] = (int(self._index.shard_starts[part.shard]) + rows).tolist()
        return wrong

    def _jpegs(self, shard: int) -> _Jpegs:
        first = int(self._index.shard_starts[shard])
        records = self._index.records_of(np.arange(first, first + self._index.shards[shard].samples))
        starts = records["offset"].astype(np.int64)
        return _Jpegs(starts, starts + records["size"], records["xxh3_64"].astype(np.uint64))
