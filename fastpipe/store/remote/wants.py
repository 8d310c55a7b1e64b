"""Samples that are wanted, soon or now -> the parts to fetch for them, in order; and who is told when they are there.

Samples that lie in blocks that the cache keeps are fetched with the whole blocks. The others are fetched by themselves,
neighbours together, into the ring, and stay there until the batch that needs them is made.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.plan.order import members
from fastpipe.store.remote.blocks import Extents
from fastpipe.store.remote.cache import ALLOTTED, WRITTEN, Caches
from fastpipe.store.remote.objects import REQUEST_BYTES
from fastpipe.store.remote.ring import Key, Ring, RingParts, RingPiece, ShardPart

# A first batch whose samples are fetched alone is fetched twice: it may be one part in so many of the dataset.
_HASTE = 32
# Ranges in the ring that lie closer to one another are fetched by one request.
_NEAR_BYTES = 32 << 10


@dataclass(frozen=True)
class Where:
    """Where the engine finds samples."""

    shard: NDArray[np.uint32]  # (n,) number of the file: a shard, or behind the last one the ring
    shift: NDArray[np.int64]  # (n,) bytes by which the sample lies further behind there than in its shard


@dataclass(eq=False)
class Ticket:
    """Samples that somebody waits for. Dropping it, or Reader.end, gives them up."""

    samples: NDArray[np.int64]
    go: Callable[[Where | Exception], None]  # called in any thread, once all are there; or with the error
    generation: int  # of the plan that was at hand when it was made
    left: set[Key] = field(default_factory=set)  # what has not arrived
    pieces: set[RingPiece] = field(default_factory=set)  # of the ring: where its samples are, or will be
    ended: bool = False  # nobody waits any more
    counted: bool = False  # its samples are in the figures


class Wants:
    """What is to be fetched for some samples, into the caches or the ring. Safe in threads."""

    def __init__(self, extents: Extents, caches: Caches, ring: Ring) -> None:
        self.extents, self.caches = extents, caches
        self.lock = threading.RLock()  # held by who takes several steps
        self.ring_parts = RingParts(ring, self.lock)
        self.impatient: set[int] = set()  # blocks that another process takes too long for: they are fetched past it
        self.generation = 0  # of the plan
        self.cache_hit_bytes = 0  # of samples that were there already
        # Only those who wait keep a ticket, and with it the engine: a loader that is dropped ends at once.
        self._tickets: weakref.WeakSet[Ticket] = weakref.WeakSet()
        self.urgent: deque[ShardPart] = deque()
        self.queue: deque[ShardPart] = deque()
        self._coming: set[int] = set()  # blocks that are queued, under way or awaited
        self._hasty = 0  # processes that begin a plan, while its first batch is asked for

    def restart(self, sharers: int) -> None:
        """Drops what was asked for ahead and nobody waits for: another plan follows, which `sharers` processes begin.
        Its first samples are fetched alone, without their blocks, unless they are much of the datasets.
        """
        with self.lock:
            self._hasty = max(sharers, 1)
            self.generation += 1
            wanted = {key for ticket in self._waiting() for key in ticket.left}
            queued, self.queue = self.queue, deque()
            for part in queued:
                if part.keys & wanted:
                    self.queue.append(part)
                elif part.blocks is not None:
                    self._coming.difference_update(part.blocks)
            self.ring_parts.next_plan(self._pinned())

    def ahead(self, samples: NDArray[np.int64]) -> None:
        with self.lock:
            self._hasty = 0
            self.queue.extend(self._parts(samples, None))

    def add(self, ticket: Ticket) -> Where | None:
        """Where a ticket's samples are, or None, and what is missing is fetched before all else."""
        with self.lock:
            self._tickets.add(ticket)
            exact = False
            if self._hasty:
                _, start, stop = self.extents.of(ticket.samples)
                exact = int((stop - start).sum()) * self._hasty * _HASTE <= int(self.caches.blocks.sizes.sum())
            return self._need(ticket, exact=exact)

    def end(self, ticket: Ticket, *, used: bool) -> None:
        """Gives a ticket back; `used`: the plan's batches do not need its samples any more."""
        with self.lock:
            if ticket.ended:
                return
            ticket.ended = True
            pieces, ticket.pieces = ticket.pieces, set()
            if used:
                done = ticket.samples if ticket.generation == self.generation else ticket.samples[:0]
                pieces.update(self.ring_parts.use(done))
            if pieces:
                self.ring_parts.give_back(pieces, self._pinned())

    def again(self, samples: NDArray[np.int64]) -> None:
        """Forgets what is here of samples whose bytes are wrong, so that they are fetched anew."""
        with self.lock:
            found = map(self.ring_parts.of, samples.tolist())
            # One that is coming is new, and others may wait for it.
            wrong = [piece for piece in found if piece is not None and piece.place is not None]
            self.ring_parts.forget(wrong)
            self.ring_parts.give_back(wrong, self._pinned())
            first, last = self.caches.blocks.touched(*self.extents.of(samples))
            self.caches.forget(np.unique(np.concatenate([first, last])))

    def end_all(self) -> None:
        with self.lock:
            self.queue.clear()
            self.urgent.clear()
            for ticket in self._waiting():
                ticket.ended = True

    def __len__(self) -> int:
        return len(self.queue) + len(self.urgent)

    def arrived(self, keys: Iterable[Key], problem: Exception | None = None) -> list[tuple[Ticket, Where | Exception]]:
        """What has come, or does not come, and why; returns who has to be told what."""
        told: list[tuple[Ticket, Where | Exception]] = []
        with self.lock:
            waiting = self._waiting()
            for key in keys:
                if isinstance(key, int):
                    self._coming.discard(key)
                elif problem is not None:
                    self.ring_parts.forget(key.pieces)
                for ticket in waiting:
                    if key not in ticket.left or ticket.ended:
                        continue
                    ticket.left.discard(key)
                    outcome: Where | Exception | None = problem
                    if problem is None and not ticket.left:
                        try:
                            outcome = self._need(ticket, exact=False)
                        except DatasetError as failed:  # of the index
                            outcome = failed
                    if outcome is not None:
                        ticket.ended |= problem is not None
                        told.append((ticket, outcome))
        return told

    def _waiting(self) -> list[Ticket]:
        return [ticket for ticket in self._tickets if not ticket.ended]

    def _pinned(self) -> set[RingPiece]:
        return {piece for ticket in self._waiting() for piece in ticket.pieces}

    def _need(self, ticket: Ticket, *, exact: bool) -> Where | None:
        parts = self._parts(ticket.samples, ticket, exact=exact)
        for part in parts:
            part.first = exact
        self.urgent.extend(parts)
        if not ticket.left:
            return self._where(ticket)
        mine = {part for part in self.queue if part.keys & ticket.left}
        if mine:  # before all others
            self.urgent.extend(part for part in self.queue if part in mine)
            self.queue = deque(part for part in self.queue if part not in mine)
        return None

    def _where(self, ticket: Ticket) -> Where:
        shard = self.extents.of(ticket.samples)[0].astype(np.uint32)
        shift = np.zeros(len(shard), dtype=np.int64)
        for row, sample in enumerate(ticket.samples.tolist() if ticket.pieces else ()):
            piece = self.ring_parts.of(sample)
            if piece is not None:
                assert piece.place is not None
                shard[row], shift[row] = len(self.caches.blocks.sizes), piece.place - piece.start
        return Where(shard, shift)

    def _parts(self, samples: NDArray[np.int64], ticket: Ticket | None, *, exact: bool = False) -> list[ShardPart]:
        """What has to be fetched for samples and is not yet; notes where each will be. No ticket: the plan needs them
        later. `exact`: only these samples, not the blocks that they lie in.
        """
        blocks = self.caches.blocks
        shard, start, stop = self.extents.of(samples)
        first, last = blocks.touched(shard, start, stop)
        if not exact:
            wanted = _united(first, last)
            for cache in self.caches.remote:
                cache.allot(wanted)
        least = self.caches.least_state(first, last)
        in_cache = WRITTEN if exact or self.caches.given_up else ALLOTTED
        in_ring = [self.ring_parts.of(sample) is not None for sample in samples.tolist()]  # or on its way there
        kept = (least >= in_cache) & ~np.array(in_ring, dtype=np.bool_)
        if self.impatient:
            ranges = zip(first.tolist(), last.tolist(), strict=True)
            kept &= np.array([self.impatient.isdisjoint(range(a, b + 1)) for a, b in ranges], dtype=np.bool_)
        if ticket is None or (self.generation == 0 and not ticket.counted):
            self.cache_hit_bytes += int((stop - start)[kept & (least >= WRITTEN) & self.caches.is_remote[shard]].sum())
        missing = _united(first[kept], last[kept])
        missing = missing[self.caches.states(missing) < WRITTEN]
        if ticket is not None:
            ticket.counted = True
            ticket.left.update(missing.tolist())
        runs = blocks.runs([b for b in missing.tolist() if b not in self._coming], REQUEST_BYTES)
        self._coming.update(missing.tolist())
        others = np.stack([samples, shard, start, stop], axis=1)[~kept]
        return [ShardPart(*blocks.place(run), blocks=run) for run in runs] + self._ringed_parts(ticket, others.tolist())

    def _ringed_parts(self, ticket: Ticket | None, rows: list[list[int]]) -> list[ShardPart]:
        """Parts of samples that the cache does not keep: number, shard, first byte and the one after the last."""
        parts: list[ShardPart] = []
        for sample, shard, start, stop in rows:
            piece = self.ring_parts.of(sample)
            if piece is None:
                near = parts[-1] if parts else None
                fits = near is not None and near.shard == shard and 0 <= start - near.stop <= _NEAR_BYTES
                if near is None or not fits or stop - near.start > REQUEST_BYTES:
                    near = ShardPart(shard, start, stop)
                    parts.append(near)
                piece = self.ring_parts.put(sample, near, start, stop)
            if ticket is None:
                piece.planned.add(sample)
            else:
                ticket.pieces.add(piece)
                if piece.place is None:
                    ticket.left.add(piece.part)
        return parts


def _united(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """All numbers from first to last of each row, each once, in the order of the rows."""
    every = members(np.stack([first, last + 1], axis=1))
    return every[np.sort(np.unique(every, return_index=True)[1])]
