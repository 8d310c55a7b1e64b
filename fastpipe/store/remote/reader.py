"""Samples that are needed, soon or now -> their bytes, in the cache's files or in the ring, and where in which."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.index import Index
from fastpipe.store.remote.blocks import BLOCK_BYTES, Extents
from fastpipe.store.remote.cache import Caches
from fastpipe.store.remote.fetcher import Fetcher
from fastpipe.store.remote.retry import ATTEMPTS
from fastpipe.store.remote.ring import Ring
from fastpipe.store.remote.wants import Ticket, Wants, Where

_LOOK_S = 1.0


class Reader:
    """Brings samples of an index, some of whose shards are behind URLs, to this machine. Safe in threads."""

    def __init__(self, index: Index, caches: Caches) -> None:
        self.caches = caches
        self._process = os.getpid()
        self.ring = Ring()  # the engine knows it as a file behind the shards
        self._extents = Extents(index, caches.blocks.sizes)
        self.wants = Wants(self._extents, caches, self.ring)
        self.restart, self.end, self.again = self.wants.restart, self.wants.end, self.wants.again
        self.fetcher = Fetcher(self.wants)
        self.begin, self.delay, self.check_usable = self.fetcher.begin, self.fetcher.delay, self.fetcher.check_usable
        self._fetch_wait_s = 0.0

    def ahead(self, samples: NDArray[np.int64]) -> None:
        """Has samples brought, in their order, for batches to come; neighbours in a shard lie beside each other."""
        self.wants.ahead(samples)
        self.fetcher.wake()

    def ticket(self, samples: NDArray[np.int64], go: Callable[[Where | Exception], None]) -> Ticket:
        """Asks for samples that are needed now; `go` gets Where they are or the error, now or later, in any thread."""
        with self.wants.lock:
            ticket = Ticket(samples, go, self.wants.generation)
            where = self.wants.add(ticket)
        if where is not None:
            go(where)
        else:
            self.fetcher.wake()
        return ticket

    def brings(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples it fetches, so that they can be fetched again."""
        return np.asarray(self.caches.is_remote[self._extents.of(samples)[0]])

    def damaged(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.array([sample in self.fetcher.damaged for sample in samples.tolist()], dtype=np.bool_)

    def waited(self, seconds: float) -> None:
        with self.wants.lock:
            self._fetch_wait_s += seconds

    def counters(self) -> dict[str, Any]:
        """By the names of Stats."""
        return {
            "fetched_bytes": self.fetcher.fetched_bytes,
            "cache_hit_bytes": self.wants.cache_hit_bytes,
            "requests": sum(each.objects.requests for each in self.caches.remote),
            "retries": sum(each.objects.retries for each in self.caches.remote),
            "fetch_wait_s": self._fetch_wait_s,
        }

    def levels(self) -> dict[str, int]:
        return {
            "requests_under_way": len(self.fetcher),
            "ranges_waiting": len(self.wants),
            "ring_bytes": 0 if self.fetcher.closed else self.ring.memory_bytes,
        }

    def origin(self, shard: int, offset: int) -> tuple[int, int] | None:
        """Shard and byte of a place that Where named; None: what was there is not any more."""
        if shard < len(self.caches.is_remote):
            return shard, offset
        with self.wants.lock:
            return self.wants.ring_parts.origin(offset)

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Bytes of a shard that is not decoded: notes, say. From the cache or the ring if they are there."""
        cache = self.caches.of[shard]
        name = cache.name_of(shard)
        with self.wants.lock:
            first = int(cache.blocks.first[shard])
            blocks = range(first + start // BLOCK_BYTES, first + (stop - 1) // BLOCK_BYTES + 1)
            if not self.fetcher.closed and all(map(cache.is_there, blocks)):
                with suppress(FileNotFoundError), open(cache.folder / name, "rb") as file:
                    return os.pread(file.fileno(), stop - start, start)  # unless somebody has removed the cache
            piece = self.wants.ring_parts.of(self._extents.sample_at(shard, start))
            if piece is not None and piece.place is not None and piece.start <= start and stop <= piece.stop:
                return self.ring.read(piece.place + start - piece.start, stop - start)
        answer = cache.objects.fetched(name, start, stop, int(cache.blocks.sizes[shard]))
        with self.wants.lock:
            self.fetcher.fetched_bytes += stop - start
        return bytes(answer.data)

    @contextmanager
    def brought(self, samples: NDArray[np.int64]) -> Iterator[Where]:
        """Where samples are, and stay inside the `with`. Ctrl-C ends the wait. DatasetError: a range does not come."""
        outcomes: SimpleQueue[Where | Exception] = SimpleQueue()
        started = time.monotonic()
        ticket = self.ticket(samples, outcomes.put)
        try:
            outcome = self._next(outcomes)
            self.waited(time.monotonic() - started)
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome
        finally:
            self.end(ticket, used=False)

    def _next(self, outcomes: SimpleQueue[Where | Exception]) -> Where | Exception:
        while True:
            self.check_usable()
            with suppress(Empty):
                return outcomes.get(timeout=_LOOK_S)

    def check(self, sample: int, shard: int, offset: int, size: int, expected: int) -> None:
        """Compares a sample's bytes with their XXH3-64, and fetches them again. DatasetError: the source is damaged."""
        one = np.array([sample], dtype=np.int64)
        for _ in range(ATTEMPTS):
            found = xxhash.xxh3_64_intdigest(self.read(shard, offset, offset + size))
            if found == expected:
                return
            self.again(one)
            with self.brought(one):
                continue
        raise DatasetError(
            f"expected XXH3-64 {expected:016x}, got {found:016x}; its bytes were fetched again and are no better, so "
            "the file behind the URL is damaged"
        )

    def close(self, patience_s: float) -> None:
        """Ends its work; waits so long for a disk that does not answer. Safe to call twice, and in a forked child."""
        if os.getpid() != self._process or self.fetcher.closed:
            return
        self.fetcher.close(patience_s)
        self.wants.end_all()
