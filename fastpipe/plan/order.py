"""(samples, seed, epoch) -> the order of an epoch, any stretch of it at a time, and the bytes to read ahead of it.

Note [chunked shuffle]
Reading a shard front to back is many times faster than reading at random, and a full permutation of a billion samples
needs 8 GB. So an epoch permutes chunks (runs of neighbouring samples, about 8 MB), takes them a window at a time, and
shuffles the samples inside the window. Nothing larger than a window is ever stored: the permutation of chunks is
computed (a Feistel cipher), that of a window is sorted out when it is reached. `pack` shuffled the samples once, so a
chunk is already a fair mix of classes. A dataset that fits one window gets a uniform shuffle.
All chunks are rotated by a random distance each epoch, so that neighbours which share a chunk change, and so that the
one chunk that is short, always the last, does not always hold the same samples.
Chunks of one sample need no window: the permutation of chunks is one of all samples.

Note [passes]
Passes follow one another without end, each in a new order: pass p is the order that epoch p of a plain loader has. A
pass goes through places. Each place is a sample, or, where a sampler picks, a draw: the sampler tells the sample of
each draw of a pass. In a pass each place comes `repeats` times in a row. An epoch is a stretch of this, and the next
epoch begins where it ends. So short epochs go through the whole dataset before a sample comes again, and a plain epoch
is exactly one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.draws import Bools, Int64s, Stream, bits, key, mix

T = TypeVar("T")
Ids = Callable[[Int64s], Int64s]  # (n,) places of a pass -> (n,) ids

CHUNK_BYTES = 8 * 2**20
CHUNKS_PER_WINDOW = 32
MOST_SAMPLES_PER_CHUNK = 1024  # tiny pictures: a window is sorted out in 3 ms, whatever they weigh
CHUNKS_EARLY = 8  # by which a chunk is read ahead of the window, or without shuffle of the sample, that needs it
_ROUNDS = 8
_MOST_WINDOWS = 3  # in memory: that at hand, and those that are fetched ahead
_MOST_PASSES = 2  # that a batch may lie in, with few exceptions

# A part of a shard, in bytes; never beyond the shard's end.
RANGE_DTYPE = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("size", "<u8")])

MOST_RANGE_BYTES = 4 * CHUNK_BYTES  # of a chunk of far larger samples than the dataset's average
_NEAR_BYTES = 16 * 1024


def recent(most: int) -> Callable[[Callable[[Any, int], T]], Callable[[Any, int], T]]:
    """Has an object keep what a method of it found last, for so many numbers: no circle of objects, as lru_cache is.
    Threads may ask at once, and then may each find the same, since only single operations of a dict are atomic.
    """

    def keeping(method: Callable[[Any, int], T]) -> Callable[[Any, int], T]:
        name = f"_recent_{method.__name__}"

        @wraps(method)
        def of(self: Any, number: int) -> T:
            found: dict[int, T] = vars(self).setdefault(name, {})
            try:
                return found[number]
            except KeyError:
                oldest = list(found)
            for each in oldest[: max(0, len(oldest) + 1 - most)]:
                found.pop(each, None)
            made = found[number] = method(self, number)
            return made

        return of

    return keeping


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
    """The order of one pass through so many samples, at least 1; without shuffle, that of the shards."""

    def __init__(self, samples: int, chunk: int, *, seed: int, epoch: int, shuffle: bool) -> None:
        self._samples, self._shuffle = samples, shuffle
        self._chunk = min(chunk, samples)
        self._full_chunks = samples // self._chunk
        self._chunks = -(-samples // self._chunk)
        self._windows = -(-self._chunks // CHUNKS_PER_WINDOW) if shuffle else self._chunks
        self._chunk_key = key(seed, epoch, Stream.CHUNKS)
        self._window_key = key(seed, epoch, Stream.WINDOW)
        self._rotation = key(seed, epoch, Stream.ROTATE) % samples if shuffle else 0

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
        """(n, 2) runs of neighbouring samples to read before positions [start, stop): chunks of the next window which
        were not yet due before `start`; or, at the first call, all from the window of `start` on.
        """
        due = self._due(start, stop, first=first)
        if not len(due):
            return np.empty((0, 2), dtype=np.int64)
        firsts = self._chunks_at(due) * self._chunk
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

    @recent(_MOST_WINDOWS)
    def _window(self, window: int) -> Int64s:
        places = np.arange(self._first_chunk(window), self._first_chunk(window + 1), dtype=np.int64)
        samples = (self._chunks_at(places)[:, None] * self._chunk + np.arange(self._chunk)).ravel()
        samples = (samples[samples < self._samples] + self._rotation) % self._samples
        first = self._first_chunk(window) * self._chunk
        shuffled = np.argsort(bits(self._window_key, np.arange(first, first + len(samples))), kind="stable")
        return samples[shuffled]

    def _chunks_at(self, places: Int64s) -> Int64s:
        """Which chunks stand at places of the epoch; the short one stays at the end."""
        if not self._shuffle:
            return places
        full = places < self._full_chunks
        chunks = places.copy()
        chunks[full] = permute(places[full], self._full_chunks, self._chunk_key)
        return chunks


class Taken(NamedTuple):
    """A stretch of an epoch, (n,) each."""

    ids: Int64s  # of the samples
    places: Int64s
    times: Int64s  # which time a row's place comes in the epoch, at least: 0, 1, ... Never the same twice for a place


@dataclass(frozen=True, eq=False)
class Passes:
    """The order of an epoch, of one sequence; see Note [passes]."""

    places: int  # that a pass goes through, at least 1
    chunk: int  # places that are read together
    _: KW_ONLY
    seed: int  # picks the orders
    begin: int  # where in the endless order the epoch begins
    size: int  # positions of the epoch
    repeats: int  # how often in a row a place comes
    shuffle: bool  # False gives all passes the order of the places
    ids: Callable[[int], Ids]  # pass -> the ids at its places
    base: int = 0  # the first place; all sequences' places are numbered together

    def take(self, start: int, stop: int) -> Taken:
        """The rows at positions [start, stop) of the epoch."""
        none = np.empty(0, dtype=np.int64)
        ids, places = [none], [none]
        for number, first, end in self._pieces(start, stop):
            low = first // self.repeats
            order, ids_of = self._pass(number)
            some = np.repeat(order.take(low, -(-end // self.repeats)), self.repeats)[first - low * self.repeats :]
            places.append(some[: end - first] + self.base)
            ids.append(ids_of(places[-1]))
        times, at = np.divmod(np.arange(start, stop, dtype=np.int64) + self.begin % self._length, self._length)
        return Taken(np.concatenate(ids), np.concatenate(places), at % self.repeats + times * self.repeats)

    def reads(self, start: int, stop: int, *, first: bool, runs: bool) -> Int64s:
        """As of EpochOrder: `runs`, of places, where neighbouring places are neighbouring samples; else (n,) ids."""
        found = [np.empty((0, 2) if runs else 0, dtype=np.int64)]
        for number, low, high, anew in self._stretches(start, stop, first=first):
            order, ids_of = self._pass(number)
            read = order.reads(low, high, first=anew) + self.base
            found.append(read if runs else ids_of(members(read)))
        return np.concatenate(found)

    def ahead(self, start: int, stop: int, mine: Callable[[Int64s], Bools], *, first: bool) -> list[Int64s]:
        """The ids of each run of `reads` that positions of this epoch have; `mine` says which positions count."""
        found = []
        for number, low, high, anew in self._stretches(start, stop, first=first):
            order, ids_of = self._pass(number)
            begin, end = order.positions_ahead(low, high, first=anew)
            positions = np.arange(begin * self.repeats, end * self.repeats) + number * self._length - self.begin
            within = (positions >= 0) & (positions < self.size)
            within[within] = mine(positions[within])
            places = np.unique(np.repeat(order.take(begin, end), self.repeats)[within]) + self.base
            for run in order.reads(low, high, first=anew) + self.base:
                found.append(ids_of(places[slice(*np.searchsorted(places, run))]))
        return found

    @property
    def _length(self) -> int:
        return self.places * self.repeats

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """(pass, start, stop): where the positions stand in each pass that they lie in."""
        at, end, length = self.begin + start, self.begin + stop, self._length
        passes = range(at // length, -(-end // length)) if at < end else ()
        return [(each, max(at - each * length, 0), min(end - each * length, length)) for each in passes]

    def _stretches(self, start: int, stop: int, *, first: bool) -> list[tuple[int, int, int, bool]]:
        """(pass, start, stop, first): the same in places, each once, for EpochOrder.reads."""
        found = []
        pieces = self._pieces(start, stop)
        if first and start == stop < self.size:  # a mixture's first batch may have none of a share that comes later
            number, inside = divmod(self.begin + start, self._length)
            pieces = [(number, inside, inside)]
        for number, low, high in pieces:
            anew = first or low == 0
            begin = low // self.repeats if anew else -(-low // self.repeats)
            found.append((number, begin, -(-high // self.repeats), anew))
            first = False
        return found

    @recent(_MOST_PASSES)
    def _pass(self, number: int) -> tuple[EpochOrder, Ids]:
        order = EpochOrder(self.places, self.chunk, seed=self.seed, epoch=number, shuffle=self.shuffle)
        return order, self.ids(number)


def sample_ranges(records: NDArray[np.void]) -> NDArray[np.void]:
    """(n,) of RANGE_DTYPE: the bytes of single samples, from their checked records."""
    ranges = records[["shard", "offset", "size"]].astype(RANGE_DTYPE)
    ranges["size"] = np.minimum(ranges["size"], MOST_RANGE_BYTES)
    return ranges


def run_ranges(index: Index, runs: Int64s) -> NDArray[np.void]:
    """(m,) of RANGE_DTYPE: the bytes of runs, (n, 2), by shard, with fields; impossible ones are left out."""
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
    """The same, those that nearly touch as one: between the pictures of a tar lie headers, labels and captions."""
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
