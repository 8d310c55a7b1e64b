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
from fastpipe.remote.cache import ALLOTTED, WRITTEN
from fastpipe.remote.caches import Caches
from fastpipe.remote.extents import Extents
from fastpipe.remote.objects import REQUEST_BYTES
from fastpipe.remote.parts import Key, Part, Piece, RingParts
from fastpipe.remote.ring import Ring

# A first batch whose samples are fetched alone is fetched twice: it may be one part in so many of the dataset.
_HASTE = 32
# Ranges in the ring that lie closer to one another are fetched by one request.
_NEAR_BYTES = 32 << 10


@dataclass(frozen=True)
class Where:
    """Where the engine finds samples.

    Attributes:
        shard: (n,) uint32 number of the file: a shard, or behind the last one the ring.
        shift: (n,) int64 bytes by which all that is the sample's lies further behind there than in its shard; it may be
            negative.
    """

    shard: NDArray[np.uint32]
    shift: NDArray[np.int64]


@dataclass(eq=False)
class Ticket:
    """Samples that somebody waits for. Dropping it, or Reader.end, gives them up.

    Attributes:
        samples: their numbers.
        go: called with Where, in any thread, once they are all there; or with the error.
        generation: of the plan that was at hand when it was made.
        left: what has not arrived.
        pieces: of the ring: where its samples are, or will be.
        ended: nobody waits any more.
        counted: its samples are in the figures.
    """

    samples: NDArray[np.int64]
    go: Callable[[Where | Exception], None]
    generation: int
    left: set[Key] = field(default_factory=set)
    pieces: set[Piece] = field(default_factory=set)
    ended: bool = False
    counted: bool = False


class Wants:
    """What is to be fetched of some datasets. All methods may be called by several threads.

    Args:
        extents: where their samples lie.
        caches: of the datasets.
        ring: for what the cache does not keep.

    Attributes:
        lock: guards all this; to be held by who takes several steps.
        ring_parts: what is in the ring.
        impatient: blocks that another process takes too long for: their samples are fetched past it.
        generation: of the plan.
        cache_hit_bytes: of samples that were there already.
    """

    def __init__(self, extents: Extents, caches: Caches, ring: Ring) -> None:
        self._extents, self._caches = extents, caches
        self.lock = threading.RLock()
        self.ring_parts = RingParts(ring, self.lock)
        self.impatient: set[int] = set()
        self.generation = 0
        self.cache_hit_bytes = 0
        # Only those who wait keep a ticket, and with it the engine: a loader that is dropped ends at once.
        self._tickets: weakref.WeakSet[Ticket] = weakref.WeakSet()
        self._urgent: deque[Part] = deque()
        self._queue: deque[Part] = deque()
        self._coming: set[int] = set()  # blocks that are queued, under way or awaited
        self._hasty = 0  # processes that begin a plan, while its first batch is asked for

    # ---- what is wanted

    def restart(self, sharers: int) -> None:
        """Drops what was asked for ahead and nobody waits for: another plan follows. Its first samples are fetched
        alone, so that its first batch need not wait for whole blocks, unless that is much of the datasets.

        Args:
            sharers: processes that do the same.
        """
        with self.lock:
            self._hasty = max(sharers, 1)
            self.generation += 1
            wanted = {key for ticket in self._waiting() for key in ticket.left}
            queued, self._queue = self._queue, deque()
            for part in queued:
                if part.keys & wanted:
                    self._queue.append(part)
                elif part.blocks is not None:
                    self._coming.difference_update(part.blocks)
            self.ring_parts.next_plan(self._pinned())

    def ahead(self, samples: NDArray[np.int64]) -> None:
        """Queues what has to be fetched for batches to come."""
        with self.lock:
            self._hasty = 0
            self._queue.extend(self._parts(samples, None))

    def add(self, ticket: Ticket) -> Where | None:
        """Where a ticket's samples are, or None, and what is missing is fetched before all else."""
        with self.lock:
            self._tickets.add(ticket)
            exact = False
            if self._hasty:
                _, start, stop = self._extents.of(ticket.samples)
                exact = int((stop - start).sum()) * self._hasty * _HASTE <= int(self._caches.blocks.sizes.sum())
            return self._need(ticket, exact=exact)

    def end(self, ticket: Ticket, *, used: bool) -> None:
        """Gives a ticket back.

        Args:
            used: its samples have been used, and the plan's batches do not need them any more.
        """
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
            wrong = [piece for piece in found if piece is not None and piece.part.there]
            self.ring_parts.forget(wrong)
            self.ring_parts.give_back(wrong, self._pinned())
            first, last = self._caches.blocks.touched(*self._extents.of(samples))
            self._caches.forget(np.unique(np.concatenate([first, last])))

    def end_all(self) -> None:
        """Nothing is wanted any more."""
        with self.lock:
            self._queue.clear()
            self._urgent.clear()
            for ticket in self._waiting():
                ticket.ended = True

    # ---- what is to be fetched

    def __len__(self) -> int:
        """Parts that wait to be fetched."""
        return len(self._queue) + len(self._urgent)

    def next(self, *, urgent: bool) -> Part | None:
        """The part to be fetched next.

        Args:
            urgent: only one that somebody waits for.
        """
        if self._urgent:
            return self._urgent.popleft()
        return self._queue.popleft() if self._queue and not urgent else None

    def hurry(self, parts: Iterable[Part]) -> None:
        """Parts that are to be fetched before all others."""
        self._urgent.extend(parts)

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
                    outcome = problem if problem is not None else self._outcome(ticket)
                    if outcome is not None:
                        ticket.ended |= problem is not None
                        told.append((ticket, outcome))
        return told

    # ---- deciding

    def _waiting(self) -> list[Ticket]:
        """The tickets of those who wait for samples, or read them."""
        return [ticket for ticket in self._tickets if not ticket.ended]

    def _pinned(self) -> set[Piece]:
        return {piece for ticket in self._waiting() for piece in ticket.pieces}

    def _outcome(self, ticket: Ticket) -> Where | Exception | None:
        if ticket.left:
            return None
        try:
            return self._need(ticket, exact=False)
        except DatasetError as failed:  # of the index
            return failed

    def _need(self, ticket: Ticket, *, exact: bool) -> Where | None:
        parts = self._parts(ticket.samples, ticket, exact=exact)
        for part in parts:
            part.first = exact
        self._urgent.extend(parts)
        if not ticket.left:
            return self._where(ticket)
        mine = {part for part in self._queue if part.keys & ticket.left}
        if mine:  # before all others
            self._urgent.extend(part for part in self._queue if part in mine)
            self._queue = deque(part for part in self._queue if part not in mine)
        return None

    def _where(self, ticket: Ticket) -> Where:
        shard = self._extents.of(ticket.samples)[0].astype(np.uint32)
        shift = np.zeros(len(shard), dtype=np.int64)
        for row, sample in enumerate(ticket.samples.tolist() if ticket.pieces else ()):
            piece = self.ring_parts.of(sample)
            if piece is not None:
                assert piece.place is not None
                shard[row], shift[row] = len(self._caches.blocks.sizes), piece.place - piece.start
        return Where(shard, shift)

    def _parts(self, samples: NDArray[np.int64], ticket: Ticket | None, *, exact: bool = False) -> list[Part]:
        """What has to be fetched for samples and is not yet; notes where each will be.

        Args:
            ticket: who waits for them; None: the plan needs them later.
            exact: only these samples, not the blocks that they lie in.
        """
        blocks = self._caches.blocks
        shard, start, stop = self._extents.of(samples)
        first, last = blocks.touched(shard, start, stop)
        if not exact:
            self._caches.allot(_united(first, last))
        least = self._caches.least_state(first, last)
        in_cache = WRITTEN if exact or self._caches.given_up else ALLOTTED
        kept = (least >= in_cache) & ~self.ring_parts.have(samples)
        if self.impatient:
            ranges = zip(first.tolist(), last.tolist(), strict=True)
            kept &= np.array([self.impatient.isdisjoint(range(a, b + 1)) for a, b in ranges], dtype=np.bool_)
        if ticket is None or (self.generation == 0 and not ticket.counted):
            self.cache_hit_bytes += int((stop - start)[kept & (least >= WRITTEN) & self._caches.is_remote[shard]].sum())
        missing = _united(first[kept], last[kept])
        missing = missing[self._caches.states(missing) < WRITTEN]
        if ticket is not None:
            ticket.counted = True
            ticket.left.update(missing.tolist())
        runs = blocks.runs([b for b in missing.tolist() if b not in self._coming], REQUEST_BYTES)
        self._coming.update(missing.tolist())
        others = np.stack([samples, shard, start, stop], axis=1)[~kept]
        return [Part(*blocks.place(run), blocks=run) for run in runs] + self._ringed_parts(ticket, others.tolist())

    def _ringed_parts(self, ticket: Ticket | None, rows: list[list[int]]) -> list[Part]:
        """The same for samples that the cache does not keep: number, shard, first byte and the one after the last."""
        parts: list[Part] = []
        for sample, shard, start, stop in rows:
            piece = self.ring_parts.of(sample)
            if piece is None:
                near = parts[-1] if parts else None
                fits = near is not None and near.shard == shard and 0 <= start - near.stop <= _NEAR_BYTES
                if near is None or not fits or stop - near.start > REQUEST_BYTES:
                    near = Part(shard, start, stop)
                    parts.append(near)
                piece = self.ring_parts.put(sample, near, start, stop)
            if ticket is None:
                piece.planned.add(sample)
            else:
                ticket.pieces.add(piece)
                if not piece.part.there:
                    ticket.left.add(piece.part)
        return parts


def _united(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """All numbers from first to last of each row, each once, in the order of the rows."""
    counts = last - first + 1
    begins = np.cumsum(counts) - counts
    every = np.repeat(first - begins, counts) + np.arange(counts.sum())
    found: NDArray[np.int64] = every[np.sort(np.unique(every, return_index=True)[1])]
    return found
