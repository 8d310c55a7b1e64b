"""Samples -> the byte ranges of the shards that hold them, for the engine to have read ahead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.order import CHUNK_BYTES

# A part of a shard, in bytes; never beyond the shard's end.
RANGE_DTYPE = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("size", "<u8")])

# A chunk of far larger samples than the dataset's average is read ahead only so far.
MOST_RANGE_BYTES = 4 * CHUNK_BYTES
_NEAR_BYTES = 16 * 1024


def sample_ranges(records: NDArray[np.void]) -> NDArray[np.void]:
    """The bytes of single samples.

    Args:
        records: (n,) checked records, of `Index.read`.

    Returns:
        (n,) of RANGE_DTYPE.
    """
    ranges = np.empty(len(records), dtype=RANGE_DTYPE)
    for name in ("shard", "offset", "size"):
        ranges[name] = records[name]
    ranges["size"] = np.minimum(ranges["size"], MOST_RANGE_BYTES)
    return ranges


def run_ranges(index: Index, runs: NDArray[np.int64]) -> NDArray[np.void]:
    """The bytes of runs of neighbouring samples, from the first one's to the last one's; where samples have fields,
    which lie behind their JPEGs, to the next sample's.

    Only those records are looked at. A range that damaged ones make impossible is left out: reading the samples will
    tell.

    Args:
        index: the dataset.
        runs: (n, 2) int64: the first sample, and the one after the last.

    Returns:
        (m,) of RANGE_DTYPE, in the order of the runs; a run that goes on in the next shard gives two.
    """
    pieces = _cut(runs, index.shard_starts)
    first, last = index.records_of(np.stack([pieces[:, 0], pieces[:, 1] - 1]))
    shard = first["shard"]
    known = (shard == last["shard"]) & (shard < len(index.shards))
    size_bytes = index.shard_sizes[np.where(known, shard, 0)]
    begin = np.minimum(first["offset"], size_bytes)
    end = np.minimum(np.minimum(last["offset"], size_bytes) + last["size"], size_bytes)
    if index.fields:
        goes_on = ~np.isin(pieces[:, 1], index.shard_starts) & (pieces[:, 1] < len(index))
        following = index.records_of(np.where(goes_on, pieces[:, 1], 0))["offset"]
        end = np.maximum(end, np.minimum(np.where(goes_on, following, size_bytes), size_bytes))
    good = known & (begin < end)
    ranges = np.empty(int(good.sum()), dtype=RANGE_DTYPE)
    ranges["shard"], ranges["offset"] = shard[good], begin[good]
    ranges["size"] = np.minimum(end[good] - begin[good], MOST_RANGE_BYTES)
    return ranges


def members(runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """All numbers in runs, one run after the other.

    Args:
        runs: (n, 2) int64: the first number, and the one after the last.
    """
    counts = runs[:, 1] - runs[:, 0]
    starts = runs[:, 0] - (np.cumsum(counts) - counts)
    return np.repeat(starts, counts) + np.arange(counts.sum())


def runs_of(samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, 2): the runs of neighbouring samples that some samples are, in their order; one may come again at once."""
    if not len(samples):
        return np.empty((0, 2), dtype=np.int64)
    steps = np.diff(samples)
    heads = np.flatnonzero(np.concatenate([[True], (steps < 0) | (steps > 1)]))
    return np.stack([samples[heads], samples[np.append(heads[1:], len(samples)) - 1] + 1], axis=1)


def joined(ranges: NDArray[np.void]) -> NDArray[np.void]:
    """The same ranges, but those that nearly touch the one before them are one range with it.

    Between the pictures of a tar lie headers, labels and captions.
    """
    if not len(ranges):
        return ranges
    ends = ranges["offset"] + ranges["size"]
    gaps = ranges["offset"][1:].astype(np.int64) - ends[:-1].astype(np.int64)
    apart = (ranges["shard"][1:] != ranges["shard"][:-1]) | (gaps < 0) | (gaps > _NEAR_BYTES)
    heads = np.flatnonzero(np.concatenate([[True], apart]))
    found = ranges[heads]
    last = np.concatenate([heads[1:], [len(ranges)]]) - 1
    found["size"] = ends[last] - found["offset"]
    return found


def _cut(runs: NDArray[np.int64], shard_starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cuts runs where a shard ends; the pieces in order, empty ones left out."""
    ends = np.searchsorted(shard_starts, runs - [0, 1], side="right")
    if (ends[:, 0] == ends[:, 1]).all():  # most runs end in their shard
        return runs[runs[:, 0] < runs[:, 1]]
    pieces = []
    for first, stop in runs.tolist():
        inside = shard_starts[np.searchsorted(shard_starts, first, side="right") :]
        while first < stop:
            end = min(stop, int(inside[0]) if len(inside) else stop)
            if first < end:
                pieces.append((first, end))
            first, inside = end, inside[1:]
    return np.array(pieces, dtype=np.int64).reshape(-1, 2)
