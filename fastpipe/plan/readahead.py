"""Samples -> the byte ranges of the shards that hold them, for the engine to have read ahead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.draws import Int64s
from fastpipe.plan.order import CHUNK_BYTES

# A part of a shard, in bytes; never beyond the shard's end.
RANGE_DTYPE = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("size", "<u8")])

# A chunk of far larger samples than the dataset's average is read ahead only so far.
MOST_RANGE_BYTES = 4 * CHUNK_BYTES
_NEAR_BYTES = 16 * 1024


def sample_ranges(records: NDArray[np.void]) -> NDArray[np.void]:
    """(n,) of RANGE_DTYPE: the bytes of single samples, from their checked records."""
    ranges = records[["shard", "offset", "size"]].astype(RANGE_DTYPE)
    ranges["size"] = np.minimum(ranges["size"], MOST_RANGE_BYTES)
    return ranges


def run_ranges(index: Index, runs: Int64s) -> NDArray[np.void]:
    """(m,) of RANGE_DTYPE: the bytes of runs, (n, 2), in their order, from the first sample to the end of the last one;
    where samples have fields, which lie behind their JPEGs, to the next sample. A run over two shards gives two.

    Only those records are looked at. A range that damaged ones make impossible is left out: reading the samples will
    tell.
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


def members(runs: Int64s) -> Int64s:
    """All numbers in runs, (n, 2): the first one and the one after the last; one run after the other."""
    counts = runs[:, 1] - runs[:, 0]
    starts = runs[:, 0] - (np.cumsum(counts) - counts)
    return np.repeat(starts, counts) + np.arange(counts.sum())


def runs_of(samples: Int64s) -> Int64s:
    """(n, 2): the runs of neighbouring samples that some samples are, in their order; one may come again at once."""
    if not len(samples):
        return np.empty((0, 2), dtype=np.int64)
    steps = np.diff(samples)
    heads = np.flatnonzero(np.concatenate([[True], (steps < 0) | (steps > 1)]))
    return np.stack([samples[heads], samples[np.append(heads[1:], len(samples)) - 1] + 1], axis=1)


def joined(ranges: NDArray[np.void]) -> NDArray[np.void]:
    """The same ranges, but those that nearly touch the one before them are one range with it: between the pictures of a
    tar lie headers, labels and captions.
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


def _cut(runs: Int64s, shard_starts: Int64s) -> Int64s:
    """Cuts runs where a shard ends; the pieces in order, empty ones left out."""
    inside = np.searchsorted(shard_starts, runs - [0, 1], side="right")  # from, to: the starts within each
    if (inside[:, 0] == inside[:, 1]).all():  # most runs end in their shard
        return runs[runs[:, 0] < runs[:, 1]]
    inside[:, 1] = inside.max(axis=1)  # of an empty run none
    at = np.repeat(2 * np.arange(len(runs)) + 1, inside[:, 1] - inside[:, 0])
    borders = shard_starts[members(inside)]
    pieces = np.insert(runs.ravel(), np.repeat(at, 2), np.repeat(borders, 2)).reshape(-1, 2)
    return pieces[pieces[:, 0] < pieces[:, 1]]
