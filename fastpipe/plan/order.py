"""(samples, seed, epoch) -> the order of that epoch, any stretch of it at a time, and the bytes to read ahead of it.

Note [chunked shuffle]
Reading a shard front to back is many times faster than reading at random, and a full permutation of a billion samples
needs 8 GB. So an epoch permutes chunks (runs of neighbouring samples, about 8 MB), takes them a window at a time, and
shuffles the samples inside the window. Nothing larger than a window is ever stored: the permutation of chunks is
computed (a Feistel cipher), that of a window is sorted out when it is reached. `pack` shuffled the samples once, so a
chunk is already a fair mix of classes. A dataset that fits one window gets a uniform shuffle.
All chunks are rotated by a random distance each epoch, so that neighbours which share a chunk change, and so that the
one chunk that is short, always the last, does not always hold the same samples.
Chunks of one sample need no window: the permutation of chunks is one of all samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.draws import Int64s, Stream, bits, key, mix

CHUNK_BYTES = 8 * 2**20
CHUNKS_PER_WINDOW = 32
MOST_SAMPLES_PER_CHUNK = 1024  # tiny pictures: a window is sorted out in 3 ms, whatever they weigh
CHUNKS_EARLY = 8  # by which a chunk is read ahead of the window, or without shuffle of the sample, that needs it
_ROUNDS = 8
_MOST_WINDOWS = 3  # in memory: that at hand, and those that are fetched ahead

# A part of a shard, in bytes; never beyond the shard's end.
RANGE_DTYPE = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("size", "<u8")])

# A chunk of far larger samples than the dataset's average is read ahead only so far.
MOST_RANGE_BYTES = 4 * CHUNK_BYTES
_NEAR_BYTES = 16 * 1024


def samples_per_chunk(samples: int, jpeg_bytes: int) -> int:
    """How many average samples make a chunk of about CHUNK_BYTES; at least 1, at most MOST_SAMPLES_PER_CHUNK."""
    return min(max(1, round(CHUNK_BYTES * samples / max(jpeg_bytes, 1))), MOST_SAMPLES_PER_CHUNK)


def permute(numbers: Int64s, count: int | Int64s, permutation_key: int | NDArray[np.uint64]) -> Int64s:
    """Where a permutation of [0, count) sends each number, without storing the permutation.

    A Feistel network over the next even number of bits, walked until the result is below `count` (Black and Rogaway,
    "Ciphers with Arbitrary Finite Domains", 2002).
    `count` and the key are the same for all numbers, or (n,) of each; count is below 2**53.
    """
    counts = np.broadcast_to(np.asarray(count, dtype=np.uint64), numbers.shape)
    half = (np.maximum(np.frexp(counts - np.uint64(1))[1] + 1, 2) // 2).astype(np.uint64)
    low = (np.uint64(1) << half) - np.uint64(1)
    by_round = np.broadcast_to(bits(permutation_key, np.arange(_ROUNDS)[:, None]), (_ROUNDS, len(numbers)))
    out = numbers.astype(np.uint64)
    todo = np.arange(len(out))
    while len(todo):
        shift, mask = half[todo], low[todo]
        left, right = out[todo] >> shift, out[todo] & mask
        for round_keys in by_round[:, todo]:
            left, right = right, left ^ (mix(right + round_keys) & mask)
        out[todo] = (left << shift) | right
        todo = todo[out[todo] >= counts[todo]]
    return out.astype(np.int64)


class EpochOrder:
    """The order of one epoch of so many samples, at least 1; without shuffle, that of the shards."""

    def __init__(self, samples: int, chunk: int, *, seed: int, epoch: int, shuffle: bool) -> None:
        self._samples, self._shuffle = samples, shuffle
        self._chunk = min(chunk, samples)
        self._full_chunks = samples // self._chunk
        self._chunks = -(-samples // self._chunk)
        self._windows = -(-self._chunks // CHUNKS_PER_WINDOW) if shuffle else self._chunks
        self._chunk_key = key(seed, epoch, Stream.CHUNKS)
        self._window_key = key(seed, epoch, Stream.WINDOW)
        self._rotation = key(seed, epoch, Stream.ROTATE) % samples if shuffle else 0
        self._cached: dict[int, Int64s] = {}

    def take(self, start: int, stop: int) -> Int64s:
        """The sample numbers at positions [start, stop) of the epoch, 0 <= start <= stop <= samples."""
        places = np.arange(start, stop, dtype=np.int64)
        if not self._shuffle:
            return places
        if self._chunk == 1:  # the permutation of chunks is one of samples
            return (self._chunks_at(places) + self._rotation) % self._samples
        parts = [np.empty(0, dtype=np.int64)]
        while start < stop:
            window = self._window_of(start)
            begin = self._first_chunk(window) * self._chunk
            part = self._window(window)[start - begin : stop - begin]
            parts.append(part)
            start += len(part)
        return np.concatenate(parts)

    def reads(self, start: int, stop: int, *, first: bool) -> Int64s:
        """What to read ahead before the samples at positions [start, stop) are read.

        The chunks that come within the next window, so that each is read as a whole and once, well before its first
        sample is due: those that were not yet due before `start`, or, at the first call, all from the window of
        `start` on. They are (n, 2) int64, runs of neighbouring samples in the order of the epoch: the first one and the
        one after the last.
        """
        firsts = self._chunks_at(self._due(start, stop, first=first)) * self._chunk
        counts = np.minimum(self._chunk, self._samples - firsts)
        firsts = (firsts + self._rotation) % self._samples
        runs = np.stack([firsts, firsts + counts], axis=1)
        over = np.flatnonzero(runs[:, 1] > self._samples)  # at most one chunk goes on at the first sample
        rest = np.stack([np.zeros_like(over), runs[over, 1] - self._samples], axis=1)
        runs[over, 1] = self._samples
        return np.insert(runs, over + 1, rest, axis=0)

    def positions_ahead(self, start: int, stop: int, *, first: bool) -> tuple[int, int]:
        """The stretch of the epoch in which all samples of the runs of `reads` stand: whole windows."""
        places = self._due(start, stop, first=first)
        if not len(places):
            return 0, 0
        begin = self._first_chunk(self._window_of(int(places[0]) * self._chunk))
        end = self._first_chunk(self._window_of(int(places[-1]) * self._chunk) + 1)
        return begin * self._chunk, min(end * self._chunk, self._samples)

    def _due(self, start: int, stop: int, *, first: bool) -> Int64s:
        """Places of the chunks that `reads` is about."""
        ahead = (CHUNKS_PER_WINDOW if self._shuffle else 0) + CHUNKS_EARLY
        begin, end = (-(-position // self._chunk) + ahead for position in (start, stop))
        if first:
            begin = self._first_chunk(self._window_of(start))
        return np.arange(begin, min(end, self._chunks), dtype=np.int64)

    def _window_of(self, position: int) -> int:
        return ((position // self._chunk + 1) * self._windows - 1) // self._chunks

    def _first_chunk(self, window: int) -> int:
        """Chunks are dealt to windows as evenly as they go; without shuffle, one to each."""
        return window * self._chunks // self._windows

    def _window(self, window: int) -> Int64s:
        if window in self._cached:
            return self._cached[window]
        places = np.arange(self._first_chunk(window), self._first_chunk(window + 1), dtype=np.int64)
        samples = (self._chunks_at(places)[:, None] * self._chunk + np.arange(self._chunk)).ravel()
        samples = (samples[samples < self._samples] + self._rotation) % self._samples
        first = self._first_chunk(window) * self._chunk
        shuffled = np.argsort(bits(self._window_key, np.arange(first, first + len(samples))), kind="stable")
        while len(self._cached) >= _MOST_WINDOWS:
            del self._cached[next(iter(self._cached))]
        self._cached[window] = samples[shuffled]
        return self._cached[window]

    def _chunks_at(self, places: Int64s) -> Int64s:
        """Which chunks stand at places of the epoch; the short one stays at the end."""
        if not self._shuffle:
            return places
        full = places < self._full_chunks
        chunks = places.copy()
        chunks[full] = permute(places[full], self._full_chunks, self._chunk_key)
        return chunks


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
