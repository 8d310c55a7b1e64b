"""The blocks that samples take -> where the shards end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.tar_writer import BLOCK, RECORD

_WINDOW = 1 << 12  # samples that are summed at once


def most_blocks(shard_size: int) -> int:
    """How many blocks of samples fit into a shard; see ShardWriter.add."""
    return (shard_size // RECORD * RECORD - 2 * BLOCK) // BLOCK


def cut(blocks: NDArray[np.uint32], most: int) -> tuple[list[int], list[int]]:
    """Cuts samples into shards: each takes what fits, and a sample that is larger gets a shard of its own.

    Args:
        blocks: (N,) of each sample in packing order; 0: it is rejected, and belongs to the shard before it.
        most: of a shard.

    Returns:
        For each shard the position after its last source, and its samples.
    """
    stops: list[int] = []
    samples: list[int] = []
    start = 0
    while start < len(blocks):
        stop, count = _fill(blocks, start, most)
        if count:
            stops.append(stop)
            samples.append(count)
        start = stop
    return stops, samples


def _fill(blocks: NDArray[np.uint32], start: int, most: int) -> tuple[int, int]:
    """The end of the shard that begins at `start`, and its samples."""
    total = count = 0
    at = start
    while at < len(blocks):
        window = blocks[at : at + _WINDOW]
        sums = total + np.cumsum(window, dtype=np.int64)
        # Samples of no blocks, which are rejected, fit always.
        fits = int(np.searchsorted(sums, most, side="right")) if total <= most else _empty_run(window)
        if not count and fits < len(window) and not window[:fits].any():
            fits += 1  # an empty shard takes any sample
            fits += _empty_run(window[fits:])
        count += int(np.count_nonzero(window[:fits]))
        if fits < len(window):
            return at + fits, count
        total = int(sums[-1])
        at += len(window)
    return at, count


def _empty_run(window: NDArray[np.uint32]) -> int:
    """How many samples at its start are rejected."""
    found = np.flatnonzero(window)
    return int(found[0]) if len(found) else len(window)
