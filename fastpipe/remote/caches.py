"""The datasets that a loader reads -> their shards and blocks, numbered through; which are here, and whose they are.

One dataset is a mixture of one. Of a dataset that lies on this machine all blocks are here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.remote.blocks import Blocks
from fastpipe.remote.cache import SYNCED, Cache
from fastpipe.remote.objects import Objects


@dataclass(frozen=True)
class Remote:
    """A dataset behind a URL.

    Attributes:
        cache: what is kept of it.
        objects: where the rest comes from, with requests of one reader alone.
        names: of its shards.
    """

    cache: Cache
    objects: Objects
    names: list[str]


class Caches:
    """What is here of some datasets. All methods may be called by several threads.

    Args:
        datasets: None: one that lies on this machine.
        sizes: of each of them, (shards,) bytes of its shards.

    Attributes:
        remote: those behind URLs.
        blocks: of all shards.
        is_remote: (shards,) bool.
    """

    def __init__(self, datasets: Sequence[Remote | None], sizes: Sequence[NDArray[np.uint64]]) -> None:
        self._datasets = datasets
        self.remote = [each for each in datasets if each is not None]
        self.blocks = Blocks(np.concatenate(sizes))
        counts = [len(each) for each in sizes]
        self.is_remote = np.repeat(np.array([each is not None for each in datasets], dtype=np.bool_), counts)
        # Where each dataset begins.
        self._shards: list[int] = np.cumsum([0, *counts])[:-1].tolist()
        self._blocks: list[int] = self.blocks.first[self._shards].tolist()

    def states(self, blocks: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n,) Note [states of a block]."""
        found = np.full(len(blocks), SYNCED, dtype=np.uint8)
        for cache, mine, numbers in self._by_dataset(blocks):
            found[mine] = cache.states[numbers]
        return found

    def least_state(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n,) the least state of the blocks from first to last."""
        least = np.minimum(self.states(first), self.states(last))
        for between in range(1, int((last - first).max(initial=0))):
            least = np.minimum(least, self.states(np.minimum(first + between, last)))
        return least

    def allot(self, blocks: NDArray[np.int64]) -> None:
        """See Cache."""
        for cache, _, numbers in self._by_dataset(blocks):
            cache.allot(numbers)

    def forget(self, blocks: NDArray[np.int64]) -> None:
        """See Cache."""
        for cache, _, numbers in self._by_dataset(blocks):
            cache.forget(numbers)

    def _by_dataset(self, blocks: NDArray[np.int64]) -> Iterator[tuple[Cache, NDArray[np.bool_], NDArray[np.int64]]]:
        of = np.searchsorted(self._blocks, blocks, side="right") - 1
        for number, dataset in enumerate(self._datasets):
            mine = of == number
            if dataset is not None and mine.any():
                yield dataset.cache, mine, blocks[mine] - self._blocks[number]

    def at(self, block: int) -> tuple[Cache, int]:
        """The cache that has a block of a remote dataset, and the block's number there."""
        dataset, number = self._of(self._blocks, block)
        return dataset.cache, number

    def of_shard(self, shard: int) -> tuple[Remote, int]:
        """The remote dataset that a shard is of, and the shard's number there."""
        return self._of(self._shards, shard)

    def _of(self, starts: list[int], place: int) -> tuple[Remote, int]:
        number = bisect_right(starts, place) - 1
        dataset = self._datasets[number]
        assert dataset is not None
        return dataset, place - starts[number]

    def name_of(self, shard: int) -> str:
        """The name of a shard of a remote dataset, there."""
        dataset, number = self.of_shard(shard)
        return dataset.names[number]

    @property
    def given_up(self) -> bool:
        """Whether a disk was full; see Cache."""
        return any(each.cache.given_up for each in self.remote)
