"""Samples, or runs of neighbouring samples -> the byte ranges of shards to read ahead for them."""

from __future__ import annotations

import numpy as np

from fastpipe.arrays import Bools, Int64s, Records, Uint64s
from fastpipe.dataset.format.index import Index
from fastpipe.plan.order import CHUNK_BYTES, members

# A part of a shard, in bytes; never beyond the shard's end.
RANGE_DTYPE = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("size", "<u8")])

# A range is at most this long: a chunk can be larger than CHUNK_BYTES if its samples are far larger
# than the average, and a damaged index may name any size.
MAX_RANGE_BYTES = 4 * CHUNK_BYTES
# Ranges with a smaller gap are read as one: reading the gap takes less than another read.
_NEAR_BYTES = 16 * 1024


def sample_ranges(records: Records) -> Records:
    """(n,) of RANGE_DTYPE: the bytes of single samples, from their checked records."""
    ranges = records[["shard", "offset", "size"]].astype(RANGE_DTYPE)
    ranges["size"] = np.minimum(ranges["size"], MAX_RANGE_BYTES)
    return ranges


def run_ranges(index: Index, runs: Int64s) -> Records:
    """(m,) of RANGE_DTYPE: the bytes of runs (n, 2) of sample numbers, with the samples' fields.

    A run that crosses shards becomes one range a shard. Records of a damaged index may give
    impossible ranges: they are left out, because the error is raised when the sample itself is
    planned.
    """
    pieces = _cut_at_shards(runs, index.shard_starts)
    first_samples = pieces[:, 0]
    last_samples = pieces[:, 1] - 1
    # (m,) each: the records of the first and of the last sample of each piece.
    both_ends = np.stack([first_samples, last_samples])
    first, last = index.records_of(both_ends)

    shard = first["shard"]
    is_one_shard = shard == last["shard"]
    is_known = is_one_shard & (shard < len(index.shards))
    known_shard = np.where(is_known, shard, 0)
    # (m,) uint64. Offsets of a damaged index may lie anywhere, so all of them are clipped.
    shard_bytes = index.shard_sizes[known_shard]
    begin = np.minimum(first["offset"], shard_bytes)
    last_offset = np.minimum(last["offset"], shard_bytes)
    end = np.minimum(last_offset + last["size"], shard_bytes)
    if index.fields:
        field_ends = _ends_of_fields(index, pieces, shard_bytes)
        end = np.maximum(end, field_ends)

    is_good = is_known & (begin < end)
    begin = begin[is_good]
    end = end[is_good]
    ranges = np.empty(len(begin), dtype=RANGE_DTYPE)
    ranges["shard"] = shard[is_good]
    ranges["offset"] = begin
    ranges["size"] = np.minimum(end - begin, MAX_RANGE_BYTES)
    return ranges


def _ends_of_fields(index: Index, pieces: Int64s, shard_bytes: Uint64s) -> Uint64s:
    """(m,) the end of the last sample's fields in each piece (m, 2).

    The fields of a sample follow its image. They end where the next sample begins, or with the
    shard.
    """
    next_samples = pieces[:, 1]
    is_at_shard_end = np.isin(next_samples, index.shard_starts)
    is_in_index = next_samples < len(index)
    has_next = is_in_index & ~is_at_shard_end
    # Record 0 stands in where no sample follows; its offset is not used.
    next_records = index.records_of(np.where(has_next, next_samples, 0))
    ends = np.where(has_next, next_records["offset"], shard_bytes)
    return np.minimum(ends, shard_bytes)


def runs_of(samples: Int64s) -> Int64s:
    """(n,) sample numbers -> (m, 2) runs of neighbours, in the same order.

    A number may be repeated directly.
    """
    if not len(samples):
        return np.empty((0, 2), dtype=np.int64)
    steps = np.diff(samples)
    is_apart = (steps < 0) | (steps > 1)
    firsts, lasts = _group_borders(is_apart)
    run_starts = samples[firsts]
    run_ends = samples[lasts] + 1
    return np.stack([run_starts, run_ends], axis=1)


def joined(ranges: Records) -> Records:
    """The same bytes, with neighbours that nearly touch joined to one range.

    Between the images of a tar lie headers, labels and captions, which are not worth a read of
    their own.
    """
    if not len(ranges):
        return ranges
    starts = ranges["offset"]
    ends = starts + ranges["size"]
    # (n - 1,) each, between neighbours. Ranges may overlap, so a gap is signed.
    gaps = starts[1:].astype(np.int64)
    gaps -= ends[:-1].astype(np.int64)
    shards = ranges["shard"]
    is_other_shard = shards[1:] != shards[:-1]
    is_far = (gaps < 0) | (gaps > _NEAR_BYTES)
    is_apart = is_other_shard | is_far

    firsts, lasts = _group_borders(is_apart)
    result = ranges[firsts]
    result["size"] = ends[lasts] - result["offset"]
    return result


def _group_borders(begins_group: Bools) -> tuple[Int64s, Int64s]:
    """The positions of the first and of the last member of each group.

    Args:
        begins_group: (n - 1,) whether each of n members but the first begins a new group.
    """
    is_first = np.concatenate([[True], begins_group])
    firsts = np.flatnonzero(is_first)
    ends = np.append(firsts[1:], len(is_first))
    return firsts, ends - 1


def _cut_at_shards(runs: Int64s, shard_starts: Int64s) -> Int64s:
    """Cuts runs (n, 2) where a shard ends; the pieces in order, without empty ones."""
    # (n, 2): the shard starts [from, to) that lie inside each run, by their numbers.
    inside = np.searchsorted(shard_starts, runs - [0, 1], side="right")
    is_in_one_shard = inside[:, 0] == inside[:, 1]
    if is_in_one_shard.all():  # the usual case
        return _without_empty(runs)
    inside[:, 1] = inside.max(axis=1)  # an empty run has none

    # Each shard start inside a run is put twice between the run's start and its end: one piece
    # ends there, and the next one begins.
    num_inside = inside[:, 1] - inside[:, 0]
    borders = shard_starts[members(inside)]
    # The end of run i stands at position 2 * i + 1 of runs.ravel().
    positions_of_ends = 2 * np.arange(len(runs)) + 1
    positions = np.repeat(positions_of_ends, num_inside)
    positions_twice = np.repeat(positions, 2)
    borders_twice = np.repeat(borders, 2)
    edges = np.insert(runs.ravel(), positions_twice, borders_twice)
    return _without_empty(edges.reshape(-1, 2))


def _without_empty(runs: Int64s) -> Int64s:
    starts = runs[:, 0]
    ends = runs[:, 1]
    return runs[starts < ends]
