"""Samples that are needed, soon or now -> their bytes, in the cache's files or in the ring, and where in which."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.remote.arrivals import Arrivals
from fastpipe.remote.block_states import WRITTEN
from fastpipe.remote.blocks import BLOCK_BYTES
from fastpipe.remote.cache import Cache
from fastpipe.remote.extents import Extents
from fastpipe.remote.fetcher import Delay, Fetcher
from fastpipe.remote.retry import Ranges
from fastpipe.remote.ring import Ring
from fastpipe.remote.ring_parts import RingParts
from fastpipe.remote.store import Requests
from fastpipe.remote.tickets import Ticket, Where
from fastpipe.remote.wants import Wants


class Reader:
    """Brings samples of a remote dataset to this machine. All methods may be called by several threads.

    Args:
        index: of the dataset.
        cache: of its blocks.
        ranges: fetches.
        requests: the thread of requests.

    Attributes:
        ring: what is not kept.
        wants: what is to be fetched, and who waits for it.
        arrivals: what writes it.
    """

    def __init__(self, index: Index, cache: Cache, ranges: Ranges, requests: Requests) -> None:
        self._cache, self._ranges, self._requests = cache, ranges, requests
        self._process = os.getpid()
        self._names = [shard.name for shard in index.shards]
        self.ring = Ring()
        self._extents = Extents(index, cache.blocks.sizes)
        self.wants = Wants(self._extents, cache, RingParts(self.ring))
        self.arrivals = Arrivals(self.wants, cache)
        self._fetcher = Fetcher(self._names, self._extents, self.wants, cache, self.arrivals, ranges, requests)
        self._fetch_wait_s = 0.0

    @property
    def rings(self) -> list[Ring]:
        """Files that the engine has to know behind the shards."""
        return [self.ring]

    def begin(self, owner: object) -> None:
        """Begins its work, which ends with the owner's life."""
        self._fetcher.begin(weakref.ref(owner))

    def restart(self, sharers: int) -> None:
        """Drops what was asked for ahead and nobody waits for: another plan follows. Its first samples are fetched
        alone, so that its first batch need not wait for whole blocks, unless that is much of the dataset.

        Args:
            sharers: processes that do the same.
        """
        self.wants.restart(sharers)

    def ahead(self, samples: NDArray[np.int64]) -> None:
        """Has samples brought, in their order, for batches to come.

        Args:
            samples: neighbours in a shard lie beside each other.
        """
        self.wants.ahead(samples)
        self._fetcher.wake()

    def ticket(self, samples: NDArray[np.int64], go: Callable[[Where | Exception], None]) -> Ticket:
        """Asks for samples that are needed now.

        Args:
            samples: their numbers.
            go: called with Where they are, at once or later, in any thread; or with what went wrong.
        """
        with self.wants.lock:
            ticket = Ticket(samples, go, self.wants.generation)
            where = self.wants.add(ticket)
        if where is not None:
            go(where)
        else:
            self._fetcher.wake()
        return ticket

    def end(self, ticket: Ticket, *, used: bool) -> None:
        """Gives a ticket back.

        Args:
            used: its samples have been used, and the plan's batches do not need them any more.
        """
        self.wants.end(ticket, used=used)

    def again(self, samples: NDArray[np.int64]) -> None:
        """Forgets what is here of samples whose bytes are wrong, so that they are fetched anew."""
        self.wants.again(samples)

    def brings(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples it fetches, so that they can be fetched again: all."""
        return np.ones(len(samples), dtype=np.bool_)

    def damaged(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples have been found to be wrong at their source."""
        return np.array([sample in self._fetcher.damaged for sample in samples.tolist()], dtype=np.bool_)

    def waited(self, seconds: float) -> None:
        """Counts time that a batch waited for its samples."""
        self._fetch_wait_s += seconds

    def delay(self) -> Delay | None:
        """What has been under way for longest."""
        return self._fetcher.delay()

    def counters(self) -> dict[str, Any]:
        """By the names of Stats."""
        return {
            "fetched_bytes": self._fetcher.fetched_bytes,
            "cache_hit_bytes": self.wants.cache_hit_bytes,
            "requests": self._ranges.trouble.requests,
            "retries": self._ranges.trouble.retries,
            "fetch_wait_s": self._fetch_wait_s,
        }

    def levels(self) -> dict[str, int]:
        """By the names of Stats."""
        return {
            "requests_under_way": len(self._fetcher),
            "ranges_waiting": len(self.wants),
            "ring_bytes": 0 if self._fetcher.closed else self.ring.memory_bytes,
        }

    def origin(self, shard: int, offset: int) -> tuple[int, int] | None:
        """Shard and byte of a place that Where named; None: what was there is not any more."""
        if shard < len(self._names):
            return shard, offset
        with self.wants.lock:
            return self.wants.ring_parts.origin(offset)

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Bytes of a shard that is not decoded: notes, say. From the cache or the ring if they are there."""
        with self.wants.lock:
            first = int(self._cache.blocks.first[shard])
            states = self._cache.states[first + start // BLOCK_BYTES : first + (stop - 1) // BLOCK_BYTES + 1]
            if not self._fetcher.closed and states.min() >= WRITTEN:
                kept = self._cache.folder / self._names[shard]
                with suppress(FileNotFoundError), open(kept, "rb") as file:  # else somebody has removed the cache
                    return os.pread(file.fileno(), stop - start, start)
            sample = self._extents.sample_at(shard, start)
            part = self.wants.ring_parts.of(sample)
            piece = part.members[sample] if part is not None else None
            if piece is not None and piece.place is not None and piece.start <= start and stop <= piece.stop:
                return self.ring.read(piece.place + start - piece.start, stop - start)
        size_bytes = int(self._cache.blocks.sizes[shard])
        answer = self._requests.result(self._ranges.fetch(self._names[shard], start, stop, size_bytes=size_bytes))
        self._fetcher.fetched_bytes += stop - start
        return bytes(answer.data)

    def close(self, patience_s: float) -> None:
        """Ends its work; safe to call twice, and in a forked child.

        Args:
            patience_s: how long to wait for a disk that does not answer.
        """
        if os.getpid() != self._process or self._fetcher.closed:
            return
        self._fetcher.close(patience_s)
        self.wants.end_all()
