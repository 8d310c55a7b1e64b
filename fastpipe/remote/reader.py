"""Samples that are needed, soon or now -> their bytes, in the cache's files or in the ring, and where in which.

A sample's bytes go from its JPEG's first byte to the next sample's: all that it has in the shard but its label, which
the index has, too. Those that lie in blocks that the cache keeps are fetched with the whole blocks. The others are
fetched by themselves, neighbours together, into the ring, and stay there until the batch that needs them is made.

Three kinds of threads meet here: those that want samples; the thread of requests, which alone begins fetches; and a few
that check and write what has arrived. One lock guards what they share.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.index import Index
from fastpipe.remote.cache import ABSENT, ALLOTTED, BLOCK_BYTES, WRITTEN, Cache
from fastpipe.remote.flow import REQUEST_BYTES, Flow
from fastpipe.remote.retry import Ranges
from fastpipe.remote.ring import LANES, Ring
from fastpipe.remote.store import Answer, Requests

_LOG = logging.getLogger("fastpipe")

_LOOK_S = 0.01  # how often blocks are looked at that other processes fetch
_CLAIM_S = 0.2  # how often it is seen whether such a process is gone
_SYNC_S = 5.0
_BUSY_S = 2.0
_WRITERS = 3
_KNOWN_SHARDS = 16
# A first batch whose samples are fetched alone is fetched twice: it may be one part in so many of the dataset.
_HASTE = 32
# What the ring has is of use to so many plans after the one that it was fetched for, where each begins while the one
# before it ends. Then its lane is needed for another plan.
_KEPT_GENERATIONS = 2
# Ranges in the ring that lie closer to one another are fetched by one request.
_NEAR_BYTES = 32 << 10


@dataclass(eq=False)
class Part:
    """A range of a shard that is fetched at once.

    Attributes:
        shard, start, stop: which bytes.
        blocks: that it consists of, where the cache keeps them; None: it goes into the ring.
        samples: of the ring: those in it that are still to be used, by the plan.
        there: of the ring: its bytes are.
        dead: of the ring: nobody wants it any more.
        members: of the ring: all samples that were to be found in it.
        first: it is of a first batch.
        generation: of the plan that it was first fetched for; its lane in the ring follows from it.
    """

    shard: int
    start: int
    stop: int
    blocks: range | None = None
    samples: set[int] = field(default_factory=set)
    there: bool = False
    dead: bool = False
    members: list[int] = field(default_factory=list)
    first: bool = False
    generation: int = 0

    @property
    def lane(self) -> int:
        """Of the ring."""
        return self.generation % LANES


_Key = int | Part  # a block, or a part in the ring


@dataclass(frozen=True)
class Where:
    """Where the engine finds samples.

    Attributes:
        shard: (n,) uint32 number of the file: a shard, or behind the last one the ring.
        shift: (n,) int64 bytes by which all that is the sample's lies further behind there than in its shard.
    """

    shard: NDArray[np.uint32]
    shift: NDArray[np.int64]


class Ticket:
    """Samples that somebody waits for. Dropping it, or `end`, gives them up.

    Args:
        samples: their numbers.
        go: called with Where, in any thread, once they are all there; or with the error.
    """

    def __init__(self, samples: NDArray[np.int64], go: Callable[[Where | Exception], None]) -> None:
        self.samples = samples
        self.go = go
        self.left: set[_Key] = set()
        self.parts: set[Part] = set()
        self.ended = False
        self.counted = False
        self.generation = 0


@dataclass
class Figures:
    """What a reader has done.

    Attributes:
        fetched_bytes: that came by the network.
        cache_hit_bytes: of samples that were there already, or that another process fetched.
        fetch_wait_s: seconds in which a batch's samples were waited for; see Reader.waited.
    """

    fetched_bytes: int = 0
    cache_hit_bytes: int = 0
    fetch_wait_s: float = 0.0


class Reader:
    """Brings samples of a remote dataset to this machine.

    Args:
        index: of the dataset.
        cache: of its blocks.
        ranges: fetches.
        requests: the thread of requests.
        patience_s: how long another process may take for a block.

    Attributes:
        ring: what is not kept.
        figures: what has been done.
    """

    def __init__(self, index: Index, cache: Cache, ranges: Ranges, requests: Requests, *, patience_s: float) -> None:
        self._index, self._cache, self._ranges, self._requests = index, cache, ranges, requests
        self._patience_s = patience_s
        self._process = os.getpid()
        self.ring = Ring(cache.sizes)
        self.figures = Figures()
        self._names = [shard.name for shard in index.shards]
        self._flow = Flow()
        self._lock = threading.RLock()
        self._urgent: deque[Part] = deque()
        self._queue: deque[Part] = deque()
        self._under_way: dict[Part, float] = {}  # parts that are being fetched, and since when
        self._first_now: set[Part] = set()  # those of a first batch, beside which nothing else is fetched
        self._coming: set[int] = set()  # blocks that are queued, under way or awaited
        self._awaited: dict[int, float] = {}  # blocks that another process fetches -> since when
        self._impatient: set[int] = set()  # those that it took too long for
        self._in_ring: dict[int, Part] = {}  # sample -> the part that has it
        # Samples that have been used, and their bytes; given back when the next ones have been.
        self._retired: list[tuple[Part, int, int, int]] = []
        self._waiting: dict[_Key, list[Ticket]] = {}
        self._tickets: weakref.WeakSet[Ticket] = weakref.WeakSet()
        self._generation = 0
        self._hasty = 0  # processes that begin a plan, while its first batch is asked for
        self._known: OrderedDict[int, NDArray[np.void]] = OrderedDict()  # shard -> its records
        self._tasks: set[asyncio.Task[None]] = set()
        self._damaged: set[int] = set()  # samples that are wrong at their source, too
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="fastpipe-write")
        self._owner: weakref.ref[Any] | None = None
        self._closed = False
        self._told_full = False

    # ---- what others call

    @property
    def rings(self) -> list[Ring]:
        """Files that the engine has to know behind the shards."""
        return [self.ring]

    def begin(self, owner: object) -> None:
        """Begins its work, which ends with the owner's life."""
        self._owner = weakref.ref(owner)
        self._requests.begin(self._look_around())

    def restart(self, sharers: int) -> None:
        """Drops what was asked for ahead and nobody waits for: another plan follows. Its first samples are fetched
        alone, so that its first batch need not wait for whole blocks, unless that is much of the dataset.

        Args:
            sharers: processes that do the same.
        """
        with self._lock:
            self._hasty = max(sharers, 1)
            self._restart()

    def ahead(self, samples: NDArray[np.int64]) -> None:
        """Has samples brought, in their order, for batches to come.

        Args:
            samples: neighbours in a shard lie beside each other.
        """
        with self._lock:
            self._hasty = 0
            parts = self._parts(samples, planned=True)
            self._queue.extend(parts)
        self._wake()

    def ticket(self, samples: NDArray[np.int64], go: Callable[[Where | Exception], None]) -> Ticket:
        """Asks for samples that are needed now.

        Args:
            samples: their numbers.
            go: called with Where they are, at once or later, in any thread; or with what went wrong.
        """
        ticket = Ticket(samples, go)
        with self._lock:
            ticket.generation = self._generation
            self._tickets.add(ticket)
            where = self._need(ticket, exact=self._is_hasty(samples))
        if where is not None:
            go(where)
        else:
            self._wake()
        return ticket

    def end(self, ticket: Ticket, *, used: bool) -> None:
        """Gives a ticket back.

        Args:
            used: its samples have been used, and the plan's batches do not need them any more.
        """
        with self._lock:
            if ticket.ended:
                return
            ticket.ended = True
            if used:
                retired, self._retired = self._retired, []
                pinned = self._pinned()
                for part, sample, start, stop in retired:
                    self._retire(part, sample, start, stop, pinned)
                if ticket.generation == self._generation and ticket.parts:
                    _, starts, stops = self._extents(ticket.samples)
                    rows = zip(ticket.samples.tolist(), starts.tolist(), stops.tolist(), strict=True)
                    self._retired = [(self._in_ring[row[0]], *row) for row in rows if row[0] in self._in_ring]
            parts, ticket.parts = ticket.parts, set()
            if parts:
                pinned = self._pinned()
                for part in parts:
                    self._drop_if_unused(part, pinned)

    def again(self, samples: NDArray[np.int64]) -> None:
        """Forgets what is here of samples whose bytes are wrong, so that they are fetched anew."""
        with self._lock:
            for sample in samples.tolist():
                part = self._in_ring.get(sample)
                if part is not None and part.there:  # one that is coming is new, and others may wait for it
                    self._forget_part(part)
            first, last = self._blocks_of(*self._extents(samples))
            blocks = np.unique(np.concatenate([first, last]))
            self._cache.forget(blocks)

    def brings(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples it fetches, so that they can be fetched again: all."""
        return np.ones(len(samples), dtype=np.bool_)

    def damaged(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples have been found to be wrong at their source."""
        return np.array([sample in self._damaged for sample in samples.tolist()], dtype=np.bool_)

    def waited(self, seconds: float) -> None:
        """Counts time that a batch waited for its samples."""
        self.figures.fetch_wait_s += seconds

    def oldest(self) -> tuple[int, int, float] | None:
        """Shard, first byte and seconds of the request that has been under way for longest."""
        with self._lock:
            if not self._under_way:
                return None
            part = min(self._under_way, key=self._under_way.__getitem__)
            return part.shard, part.start, time.monotonic() - self._under_way[part]

    def counters(self) -> dict[str, Any]:
        """By the names of Stats."""
        trouble = self._ranges.trouble
        return {
            "fetched_bytes": self.figures.fetched_bytes,
            "cache_hit_bytes": self.figures.cache_hit_bytes,
            "requests": trouble.requests,
            "retries": trouble.retries,
            "fetch_wait_s": self.figures.fetch_wait_s,
        }

    def levels(self) -> dict[str, int]:
        """By the names of Stats."""
        with self._lock:
            return {
                "requests_under_way": len(self._under_way),
                "ranges_waiting": len(self._queue) + len(self._urgent),
                "ring_bytes": 0 if self._closed else self.ring.memory_bytes,
            }

    @property
    def last_trouble(self) -> str:
        """What a request failed with last; "" if none did."""
        return self._ranges.trouble.last

    def origin(self, shard: int, offset: int) -> tuple[int, int]:
        """Shard and byte of a place that Where named."""
        if shard < len(self._names):
            return shard, offset
        return self.ring.origin(offset)

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Bytes of a shard that is not decoded: notes, say. From the cache or the ring if they are there."""
        with self._lock:
            first = int(self._cache.first_block[shard])
            states = self._cache.states[first + start // BLOCK_BYTES : first + (stop - 1) // BLOCK_BYTES + 1]
            if not self._closed and states.min() >= WRITTEN:
                with open(self._cache.folder / self._names[shard], "rb") as file:
                    return os.pread(file.fileno(), stop - start, start)
            row = int(np.searchsorted(self._records(shard)["offset"], start, side="right")) - 1
            part = self._in_ring.get(int(self._index.shard_starts[shard]) + row)
            if part is not None and part.there and part.start <= start and stop <= part.stop:
                return self.ring.read(part.lane, shard, start, stop - start)
        size_bytes = int(self._cache.sizes[shard])
        answer = self._requests.result(self._ranges.fetch(self._names[shard], start, stop, size_bytes=size_bytes))
        self.figures.fetched_bytes += stop - start
        return bytes(answer.data)

    def close(self) -> None:
        """Ends its work; safe to call twice, and in a forked child."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.clear()
            self._urgent.clear()
            tickets = list(self._tickets)
        for ticket in tickets:
            ticket.ended = True

    # ---- deciding (with the lock)

    def _is_hasty(self, samples: NDArray[np.int64]) -> bool:
        if not self._hasty:
            return False
        _, start, stop = self._extents(samples)
        return int((stop - start).sum()) * self._hasty * _HASTE <= int(self._cache.sizes.sum())

    def _extents(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Shard, first byte and the one after the last of each sample; see the top."""
        index = self._index
        following = np.minimum(samples + 1, len(index) - 1)
        records, behind = index.records_of(np.stack([samples, following]))
        shard = np.minimum(records["shard"], len(self._names) - 1).astype(np.int64)
        size = self._cache.sizes[shard]
        last = (samples == len(index) - 1) | (behind["shard"] != records["shard"])
        start = np.minimum(records["offset"].astype(np.int64), size - 1)
        stop = np.where(last, size, np.minimum(behind["offset"].astype(np.int64), size))
        return shard, start, np.maximum(stop, start + 1)

    def _blocks_of(
        self, shard: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) the first and the last block of each range."""
        base = self._cache.first_block[shard]
        return base + start // BLOCK_BYTES, base + (stop - 1) // BLOCK_BYTES

    def _least_state(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n,) the least state of the blocks from first to last."""
        states = self._cache.states
        least = np.minimum(states[first], states[last])
        for between in range(1, int((last - first).max(initial=0))):
            least = np.minimum(least, states[np.minimum(first + between, last)])
        return least

    def _parts(
        self, samples: NDArray[np.int64], *, planned: bool, exact: bool = False, ticket: Ticket | None = None
    ) -> list[Part]:
        """What has to be fetched for samples and is not yet; notes where each will be."""
        shard, start, stop = self._extents(samples)
        first, last = self._blocks_of(shard, start, stop)
        blocks = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)] or [first])
        blocks = blocks[np.sort(np.unique(blocks, return_index=True)[1])]
        in_ring = np.array([sample in self._in_ring for sample in samples.tolist()], dtype=np.bool_)
        if not exact:
            self._cache.allot(blocks)
        least = self._least_state(first, last)
        kept = (least >= (WRITTEN if exact or self._cache.given_up else ALLOTTED)) & ~in_ring
        if self._impatient:
            kept &= ~np.array(
                [bool(self._impatient.intersection(range(a, b + 1))) for a, b in zip(first, last, strict=True)]
            )
        if planned or (self._generation == 0 and ticket is not None and not ticket.counted):
            self.figures.cache_hit_bytes += int((stop - start)[kept & (least >= WRITTEN)].sum())
        if ticket is not None:
            ticket.counted = True
        parts: list[Part] = []
        of_kept = np.concatenate(
            [np.arange(a, b + 1) for a, b in zip(first[kept], last[kept], strict=True)] or [first[:0]]
        )
        wanted = dict.fromkeys(of_kept.tolist())
        missing = [b for b in wanted if self._cache.states[b] < WRITTEN]
        if ticket is not None:
            ticket.left.update(missing)
        for run in _runs([b for b in missing if b not in self._coming], self._cache.first_block):
            parts.append(self._kept_part(run))
        ringed = np.flatnonzero(~kept)
        for row in ringed.tolist():
            sample, part = int(samples[row]), self._in_ring.get(int(samples[row]))
            if part is None:
                near = parts[-1] if parts and parts[-1].blocks is None else None
                begin, end = int(start[row]), int(stop[row])
                fits = near is not None and near.shard == shard[row] and 0 <= begin - near.stop <= _NEAR_BYTES
                if near is not None and fits and end - near.start <= REQUEST_BYTES:
                    near.stop = end
                    part = near
                else:
                    part = Part(int(shard[row]), begin, end, generation=self._generation)
                    parts.append(part)
                self._in_ring[sample] = part
                part.members.append(sample)
            if planned:
                part.samples.add(sample)
            if ticket is not None:
                ticket.parts.add(part)
                if not part.there:
                    ticket.left.add(part)
        return parts

    def _kept_part(self, run: range) -> Part:
        shard = int(self._cache.shards_of(np.array([run.start]))[0])
        begin = (run.start - int(self._cache.first_block[shard])) * BLOCK_BYTES
        stop = min(begin + len(run) * BLOCK_BYTES, int(self._cache.sizes[shard]))
        self._coming.update(run)
        return Part(shard, begin, stop, blocks=run)

    def _need(self, ticket: Ticket, *, exact: bool) -> Where | None:
        """Where a ticket's samples are, or None, and what is missing is asked for."""
        parts = self._parts(ticket.samples, planned=False, exact=exact, ticket=ticket)
        for part in parts:
            part.first = exact
        self._urgent.extend(parts)
        self._hurry(ticket)
        if ticket.left:
            for key in ticket.left:
                self._waiting.setdefault(key, []).append(ticket)
            return None
        shard, _, _ = self._extents(ticket.samples)
        ringed = np.array(
            [self._in_ring.get(sample) in ticket.parts for sample in ticket.samples.tolist()], dtype=np.bool_
        )
        lanes = np.array([self._in_ring[sample].lane for sample in ticket.samples[ringed].tolist()], dtype=np.int64)
        shift = np.zeros(len(shard), dtype=np.int64)
        shift[ringed] = self.ring.shift(lanes, shard[ringed])
        return Where(np.where(ringed, len(self._names), shard).astype(np.uint32), shift)

    def _hurry(self, ticket: Ticket) -> None:
        """Puts queued parts that a ticket waits for before all others."""
        if not ticket.left or not self._queue:
            return
        mine = [part for part in self._queue if self._keys(part) & ticket.left]
        if mine:
            chosen = set(mine)
            self._queue = deque(part for part in self._queue if part not in chosen)
            self._urgent.extend(mine)

    def _keys(self, part: Part) -> set[_Key]:
        return {part} if part.blocks is None else set(part.blocks)

    def _restart(self) -> None:
        """Forgets the plan: what is queued, and what the ring has, unless somebody waits for it or uses it."""
        self._generation += 1
        self._retired.clear()
        waited: set[_Key] = set()
        for ticket in self._tickets:
            if not ticket.ended:
                waited |= ticket.left
        kept: list[Part] = []
        dropped: list[Part] = []
        for part in self._queue:
            (kept if self._keys(part) & waited else dropped).append(part)
        self._queue = deque(kept)
        for part in dropped:
            if part.blocks is not None:
                self._coming.difference_update(part.blocks)
        pinned = self._pinned()
        for part in set(self._in_ring.values()):
            part.samples.clear()
            if part.generation < self._generation - _KEPT_GENERATIONS:
                self._unmap(part)
            self._drop_if_unused(part, pinned)

    def _pinned(self) -> set[Part]:
        """The parts of the ring that somebody waits for or reads."""
        return {part for ticket in self._tickets if not ticket.ended for part in ticket.parts}

    def _retire(self, part: Part, sample: int, start: int, stop: int, pinned: set[Part]) -> None:
        if part.dead or sample not in part.samples:
            return
        part.samples.discard(sample)
        if part.samples and part not in pinned and self._in_ring.get(sample) is part:
            self.ring.thin(part.lane, part.shard, start, stop)
            del self._in_ring[sample]
            return
        self._drop_if_unused(part, pinned)

    def _drop_if_unused(self, part: Part, pinned: set[Part]) -> None:
        if not part.dead and not part.samples and part not in pinned:
            self._forget_part(part)

    def _forget_part(self, part: Part) -> None:
        part.dead = True
        self._unmap(part)
        if part.there and not self._closed:
            self.ring.drop(part.lane, part.shard, part.start, part.stop)

    def _unmap(self, part: Part) -> None:
        """Nobody finds samples in a part any more."""
        for sample in part.members:
            if self._in_ring.get(sample) is part:
                del self._in_ring[sample]

    # ---- fetching (in the thread of requests)

    def _wake(self) -> None:
        if not self._closed:
            self._requests.loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        with self._lock:
            while not self._closed and len(self._under_way) < self._flow.most:
                if self._urgent:
                    part = self._urgent.popleft()
                elif self._queue and not self._first_now:
                    part = self._queue.popleft()
                else:
                    return
                if part.dead:  # whoever waits for it asks again
                    self._arrived([part])
                    continue
                for piece in [part] if part.blocks is None else self._claimed(part.blocks):
                    self._under_way[piece] = time.monotonic()
                    if part.first:
                        self._first_now.add(piece)
                    task = self._requests.loop.create_task(self._bring(piece))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _claimed(self, blocks: Iterable[int]) -> list[Part]:
        """Parts of those blocks that nobody else fetches; the others are awaited."""
        mine, there = [], []
        for block in blocks:
            if self._cache.states[block] < WRITTEN and not self._cache.claim(block):
                self._awaited.setdefault(block, time.monotonic())
            elif self._cache.states[block] >= WRITTEN:  # by now
                self._cache.release(block, 1)
                there.append(block)
            else:
                mine.append(block)
        if there:
            self._arrived(there)
        return [self._kept_part(run) for run in _runs(mine, self._cache.first_block)]

    async def _bring(self, part: Part) -> None:
        loop = asyncio.get_running_loop()
        problem: Exception | None = None
        wrong: list[int] = []
        try:
            answer = await self._ranges.fetch(
                self._names[part.shard],
                part.start,
                part.stop,
                size_bytes=int(self._cache.sizes[part.shard]),
                check=lambda answer: self._check(part, answer, wrong),
            )
            self.figures.fetched_bytes += part.stop - part.start
            await loop.run_in_executor(self._writers, self._store, part, answer)
        except Exception as failed:
            problem = failed
        finally:
            with self._lock:
                self._under_way.pop(part, None)
                self._first_now.discard(part)
                self._damaged.update(wrong)
                if part.blocks is not None and not self._closed:
                    self._cache.release(part.blocks.start, len(part.blocks))
        self._arrived(self._keys(part), problem)
        busy = time.monotonic() - self._ranges.trouble.busy_at < _BUSY_S
        with self._lock:
            starved = not self._queue and not self._urgent
        self._flow.add(0 if problem else part.stop - part.start, starved=starved, busy=busy)
        self._pump()

    def _check(self, part: Part, answer: Answer, wrong: list[int]) -> str | None:
        """What is wrong with the content: samples that lie wholly in it have the hashes of their records."""
        records = self._records(part.shard)
        offsets = records["offset"].astype(np.int64)
        stops = offsets + records["size"]
        inside = np.flatnonzero((offsets >= part.start) & (stops <= part.stop))
        view = memoryview(answer.data)
        base = int(self._index.shard_starts[part.shard])
        wrong.clear()
        for row in inside.tolist():
            jpeg = view[int(offsets[row]) - part.start : int(stops[row]) - part.start]
            if xxhash.xxh3_64_intdigest(jpeg) != int(records["xxh3_64"][row]):
                wrong.append(base + row)
        if not wrong:
            return None
        return f"bytes of sample {wrong[0]} whose hash is not the recorded one"

    def _store(self, part: Part, answer: Answer) -> None:
        """Puts what has arrived into its file."""
        with self._lock:
            if self._closed:
                return
            if part.blocks is None:
                if not part.dead:
                    self.ring.write(part.lane, part.shard, part.start, answer.data)
                    part.there = True
                return
        try:
            self._cache.write(part.shard, part.start, answer.data)
        except OSError as problem:
            self._cache.give_up()
            if not self._told_full:
                self._told_full = True
                _LOG.warning(
                    "the cache in %s takes no more (%s): from here on, what it does not have is fetched in each epoch. "
                    "Make room on that disk, or pass another cache_dir=",
                    self._cache.root,
                    problem.strerror or problem,
                )

    def _arrived(self, keys: Iterable[_Key], problem: Exception | None = None) -> None:
        """Tells those who wait."""
        ready: list[tuple[Ticket, Where | Exception]] = []
        with self._lock:
            for key in keys:
                if isinstance(key, int):
                    self._coming.discard(key)
                    self._awaited.pop(key, None)
                elif problem is not None:
                    self._forget_part(key)
                for ticket in self._waiting.pop(key, ()):
                    if ticket.ended:
                        continue
                    ticket.left.discard(key)
                    if problem is not None:
                        ticket.ended = True
                        ready.append((ticket, problem))
                    elif not ticket.left:
                        try:
                            where = self._need(ticket, exact=False)
                        except DatasetError as failed:  # of the index
                            ready.append((ticket, failed))
                            continue
                        if where is not None:
                            ready.append((ticket, where))
        for ticket, outcome in ready:
            ticket.go(outcome)

    async def _look_around(self) -> None:
        """Looks after blocks that other processes fetch, and has the disk sync, as long as the owner lives."""
        loop = asyncio.get_running_loop()
        synced = claimed = time.monotonic()
        while not self._closed and self._owner is not None and self._owner() is not None:
            await asyncio.sleep(_LOOK_S if self._awaited else 0.1)
            now = time.monotonic()
            if now - synced > _SYNC_S:
                synced = now
                await loop.run_in_executor(self._writers, self._sync)
            if not self._awaited:
                continue
            with self._lock:
                blocks = np.array(list(self._awaited), dtype=np.int64)
                there = blocks[self._cache.states[blocks] >= WRITTEN].tolist()
                self.figures.cache_hit_bytes += int(self._cache.bytes_of(np.array(there, dtype=np.int64)).sum())
            if there:
                self._arrived(there)
            if now - claimed > _CLAIM_S:
                claimed = now
                with self._lock:
                    late = [b for b, since in self._awaited.items() if now - since > self._patience_s]
                    self._impatient.update(late)
                    waiting, fallen = list(self._awaited), dict(self._awaited)
                    self._awaited.clear()
                    for run in _runs(waiting, self._cache.first_block):
                        for piece in self._claimed(run):
                            self._urgent.append(piece)
                    for block, since in fallen.items():
                        if block in self._awaited:
                            self._awaited[block] = since
                if late:
                    self._arrived(late)
                self._pump()
        self._finish()

    def _sync(self) -> None:
        try:
            if not self._closed:
                self._cache.sync()
        except OSError as problem:
            _LOG.warning("the cache in %s: the disk does not write: %s", self._cache.root, problem.strerror)

    def _finish(self) -> None:
        with self._lock:
            self._closed = True
        for task in self._tasks:
            task.cancel()
        self._writers.shutdown(wait=True)
        self._cache.close()

    def _records(self, shard: int) -> NDArray[np.void]:
        with self._lock:
            found = self._known.pop(shard, None)
            if found is None:
                first = int(self._index.shard_starts[shard])
                found = self._index.records_of(np.arange(first, first + self._index.shards[shard].samples))
                if len(self._known) >= _KNOWN_SHARDS:
                    self._known.popitem(last=False)
            self._known[shard] = found
            return found


def _runs(blocks: list[int], first_block: NDArray[np.int64]) -> list[range]:
    """Blocks -> runs of neighbours of one shard, in their order, of at most REQUEST_BYTES."""
    runs: list[range] = []
    heads = set(first_block[np.searchsorted(first_block, blocks)].tolist()) if blocks else set()
    for block in blocks:
        joined = runs and runs[-1].stop == block and block not in heads
        if joined and len(runs[-1]) * BLOCK_BYTES < REQUEST_BYTES:
            runs[-1] = range(runs[-1].start, block + 1)
        else:
            runs.append(range(block, block + 1))
    return runs


assert ABSENT < ALLOTTED < WRITTEN
