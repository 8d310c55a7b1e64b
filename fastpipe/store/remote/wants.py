"""Samples that are wanted, soon or now -> the parts to fetch for them, and who waits for them.

Samples in blocks that the cache keeps are fetched with the whole blocks. The others are fetched by
themselves, neighbours together, into the ring. They stay there until their batch has been made.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Int64s, Uint8s
from fastpipe.errors import DatasetError
from fastpipe.plan.order import members
from fastpipe.store.remote.blocks import Extents
from fastpipe.store.remote.cache import ALLOTTED, WRITTEN, Caches
from fastpipe.store.remote.objects import REQUEST_BYTES
from fastpipe.store.remote.ring import Key, Ring, RingParts, RingPiece, ShardPart

# If the samples of a first batch are fetched alone, they are fetched twice. That is allowed if the
# batch is at most one part in so many of the dataset.
_FIRST_BATCH_SHARE = 32
# Ranges for the ring that are closer to each other are fetched by one request.
_NEAR_BYTES = 32 << 10


@dataclass(frozen=True)
class Where:
    """Where the engine finds samples."""

    # (n,) the number of the file: a shard, or behind the last one the ring
    shard: NDArray[np.uint32]
    # (n,) how many bytes further behind the sample is there than in its shard
    shift: Int64s


@dataclass(eq=False)
class Ticket:
    """Samples that somebody waits for. Dropping it, or Reader.end, gives them up."""

    samples: Int64s
    # Called in any thread, once all samples are there, or with the error.
    on_ready: Callable[[Where | Exception], None]
    # The plan of the time when the ticket was created.
    generation: int
    # What has not arrived yet.
    missing: set[Key] = field(default_factory=set)
    # The pieces of the ring that have its samples, or will have them.
    pieces: set[RingPiece] = field(default_factory=set)
    # Whether nobody waits any more.
    ended: bool = False
    # Whether its samples are in the counters.
    counted: bool = False


class Wants:
    """What has to be fetched for some samples, into the caches or the ring. Safe in threads."""

    def __init__(self, extents: Extents, caches: Caches, ring: Ring) -> None:
        self.extents = extents
        self.caches = caches
        # Held by whoever takes several steps.
        self.lock = threading.RLock()
        self.ring_parts = RingParts(ring, self.lock)
        # Blocks for which another process takes too long. This one fetches their samples into the
        # ring.
        self.impatient: set[int] = set()
        # The number of plans so far.
        self.generation = 0
        # The bytes of samples that were in the cache already.
        self.cache_hit_bytes = 0
        # Only whoever waits keeps a ticket, and with it the engine. So a loader that is dropped
        # ends at once.
        self._tickets: weakref.WeakSet[Ticket] = weakref.WeakSet()
        self.urgent: deque[ShardPart] = deque()
        self.queue: deque[ShardPart] = deque()
        # Blocks that are queued, under way, or awaited from another process.
        self._coming_blocks: set[int] = set()
        # The number of processes that begin a plan, while its first batch is asked for.
        self._beginning_processes = 0

    def restart(self, sharers: int) -> None:
        """Drops what was asked for ahead and nobody waits for, because another plan follows.

        The plan's first samples are fetched alone, without their blocks, unless they are much of
        the datasets.

        Args:
            sharers: the number of processes that begin the plan.
        """
        with self.lock:
            self._beginning_processes = max(sharers, 1)
            self.generation += 1
            wanted: set[Key] = set()
            for ticket in self._waiting():
                wanted |= ticket.missing
            queued = self.queue
            self.queue = deque()
            for part in queued:
                if part.keys & wanted:
                    self.queue.append(part)
                elif part.blocks is not None:
                    self._coming_blocks.difference_update(part.blocks)
            self.ring_parts.next_plan(self._pinned())

    def ahead(self, samples: Int64s) -> None:
        """Queues samples for later batches."""
        with self.lock:
            self._beginning_processes = 0
            self.queue.extend(self._missing_parts(samples, None))

    def add(self, ticket: Ticket) -> Where | None:
        """Where a ticket's samples are. If some are missing, they are fetched before all else, and
        the result is None.
        """
        with self.lock:
            self._tickets.add(ticket)
            is_exact = self._is_small_first_batch(ticket)
            return self._need(ticket, exact=is_exact)

    def _is_small_first_batch(self, ticket: Ticket) -> bool:
        if not self._beginning_processes:
            return False
        _, start, stop = self.extents.of(ticket.samples)
        sample_bytes = stop - start
        batch_bytes = int(sample_bytes.sum())
        first_bytes = batch_bytes * self._beginning_processes
        shard_bytes = self.caches.blocks.sizes
        dataset_bytes = int(shard_bytes.sum())
        return first_bytes * _FIRST_BATCH_SHARE <= dataset_bytes

    def end(self, ticket: Ticket, *, used: bool) -> None:
        """Gives a ticket back.

        Args:
            ticket: may have been given back already.
            used: whether the batch was made, so that the plan does not need its samples any more.
        """
        with self.lock:
            if ticket.ended:
                return
            ticket.ended = True
            pieces = ticket.pieces
            ticket.pieces = set()
            if used:
                # A plan that has ended needs no samples any more.
                samples = ticket.samples
                if ticket.generation != self.generation:
                    samples = samples[:0]
                used_pieces = self.ring_parts.use(samples)
                pieces.update(used_pieces)
            if pieces:
                self.ring_parts.give_back(pieces, self._pinned())

    def again(self, samples: Int64s) -> None:
        """Forgets the bytes of samples that are wrong, so that they are fetched again."""
        with self.lock:
            wrong: list[RingPiece] = []
            for sample in samples.tolist():
                piece = self.ring_parts.of(sample)
                # A piece that is still under way is new, and others may wait for it.
                if piece is not None and piece.ring_offset is not None:
                    wrong.append(piece)
            self.ring_parts.forget(wrong)
            self.ring_parts.give_back(wrong, self._pinned())
            blocks_of_shards = self.caches.blocks
            shard, start, stop = self.extents.of(samples)
            first, last = blocks_of_shards.touched(shard, start, stop)
            first_and_last = np.concatenate([first, last])
            blocks = np.unique(first_and_last)
            self.caches.forget(blocks)

    def end_all(self) -> None:
        with self.lock:
            self.queue.clear()
            self.urgent.clear()
            for ticket in self._waiting():
                ticket.ended = True

    def __len__(self) -> int:
        return len(self.queue) + len(self.urgent)

    def arrived(
        self, keys: Iterable[Key], problem: Exception | None = None
    ) -> list[tuple[Ticket, Where | Exception]]:
        """Notes what has come, or cannot come because of `problem`.

        Returns the tickets that are ready or have failed. The caller calls their `on_ready`, without the
        lock.
        """
        ready: list[tuple[Ticket, Where | Exception]] = []
        with self.lock:
            waiting = self._waiting()
            for key in keys:
                if isinstance(key, int):
                    self._coming_blocks.discard(key)
                elif problem is not None:
                    self.ring_parts.forget(key.pieces)
                for ticket in waiting:
                    if key not in ticket.missing or ticket.ended:
                        continue
                    ticket.missing.discard(key)
                    outcome = self._outcome(ticket, problem)
                    if outcome is not None:
                        ready.append((ticket, outcome))
        return ready

    def _outcome(
        self, ticket: Ticket, problem: Exception | None
    ) -> Where | Exception | None:
        """What to give a ticket of which something has come, or failed; None: it waits on."""
        if problem is not None:
            ticket.ended = True
            return problem
        if ticket.missing:
            return None
        try:
            # Some of its samples may have been forgotten meanwhile.
            return self._need(ticket, exact=False)
        except DatasetError as index_error:
            return index_error

    def _waiting(self) -> list[Ticket]:
        return [ticket for ticket in self._tickets if not ticket.ended]

    def _pinned(self) -> set[RingPiece]:
        pinned: set[RingPiece] = set()
        for ticket in self._waiting():
            pinned |= ticket.pieces
        return pinned

    def _need(self, ticket: Ticket, *, exact: bool) -> Where | None:
        """Where a ticket's samples are; None if some are missing, which then come first."""
        parts = self._missing_parts(ticket.samples, ticket, exact=exact)
        for part in parts:
            part.is_first_batch = exact
        self.urgent.extend(parts)
        if not ticket.missing:
            return self._where(ticket)
        self._move_to_front(ticket.missing)
        return None

    def _move_to_front(self, keys: set[Key]) -> None:
        """Makes parts urgent that were queued for later batches, and are needed now."""
        later: deque[ShardPart] = deque()
        for part in self.queue:
            if part.keys & keys:
                self.urgent.append(part)
            else:
                later.append(part)
        if len(later) < len(self.queue):
            self.queue = later

    def _where(self, ticket: Ticket) -> Where:
        shards, _, _ = self.extents.of(ticket.samples)
        shard = shards.astype(np.uint32)
        shift = np.zeros(len(shard), dtype=np.int64)
        if ticket.pieces:
            ring_number = len(self.caches.blocks.sizes)
            for row, sample in enumerate(ticket.samples.tolist()):
                piece = self.ring_parts.of(sample)
                if piece is not None:
                    assert piece.ring_offset is not None
                    shard[row] = ring_number
                    shift[row] = piece.ring_offset - piece.start
        return Where(shard, shift)

    def _missing_parts(
        self, samples: Int64s, ticket: Ticket | None, *, exact: bool = False
    ) -> list[ShardPart]:
        """What has to be fetched for samples, and is not under way yet.

        Args:
            samples: (n,) their numbers.
            ticket: learns what it has to wait for; None if the plan needs the samples later.
            exact: fetch only the samples, not the blocks that they are in.
        """
        blocks = self.caches.blocks
        shard, start, stop = self.extents.of(samples)
        first_block, last_block = blocks.touched(shard, start, stop)
        if not exact:
            # Room is reserved before the look at the states. So blocks that fit count as kept.
            wanted = _united(first_block, last_block)
            for cache in self.caches.remote:
                cache.allot(wanted)
        least_state = self.caches.least_state(first_block, last_block)
        is_kept = self._is_kept(
            samples, first_block, last_block, least_state, exact=exact
        )

        is_written = least_state >= WRITTEN
        is_remote = self.caches.is_remote[shard]
        is_hit = is_kept & is_written & is_remote
        # A ticket of samples that were asked for ahead would count them twice.
        is_counted = ticket is None
        if ticket is not None and self.generation == 0:  # before any plan
            is_counted = not ticket.counted
        if is_counted:
            sizes = stop - start
            hit_sizes = sizes[is_hit]
            self.cache_hit_bytes += int(hit_sizes.sum())

        first_of_kept = first_block[is_kept]
        last_of_kept = last_block[is_kept]
        kept_blocks = _united(first_of_kept, last_of_kept)
        is_missing = self.caches.states(kept_blocks) < WRITTEN
        missing: list[int] = kept_blocks[is_missing].tolist()
        if ticket is not None:
            ticket.counted = True
            ticket.missing.update(missing)
        # Blocks that are under way already are not fetched twice; the ticket waits for them, too.
        new_blocks = [block for block in missing if block not in self._coming_blocks]
        self._coming_blocks.update(new_blocks)
        parts: list[ShardPart] = []
        for run in blocks.runs(new_blocks, REQUEST_BYTES):
            run_shard, run_start, run_stop = blocks.byte_range(run)
            part = ShardPart(run_shard, run_start, run_stop, blocks=run)
            parts.append(part)

        # (samples that the cache does not keep, 4) sample, shard, start, stop
        ranges = np.stack([samples, shard, start, stop], axis=1)
        others = ranges[~is_kept]
        ring_parts = self._missing_ring_parts(ticket, others.tolist())
        return parts + ring_parts

    def _is_kept(
        self,
        samples: Int64s,
        first_block: Int64s,
        last_block: Int64s,
        least_state: Uint8s,
        *,
        exact: bool,
    ) -> Bools:
        """(n,) which samples are read from the cache; the others from the ring.

        Args:
            samples: (n,) their numbers.
            first_block, last_block: (n,) the blocks that each sample touches.
            least_state: (n,) the least state of these blocks.
            exact: see `_missing_parts`.
        """
        # With `exact`, and after a disk was full, no more blocks are fetched.
        needed_state = ALLOTTED
        if exact or self.caches.given_up:
            needed_state = WRITTEN
        # A sample that is in the ring, or on its way there, is read from there.
        in_ring: list[bool] = []
        for sample in samples.tolist():
            piece = self.ring_parts.of(sample)
            in_ring.append(piece is not None)
        is_in_ring = np.array(in_ring, dtype=np.bool_)
        is_in_cache = least_state >= needed_state
        is_kept = is_in_cache & ~is_in_ring
        if self.impatient:
            first_blocks = first_block.tolist()
            last_blocks = last_block.tolist()
            block_ranges = zip(first_blocks, last_blocks, strict=True)
            for row, (first, last) in enumerate(block_ranges):
                touched = range(first, last + 1)
                if not self.impatient.isdisjoint(touched):
                    is_kept[row] = False
        return is_kept

    def _missing_ring_parts(
        self, ticket: Ticket | None, rows: list[list[int]]
    ) -> list[ShardPart]:
        """Parts of samples that the cache does not keep.

        Args:
            ticket: see `_missing_parts`.
            rows: for each sample its number, its shard, its first byte and the one after the last.
        """
        parts: list[ShardPart] = []
        for sample, shard, start, stop in rows:
            piece = self.ring_parts.of(sample)
            if piece is None:
                if not parts or not _can_join(parts[-1], shard, start, stop):
                    new_part = ShardPart(shard, start, stop)
                    parts.append(new_part)
                part = parts[-1]
                piece = self.ring_parts.put(sample, part, start, stop)
            if ticket is None:
                piece.planned.add(sample)
                continue
            ticket.pieces.add(piece)
            if piece.ring_offset is None:
                ticket.missing.add(piece.part)
        return parts


def _can_join(part: ShardPart, shard: int, start: int, stop: int) -> bool:
    """Whether one request can fetch a part and these bytes behind it."""
    if part.shard != shard:
        return False
    request_bytes = stop - part.start
    gap_bytes = start - part.stop
    is_near = 0 <= gap_bytes <= _NEAR_BYTES
    return is_near and request_bytes <= REQUEST_BYTES


def _united(first: Int64s, last: Int64s) -> Int64s:
    """All numbers from first to last of each row, each once, in the order of the rows."""
    end = last + 1
    runs = np.stack([first, end], axis=1)
    numbers = members(runs)
    _, first_index = np.unique(numbers, return_index=True)
    index_in_order = np.sort(first_index)
    return numbers[index_in_order]
