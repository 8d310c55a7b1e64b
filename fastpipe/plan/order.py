"""(samples, seed, epoch) -> any stretch of the order of an epoch, and the samples to read ahead.

Note [chunked shuffle]
Reading a shard front to back is many times faster than reading at random, and a full permutation of
a billion samples needs 8 GB. So an epoch permutes chunks (runs of neighbouring samples, about 8
MB), takes them a window at a time, and shuffles the samples inside the window. Nothing larger than
a window is ever stored: the permutation of chunks is computed (a Feistel cipher), and a window is
sorted when it is reached. `pack` shuffled the samples once, so a chunk is already a fair mix of
classes. A dataset that fits one window gets a uniform shuffle.
All chunks are rotated by a random distance each epoch. So the neighbours that share a chunk change,
and the one short chunk, always the last, does not always hold the same samples.
Chunks of one sample need no window: the permutation of chunks is one of all samples.

Note [passes]
Passes follow one another without end, each in a new order: pass p is the order that epoch p of a
plain loader has. A pass goes through places. A place is a sample or, with a sampler, a draw: the
sampler says which sample each draw of a pass is. In a pass each place comes `repeats` times in a
row. An epoch is a stretch of these passes, and the next epoch begins where it ends. So short epochs
go through the whole dataset before a sample comes again, and a plain epoch is exactly one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastpipe.arrays import Bools, Int64s, Uint64s
from fastpipe.plan.draws import Stream, bits, key, mix

T = TypeVar("T")
Ids = Callable[[Int64s], Int64s]  # (n,) places of a pass -> (n,) ids

CHUNK_BYTES = 8 * 2**20
CHUNKS_PER_WINDOW = 32
MAX_SAMPLES_PER_CHUNK = 1024  # limits the time to sort a window of tiny images to 3 ms
# How much earlier than its window, or without shuffle than its sample, a chunk is read.
CHUNKS_EARLY = 8
_FEISTEL_ROUNDS = 8
_WINDOWS_KEPT = 3  # the current one, and those that are fetched ahead
_PASSES_KEPT = 2  # a batch rarely lies in more


def cache_recent(
    size: int,
) -> Callable[[Callable[[Any, int], T]], Callable[[Any, int], T]]:
    """Decorates a method with one argument, a number: its object keeps the newest `size` results.

    The oldest result goes first. functools.lru_cache would keep the object itself alive. Several
    threads may call the method at once. Only single operations of a dict are atomic, so two threads
    may compute the same result.
    """

    def decorate(method: Callable[[Any, int], T]) -> Callable[[Any, int], T]:
        cache_name = f"_recent_{method.__name__}"

        @wraps(method)
        def cached(self: Any, number: int) -> T:
            attributes = vars(self)
            cache: dict[int, T] = attributes.setdefault(cache_name, {})
            try:
                return cache[number]
            except KeyError:
                oldest_first = list(cache)
            # Make room before the method runs: never more than `size` results are in memory.
            count_with_new = len(oldest_first) + 1
            excess = max(0, count_with_new - size)
            for old_number in oldest_first[:excess]:
                cache.pop(old_number, None)
            result = method(self, number)
            cache[number] = result
            return result

        return cached

    return decorate


def samples_per_chunk(samples: int, jpeg_bytes: int) -> int:
    """How many average samples make a chunk of about CHUNK_BYTES.

    At least 1, at most MAX_SAMPLES_PER_CHUNK.
    """
    total_bytes = max(jpeg_bytes, 1)
    average = round(CHUNK_BYTES * samples / total_bytes)
    count = max(1, average)
    return min(count, MAX_SAMPLES_PER_CHUNK)


def permute(
    numbers: Int64s, count: int | Int64s, permutation_key: int | Uint64s
) -> Int64s:
    """Where a permutation of [0, count) sends each number, without storing the permutation.

    A Feistel network over the next even number of bits, applied again until the result is below
    `count` (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).

    Args:
        numbers: (n,) each in [0, count).
        count: below 2**53; one for all numbers, or (n,).
        permutation_key: one for all numbers, or (n,).
    """
    one = np.uint64(1)
    counts = np.asarray(count, dtype=np.uint64)
    counts = np.broadcast_to(counts, numbers.shape)
    # (n,) the bits of the largest number below `count`: the binary exponent of its float64, which
    # is exact below 2**53.
    largest_numbers = counts - one
    _, bit_counts = np.frexp(largest_numbers)
    # (n,) each: a number is cut into a high and a low half of so many bits, at least 1.
    even_bits = np.maximum(bit_counts + 1, 2)
    half_bits = even_bits // 2
    half_bits = half_bits.astype(np.uint64)
    powers = one << half_bits
    masks = powers - one
    # (rounds, 1) or (rounds, n) -> (rounds, n)
    rounds = np.arange(_FEISTEL_ROUNDS)
    round_keys = bits(permutation_key, rounds[:, None])
    key_shape = (_FEISTEL_ROUNDS, len(numbers))
    round_keys = np.broadcast_to(round_keys, key_shape)

    out = numbers.astype(np.uint64)
    # The positions of the numbers whose result is not below `count` yet.
    todo = np.arange(len(out))
    while len(todo):
        shift = half_bits[todo]
        mask = masks[todo]
        before = out[todo]
        high = before >> shift
        low = before & mask
        # A round changes one half by a hash of the other, and swaps them. It can be undone, so no
        # two numbers get one result.
        for round_key in round_keys[:, todo]:
            low_hash = mix(low + round_key)
            high ^= low_hash & mask
            high, low = low, high
        after = (high << shift) | low
        out[todo] = after
        # Those that are not below `count` go through the network once more.
        is_too_large = after >= counts[todo]
        todo = todo[is_too_large]
    return out.astype(np.int64)


class EpochOrder:
    """The order of one pass through `samples` samples, at least 1; see Note [chunked shuffle].

    Without shuffle the samples keep their own order.
    """

    def __init__(
        self, samples: int, chunk: int, *, seed: int, epoch: int, shuffle: bool
    ) -> None:
        self._samples = samples
        self._shuffle = shuffle
        self._chunk = min(chunk, samples)  # samples of a chunk
        self._full_chunks = samples // self._chunk
        # -(-a // b) is a / b, rounded up.
        self._chunks = -(-samples // self._chunk)
        self._windows = -(-self._chunks // CHUNKS_PER_WINDOW)
        if not shuffle:  # a chunk is a window
            self._windows = self._chunks
        self._chunk_key = key(seed, epoch, Stream.CHUNKS)
        self._window_key = key(seed, epoch, Stream.WINDOW)
        # By how many samples all chunks are moved.
        self._rotation = 0
        if shuffle:
            rotation_key = key(seed, epoch, Stream.ROTATE)
            self._rotation = rotation_key % samples

    def take(self, start: int, stop: int) -> Int64s:
        """The sample numbers at positions [start, stop), 0 <= start <= stop <= samples."""
        if not self._shuffle:
            return np.arange(start, stop, dtype=np.int64)
        if self._chunk == 1:
            # A chunk is a sample.
            places = np.arange(start, stop, dtype=np.int64)
            unrotated_samples = self._chunks_at(places)
            return self._rotate(unrotated_samples)

        parts = [np.empty(0, dtype=np.int64)]  # np.concatenate needs at least one
        while start < stop:
            window = self._window_of(start)
            begin = self._first_position(window)
            samples = self._window(window)
            first = start - begin
            end = stop - begin
            part = samples[first:end]
            parts.append(part)
            start += len(part)
        return np.concatenate(parts)

    def reads(self, start: int, stop: int, *, is_first: bool) -> Int64s:
        """(n, 2) runs of neighbouring samples to read ahead before positions [start, stop): first
        sample, and end.

        These are chunks of the next window that were not due before `start`. With `is_first`, the
        first call of an iteration, they are all chunks from the window of `start` on.
        """
        due = self._due(start, stop, is_first=is_first)
        if not len(due):
            return np.empty((0, 2), dtype=np.int64)
        # (n,) each: the first sample of each chunk before the rotation, and how many it has. Only
        # the last chunk is shorter.
        chunks = self._chunks_at(due)
        unrotated = chunks * self._chunk
        samples_behind = self._samples - unrotated
        counts = np.minimum(self._chunk, samples_behind)
        starts = self._rotate(unrotated)
        ends = starts + counts

        # The rotation wraps around: at most one chunk crosses the end, and its rest begins at
        # sample 0.
        crosses_end = ends > self._samples
        crossing = np.flatnonzero(crosses_end)
        rest_ends = ends[crossing] - self._samples
        rest_starts = np.zeros_like(rest_ends)
        rest = np.stack([rest_starts, rest_ends], axis=1)
        ends[crossing] = self._samples
        runs = np.stack([starts, ends], axis=1)
        # The rest comes directly behind its run.
        behind_crossing = crossing + 1
        return np.insert(runs, behind_crossing, rest, axis=0)

    def positions_ahead(
        self, start: int, stop: int, *, is_first: bool
    ) -> tuple[int, int]:
        """The positions [begin, end) at which the samples of `reads` stand: whole windows."""
        due = self._due(start, stop, is_first=is_first)
        if not len(due):
            return 0, 0
        first_due = int(due[0])
        last_due = int(due[-1])
        first_window = self._window_of(first_due * self._chunk)
        last_window = self._window_of(last_due * self._chunk)
        begin = self._first_position(first_window)
        end = self._first_position(last_window + 1)
        return begin, min(end, self._samples)

    def _due(self, start: int, stop: int, *, is_first: bool) -> Int64s:
        """The places, in the order of chunks, of the chunks that `reads` names."""
        ahead = CHUNKS_EARLY
        if self._shuffle:
            ahead += CHUNKS_PER_WINDOW
        # The first chunk that begins at or after each position, and so many more.
        next_of_start = -(-start // self._chunk)
        next_of_stop = -(-stop // self._chunk)
        begin = next_of_start + ahead
        end = min(next_of_stop + ahead, self._chunks)
        if is_first:
            window = self._window_of(start)
            begin = self._first_chunk(window)
        return np.arange(begin, end, dtype=np.int64)

    def _rotate(self, samples: Int64s) -> Int64s:
        """Samples as they are numbered before the rotation -> their own numbers."""
        rotated = samples + self._rotation
        return rotated % self._samples

    def _window_of(self, position: int) -> int:
        """The window that has a position: the inverse of `_first_chunk`."""
        chunk = position // self._chunk
        next_chunk = chunk + 1
        # The largest window whose first chunk is before the next chunk.
        return (next_chunk * self._windows - 1) // self._chunks

    def _first_chunk(self, window: int) -> int:
        """The place of a window's first chunk.

        The windows' numbers of chunks differ by at most one.
        """
        return window * self._chunks // self._windows

    def _first_position(self, window: int) -> int:
        return self._first_chunk(window) * self._chunk

    @cache_recent(_WINDOWS_KEPT)
    def _window(self, window: int) -> Int64s:
        """The samples of a window, in their order."""
        first_chunk = self._first_chunk(window)
        end_chunk = self._first_chunk(window + 1)
        places = np.arange(first_chunk, end_chunk, dtype=np.int64)
        chunks = self._chunks_at(places)
        first_samples = chunks * self._chunk
        numbers_in_chunk = np.arange(self._chunk)
        # (chunks, samples of a chunk) -> (samples of the window,): the last chunk may be short.
        samples = first_samples[:, None] + numbers_in_chunk
        samples = samples[samples < self._samples]
        samples = self._rotate(samples)

        # A draw is named by its position in the epoch.
        begin = self._first_position(window)
        end = begin + len(samples)
        positions = np.arange(begin, end)
        draws = bits(self._window_key, positions)
        shuffled = np.argsort(draws, kind="stable")
        return samples[shuffled]

    def _chunks_at(self, places: Int64s) -> Int64s:
        """Which chunk stands at each place; the short one stays at the end."""
        if not self._shuffle:
            return places
        is_full = places < self._full_chunks
        full_places = places[is_full]
        full_chunks = permute(full_places, self._full_chunks, self._chunk_key)
        chunks = places.copy()
        chunks[is_full] = full_chunks
        return chunks


class OrderRows(NamedTuple):
    """A stretch of an epoch's order, (n,) each."""

    ids: Int64s  # of the samples
    places: Int64s  # in the pass
    # A number that differs between the rows of one place, 0 or more: it counts passes and repeats.
    times: Int64s


class _Piece(NamedTuple):
    """A stretch of an epoch inside one pass."""

    number: int  # of the pass
    start: int  # in the pass, counted in positions or in places
    stop: int
    is_first: bool  # nothing of this pass has been requested before


@dataclass(frozen=True, eq=False)
class Passes:
    """The order of an epoch, of one sequence; see Note [passes].

    A pass has `places` places and `places * repeats` positions.
    """

    places: int  # of a pass, at least 1
    chunk: int  # places that are read together
    _: KW_ONLY
    seed: int
    begin: int  # position in the endless row of passes at which the epoch begins
    size: int  # positions of the epoch
    repeats: int  # how often in a row a place comes
    shuffle: bool  # False: all passes have the order of the places
    ids: Callable[[int], Ids]  # number of a pass -> a function from places to ids
    # Added to the places of this sequence: the places of all sequences are numbered together.
    base: int = 0

    def take(self, start: int, stop: int) -> OrderRows:
        """The rows at positions [start, stop) of the epoch."""
        id_parts = [np.empty(0, dtype=np.int64)]
        place_parts = [np.empty(0, dtype=np.int64)]
        for piece in self._pieces(start, stop):
            order, ids_of = self._pass(piece.number)
            # Whole places, each with all its repeats, from which the positions are cut.
            first_place = piece.start // self.repeats
            end_place = -(-piece.stop // self.repeats)
            whole_places = order.take(first_place, end_place)
            repeated = np.repeat(whole_places, self.repeats)
            first_position = first_place * self.repeats
            begin = piece.start - first_position
            end = piece.stop - first_position
            places = repeated[begin:end] + self.base
            place_parts.append(places)
            id_parts.append(ids_of(places))
        ids = np.concatenate(id_parts)
        places = np.concatenate(place_parts)
        times = self._times(start, stop)
        return OrderRows(ids, places, times)

    def _times(self, start: int, stop: int) -> Int64s:
        """`OrderRows.times` of the positions [start, stop) of the epoch."""
        # Counted from the start of the pass in which the epoch begins.
        positions = np.arange(start, stop, dtype=np.int64)
        begin_in_pass = self.begin % self._length
        positions += begin_in_pass
        passes, position_in_pass = np.divmod(positions, self._length)
        times_in_pass = position_in_pass % self.repeats
        times_before_pass = passes * self.repeats
        times: Int64s = times_in_pass + times_before_pass
        return times

    def reads(self, start: int, stop: int, *, is_first: bool, runs: bool) -> Int64s:
        """As EpochOrder.reads: (n, 2) runs of places with `runs`, where neighbouring places are
        neighbouring samples; else (n,) ids.
        """
        shape: tuple[int, ...] = (0,)
        if runs:
            shape = (0, 2)
        nothing = np.empty(shape, dtype=np.int64)
        parts: list[Int64s] = [nothing]
        for piece in self._place_pieces(start, stop, is_first=is_first):
            order, ids_of = self._pass(piece.number)
            place_runs = order.reads(piece.start, piece.stop, is_first=piece.is_first)
            place_runs += self.base
            if runs:
                parts.append(place_runs)
            else:
                places = members(place_runs)
                parts.append(ids_of(places))
        return np.concatenate(parts)

    def ahead(
        self,
        start: int,
        stop: int,
        is_mine: Callable[[Int64s], Bools],
        *,
        is_first: bool,
    ) -> list[Int64s]:
        """For each run of `reads`, the ids that this epoch has at positions of `is_mine`."""
        ids = []
        for piece in self._place_pieces(start, stop, is_first=is_first):
            order, ids_of = self._pass(piece.number)
            begin, end = order.positions_ahead(
                piece.start, piece.stop, is_first=piece.is_first
            )
            # Positions in the pass, and then those in the epoch.
            first_position = begin * self.repeats
            end_position = end * self.repeats
            positions = np.arange(first_position, end_position)
            pass_begin = piece.number * self._length
            positions += pass_begin - self.begin
            is_after_begin = positions >= 0
            is_before_end = positions < self.size
            is_wanted = is_after_begin & is_before_end
            positions_of_epoch = positions[is_wanted]
            is_wanted[is_wanted] = is_mine(positions_of_epoch)

            places_in_order = order.take(begin, end)
            repeated = np.repeat(places_in_order, self.repeats)
            places = np.unique(repeated[is_wanted])
            place_runs = order.reads(piece.start, piece.stop, is_first=piece.is_first)
            for run in place_runs:
                low, high = np.searchsorted(places, run)
                places_of_run = places[low:high] + self.base
                ids.append(ids_of(places_of_run))
        return ids

    @property
    def _length(self) -> int:
        """Positions of a pass."""
        return self.places * self.repeats

    def _pieces(self, start: int, stop: int) -> list[_Piece]:
        """The positions [start, stop), cut where a pass ends, counted in their pass."""
        if start >= stop:
            return []
        length = self._length
        begin = self.begin + start
        end = self.begin + stop
        pieces = []
        first_pass = begin // length
        end_pass = -(-end // length)
        for number in range(first_pass, end_pass):
            pass_begin = number * length
            low = max(begin - pass_begin, 0)
            high = min(end - pass_begin, length)
            piece = _Piece(number, low, high, is_first=False)
            pieces.append(piece)
        return pieces

    def _place_pieces(self, start: int, stop: int, *, is_first: bool) -> list[_Piece]:
        """The same in places of their pass, each place once, for EpochOrder.reads."""
        pieces = self._pieces(start, stop)
        if is_first and start == stop < self.size:
            # The first batch of a mixture may have no row of a share. Its reads begin nevertheless.
            position = self.begin + start
            number, inside = divmod(position, self._length)
            empty_piece = _Piece(number, inside, inside, is_first=True)
            pieces = [empty_piece]
        place_pieces = []
        for piece in pieces:
            is_start = is_first or piece.start == 0
            # A place that began before `start` was named with its first repeat, unless this is the
            # first call.
            begin = -(-piece.start // self.repeats)
            if is_start:
                begin = piece.start // self.repeats
            end = -(-piece.stop // self.repeats)
            place_piece = _Piece(piece.number, begin, end, is_start)
            place_pieces.append(place_piece)
            is_first = False
        return place_pieces

    @cache_recent(_PASSES_KEPT)
    def _pass(self, number: int) -> tuple[EpochOrder, Ids]:
        order = EpochOrder(
            self.places, self.chunk, seed=self.seed, epoch=number, shuffle=self.shuffle
        )
        return order, self.ids(number)


def members(runs: Int64s) -> Int64s:
    """All numbers in runs (n, 2), each of a first number and an end; one run after the other."""
    first_numbers = runs[:, 0]
    end_numbers = runs[:, 1]
    counts = end_numbers - first_numbers
    # (n,) where each run begins in the result, and the difference of a number and its position
    # there. It is the same in all of a run, so no loop over the runs is needed.
    ends_in_result = np.cumsum(counts)
    positions = ends_in_result - counts
    differences = first_numbers - positions
    differences_of_members = np.repeat(differences, counts)
    positions_of_members = np.arange(counts.sum())
    return differences_of_members + positions_of_members
