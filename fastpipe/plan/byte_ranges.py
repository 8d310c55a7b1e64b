"""Samples, or runs of neighbouring samples -> the byte ranges of shards to read ahead for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.index import Index
from fastpipe.plan.draws import Int64s
from fastpipe.plan.order import CHUNK_BYTES, members

# A part of a shard, in bytes; never beyond the shard's end.
RANGE_DTYPE = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("size", "<u8")])

# A range is at most this long: a chunk can be larger than CHUNK_BYTES if its samples are far larger
# than the average, and a damaged index may name any size.
MAX_RANGE_BYTES = 4 * CHUNK_BYTES
# Ranges with a smaller gap are read as one: reading the gap takes less than another read.
_NEAR_BYTES = 16 * 1024


def sample_ranges(records: NDArray[np.void]) -> NDArray[np.void]:
    """(n,) of RANGE_DTYPE: the bytes of single samples, from their checked records."""
    ranges = records[["shard", "offset", "size"]].astype(RANGE_DTYPE)
    ranges["size"] = np.minimum(ranges["size"], MAX_RANGE_BYTES)
    return ranges


def run_ranges(index: Index, runs: Int64s) -> NDArray[np.void]:
    """(m,) of RANGE_DTYPE: the bytes of runs (n, 2) of sample numbers, with the samples' fields.

    A run that crosses shards becomes one range a shard. Records of a damaged index may give
    impossible ranges: they are left out, because the error is raised when the sample itself is
    planned.
    """
    pieces = _cut_at_shards(runs, index.shard_starts)
    # The records of the first and the last sample of each piece.
    first, last = index.records_of(np.stack([pieces[:, 0], pieces[:, 1] - 1]))
    # Offsets of a damaged index may lie anywhere, so all of them are clipped to the shard.
    shard = first["shard"]
    is_known = (shard == last["shard"]) & (shard < len(index.shards))
    shard_bytes = index.shard_sizes[np.where(is_known, shard, 0)]
    begin = np.minimum(first["offset"], shard_bytes)
    last_offset = np.minimum(last["offset"], shard_bytes)
    end = np.minimum(last_offset + last["size"], shard_bytes)
    if index.fields:
        # The fields of a sample follow its image: read up to the next sample, or to the end of the
        # shard.
        next_sample = pieces[:, 1]
        is_at_shard_end = np.isin(next_sample, index.shard_starts)
        goes_on = ~is_at_shard_end & (next_sample < len(index))
        next_record = index.records_of(np.where(goes_on, next_sample, 0))
        next_offset = next_record["offset"]
        end_with_fields = np.where(goes_on, next_offset, shard_bytes)
        end = np.maximum(end, np.minimum(end_with_fields, shard_bytes))
    is_good = is_known & (begin < end)
    ranges = np.empty(int(is_good.sum()), dtype=RANGE_DTYPE)
    ranges["shard"] = shard[is_good]
    ranges["offset"] = begin[is_good]
    ranges["size"] = np.minimum(end[is_good] - begin[is_good], MAX_RANGE_BYTES)
    return ranges


def runs_of(samples: Int64s) -> Int64s:
    """(n,) sample numbers -> (m, 2) runs of neighbours, in the same order.

    A number may be repeated directly.
    """
    if not len(samples):
        return np.empty((0, 2), dtype=np.int64)
    steps = np.diff(samples)
    starts_run = (steps < 0) | (steps > 1)
    # (m,) the positions of the first and the last sample of each run.
    firsts = np.flatnonzero(np.concatenate([[True], starts_run]))
    lasts = np.append(firsts[1:], len(samples)) - 1
    return np.stack([samples[firsts], samples[lasts] + 1], axis=1)


def joined(ranges: NDArray[np.void]) -> NDArray[np.void]:
    """The same bytes, with neighbours that nearly touch joined to one range.

    Between the images of a tar lie headers, labels and captions, which are not worth a read of
    their own.
    """
    if not len(ranges):
        return ranges
    ends = ranges["offset"] + ranges["size"]
    gaps = ranges["offset"][1:].astype(np.int64) - ends[:-1].astype(np.int64)
    is_other_shard = ranges["shard"][1:] != ranges["shard"][:-1]
    starts_range = is_other_shard | (gaps < 0) | (gaps > _NEAR_BYTES)
    firsts = np.flatnonzero(np.concatenate([[True], starts_range]))
    lasts = np.append(firsts[1:], len(ranges)) - 1
    result = ranges[firsts]
    result["size"] = ends[lasts] - result["offset"]
    return result


def _cut_at_shards(runs: Int64s, shard_starts: Int64s) -> Int64s:
    """Cuts runs (n, 2) where a shard ends; the pieces in order, without empty ones."""
    # (n, 2): the shard starts [from, to) that lie inside each run.
    inside = np.searchsorted(shard_starts, runs - [0, 1], side="right")
    if (inside[:, 0] == inside[:, 1]).all():  # the usual case
        return runs[runs[:, 0] < runs[:, 1]]
    inside[:, 1] = inside.max(axis=1)  # an empty run has none
    # Each shard start inside a run is put twice between the run's ends: one piece ends there, the
    # next one begins.
    ends_of_runs = 2 * np.arange(len(runs)) + 1  # their positions in runs.ravel()
    num_inside = inside[:, 1] - inside[:, 0]
    insert_at = np.repeat(ends_of_runs, num_inside)
    borders = shard_starts[members(inside)]
    edges = np.insert(runs.ravel(), np.repeat(insert_at, 2), np.repeat(borders, 2))
    pieces = edges.reshape(-1, 2)
    return pieces[pieces[:, 0] < pieces[:, 1]]
