"""Samples that are needed, soon or now -> their bytes, in the cache's files or in the ring."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import xxhash

from fastpipe.arrays import Bools, Int64s
from fastpipe.dataset.format.index import Index
from fastpipe.errors import DatasetError
from fastpipe.store.remote.blocks import BLOCK_BYTES, Extents
from fastpipe.store.remote.cache import Caches
from fastpipe.store.remote.fetcher import Fetcher
from fastpipe.store.remote.retry import ATTEMPTS
from fastpipe.store.remote.ring import Ring
from fastpipe.store.remote.wants import Ticket, Wants, Where

_LOOK_S = 1.0


class Reader:
    """Brings samples of an index to this machine. Some of the shards are behind URLs.

    Safe in threads.
    """

    def __init__(self, index: Index, caches: Caches) -> None:
        self.caches = caches
        self._process = os.getpid()
        # The engine knows the ring as one more file behind the shards.
        self.ring = Ring()
        self._extents = Extents(index, caches.blocks.sizes)
        self.wants = Wants(self._extents, caches, self.ring)
        self.restart = self.wants.restart
        self.end = self.wants.end
        self.again = self.wants.again
        self.fetcher = Fetcher(self.wants)
        self.begin = self.fetcher.begin
        self.delay = self.fetcher.delay
        self.check_usable = self.fetcher.check_usable
        self._fetch_wait_s = 0.0

    def ahead(self, samples: Int64s) -> None:
        """Fetches samples for later batches, in their order. Neighbours in a shard are adjacent."""
        self.wants.ahead(samples)
        self.fetcher.wake()

    def ticket(
        self, samples: Int64s, on_ready: Callable[[Where | Exception], None]
    ) -> Ticket:
        """Asks for samples that are needed now.

        `on_ready` gets the place of the samples or the error, now or later, in any thread.
        """
        with self.wants.lock:
            ticket = Ticket(samples, on_ready, self.wants.generation)
            where = self.wants.add(ticket)
        if where is not None:
            on_ready(where)
        else:
            self.fetcher.wake()
        return ticket

    def brings(self, samples: Int64s) -> Bools:
        """(n,) which samples are behind a URL, so that they can be fetched again."""
        shard, _, _ = self._extents.of(samples)
        return np.asarray(self.caches.is_remote[shard])

    def damaged(self, samples: Int64s) -> Bools:
        """(n,) which samples are damaged behind the URL, too."""
        is_damaged = [sample in self.fetcher.damaged for sample in samples.tolist()]
        return np.array(is_damaged, dtype=np.bool_)

    def waited(self, seconds: float) -> None:
        """Adds to the time that the loop has waited for samples."""
        with self.wants.lock:
            self._fetch_wait_s += seconds

    def counters(self) -> dict[str, Any]:
        """The counters of this reader, by the names of Stats."""
        stores = [cache.objects for cache in self.caches.remote]
        return {
            "fetched_bytes": self.fetcher.fetched_bytes,
            "cache_hit_bytes": self.wants.cache_hit_bytes,
            "requests": sum(store.requests for store in stores),
            "retries": sum(store.retries for store in stores),
            "fetch_wait_s": self._fetch_wait_s,
        }

    def levels(self) -> dict[str, int]:
        """What is under way at the moment."""
        return {
            "requests_under_way": len(self.fetcher),
            "ranges_waiting": len(self.wants),
            "ring_bytes": 0 if self.fetcher.closed else self.ring.memory_bytes,
        }

    def origin(self, shard: int, offset: int) -> tuple[int, int] | None:
        """The shard and the offset in it of a place that Where named.

        None if the ring does not have the bytes any more.
        """
        if shard < len(self.caches.is_remote):
            return shard, offset
        with self.wants.lock:
            return self.wants.ring_parts.origin(offset)

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Reads bytes of a shard that are not decoded, such as notes.

        They come from the cache or the ring if they are there, and are fetched otherwise.
        """
        data = self._read_here(shard, start, stop)
        if data is not None:
            return data
        cache = self.caches.cache_of_shard[shard]
        size_bytes = int(cache.blocks.sizes[shard])
        name = cache.name_of(shard)
        answer = cache.objects.fetched(name, start, stop, size_bytes)
        with self.wants.lock:
            self.fetcher.fetched_bytes += stop - start
        return bytes(answer.data)

    def _read_here(self, shard: int, start: int, stop: int) -> bytes | None:
        """The bytes if the cache or the ring has them; otherwise None."""
        cache = self.caches.cache_of_shard[shard]
        last_byte = stop - 1
        first_of_shard = int(cache.blocks.first_blocks[shard])
        first_block = first_of_shard + start // BLOCK_BYTES
        last_block = first_of_shard + last_byte // BLOCK_BYTES
        blocks = range(first_block, last_block + 1)
        with self.wants.lock:
            if not self.fetcher.closed and all(map(cache.is_there, blocks)):
                path = cache.folder / cache.name_of(shard)
                # Somebody may have removed the cache.
                with suppress(FileNotFoundError), open(path, "rb") as file:
                    return os.pread(file.fileno(), stop - start, start)
            sample = self._extents.sample_at(shard, start)
            piece = self.wants.ring_parts.of(sample)
            if piece is None or piece.ring_offset is None:
                return None
            if piece.start <= start and stop <= piece.stop:
                offset_in_piece = start - piece.start
                ring_offset = piece.ring_offset + offset_in_piece
                return self.ring.read(ring_offset, stop - start)
        return None

    @contextmanager
    def brought(self, samples: Int64s) -> Iterator[Where]:
        """Where samples are. They stay there inside the `with`. Ctrl-C ends the wait.

        Raises:
            DatasetError: a range cannot be fetched.
        """
        outcomes: SimpleQueue[Where | Exception] = SimpleQueue()
        start_time = time.monotonic()
        ticket = self.ticket(samples, outcomes.put)
        try:
            outcome = self._next(outcomes)
            self.waited(time.monotonic() - start_time)
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome
        finally:
            self.end(ticket, used=False)

    def _next(self, outcomes: SimpleQueue[Where | Exception]) -> Where | Exception:
        while True:
            # If the program ends, nothing comes any more.
            self.check_usable()
            with suppress(Empty):
                return outcomes.get(timeout=_LOOK_S)

    def check(
        self, sample: int, shard: int, offset: int, size: int, expected: int
    ) -> None:
        """Compares a sample's bytes with their XXH3-64, and fetches them again if they differ.

        Raises:
            DatasetError: the file behind the URL is damaged.
        """
        samples = np.array([sample], dtype=np.int64)
        for _ in range(ATTEMPTS):
            data = self.read(shard, offset, offset + size)
            digest = xxhash.xxh3_64_intdigest(data)
            if digest == expected:
                return
            self.again(samples)
            # Wait until they have been fetched.
            with self.brought(samples):
                pass
        raise DatasetError(
            f"expected XXH3-64 {expected:016x}, got {digest:016x}; its bytes were fetched again "
            "and are no better, so the file behind the URL is damaged"
        )

    def close(self, patience_s: float) -> None:
        """Ends the reader's work, and waits at most `patience_s` for a disk that does not answer.

        Safe to call twice, and in a forked child.
        """
        if os.getpid() != self._process or self.fetcher.closed:
            return
        self.fetcher.close(patience_s)
        self.wants.end_all()
