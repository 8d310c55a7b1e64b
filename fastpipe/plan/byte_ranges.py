"""Samples, or runs of neighbouring samples -> the byte ranges of shards to read ahead for them."""

from __future__ import annotations

import numpy as np

from fastpipe.arrays import Bools, Int64s, Records, Uint64s
from fastpipe.dataset.format.index import Index
from fastpipe.plan.order import CHUNK_BYTES, members

# A part of a shard, in bytes; never beyond the shard's end.
RANGE_DTYPE = np.dtype(
    [
        ("shard", "<u4"),  # its number
        ("offset", "<u8"),  # of the first byte in the shard
        ("size", "<u8"),
    ]
)

# A range is at most this long: a chunk can be larger than CHUNK_BYTES if its samples are far larger
# than the average, and a damaged index may name any size.
MAX_RANGE_BYTES = 4 * CHUNK_BYTES
# Ranges with a smaller gap are read as one: reading the gap takes less than another read.
_NEAR_BYTES = 16 * 1024


def sample_ranges(records: Records) -> Records:
    """(n,) of RANGE_DTYPE: the bytes of single samples, from their checked records."""
    fields_of_ranges = records[["shard", "offset", "size"]]
    ranges = fields_of_ranges.astype(RANGE_DTYPE)
    # A damaged index may name any size.
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
    is_in_dataset = shard < len(index.shards)
    is_known = is_one_shard & is_in_dataset
    # Shard 0 stands in for an impossible one, whose range is left out below.
    known_shard = np.where(is_known, shard, 0)
    # (m,) uint64. Offsets of a damaged index may lie anywhere, so all of them are clipped.
    shard_bytes = index.shard_sizes[known_shard]
    begin = np.minimum(first["offset"], shard_bytes)
    last_offset = np.minimum(last["offset"], shard_bytes)
    last_end = last_offset + last["size"]
    end = np.minimum(last_end, shard_bytes)
    if index.fields:
        field_ends = _ends_of_fields(index, pieces, shard_bytes)
        end = np.maximum(end, field_ends)

    has_bytes = begin < end
    is_good = is_known & has_bytes
    begin = begin[is_good]
    end = end[is_good]
    size = end - begin
    ranges = np.empty(len(begin), dtype=RANGE_DTYPE)
    ranges["shard"] = shard[is_good]
    ranges["offset"] = begin
    ranges["size"] = np.minimum(size, MAX_RANGE_BYTES)
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
    known_samples = np.where(has_next, next_samples, 0)
    next_records = index.records_of(known_samples)
    next_offsets = next_records["offset"]
    ends = np.where(has_next, next_offsets, shard_bytes)
    return np.minimum(ends, shard_bytes)


def runs_of(samples: Int64s) -> Int64s:
    """(n,) sample numbers -> (m, 2) runs of neighbours, in the same order.

    A number may be repeated directly.
    """
    if not len(samples):
        return np.empty((0, 2), dtype=np.int64)
    # (n - 1,) from each sample to the next; a step of 0 repeats it.
    steps = np.diff(samples)
    goes_back = steps < 0
    leaves_out = steps > 1
    is_apart = goes_back | leaves_out
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
    next_starts = starts[1:].astype(np.int64)
    ends_before = ends[:-1].astype(np.int64)
    gaps = next_starts - ends_before
    shards = ranges["shard"]
    next_shards = shards[1:]
    shards_before = shards[:-1]
    is_other_shard = next_shards != shards_before
    overlaps = gaps < 0
    is_far = gaps > _NEAR_BYTES
    is_apart = is_other_shard | overlaps | is_far

    firsts, lasts = _group_borders(is_apart)
    last_ends = ends[lasts]
    result = ranges[firsts]
    result["size"] = last_ends - result["offset"]
    return result


def _group_borders(begins_group: Bools) -> tuple[Int64s, Int64s]:
    """The positions of the first and of the last member of each group.

    Args:
        begins_group: (n - 1,) whether each of n members but the first begins a new group.
    """
    is_first = np.concatenate([[True], begins_group])
    firsts = np.flatnonzero(is_first)
    # A group ends where the next one begins, and the last one behind all members.
    next_firsts = firsts[1:]
    ends = np.append(next_firsts, len(is_first))
    lasts = ends - 1
    return firsts, lasts


def _cut_at_shards(runs: Int64s, shard_starts: Int64s) -> Int64s:
    """Cuts runs (n, 2) where a shard ends; the pieces in order, without empty ones."""
    # (n, 2): the shard starts [from, to) that lie inside each run, by their numbers.
    # An end that is a shard's start is not inside, so the sample before it counts.
    borders_of_runs = runs - [0, 1]
    inside = np.searchsorted(shard_starts, borders_of_runs, side="right")
    first_inside = inside[:, 0]
    end_inside = inside[:, 1]
    is_in_one_shard = first_inside == end_inside
    if is_in_one_shard.all():  # the usual case
        return _without_empty(runs)
    # An empty run has none, and its end may lie before its first one.
    np.maximum(first_inside, end_inside, out=end_inside)

    # Each shard start inside a run is put twice between the run's start and its end: one piece
    # ends there, and the next one begins.
    num_inside = end_inside - first_inside
    starts_inside = members(inside)
    borders = shard_starts[starts_inside]
    # The end of run i stands at position 2 * i + 1 of the flat starts and ends.
    starts_and_ends = runs.ravel()
    run_numbers = np.arange(len(runs))
    positions_of_ends = 2 * run_numbers + 1
    positions = np.repeat(positions_of_ends, num_inside)
    positions_twice = np.repeat(positions, 2)
    borders_twice = np.repeat(borders, 2)
    edges = np.insert(starts_and_ends, positions_twice, borders_twice)
    pieces = edges.reshape(-1, 2)
    return _without_empty(pieces)


def _without_empty(runs: Int64s) -> Int64s:
    starts = runs[:, 0]
    ends = runs[:, 1]
    has_samples = starts < ends
    return runs[has_samples]
