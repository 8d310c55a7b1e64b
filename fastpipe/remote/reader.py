"""Samples that are needed, soon or now -> their bytes, in the cache's files or in the ring, and where in which."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.index import Index
from fastpipe.remote.arrivals import Arrivals
from fastpipe.remote.blocks import BLOCK_BYTES
from fastpipe.remote.cache import WRITTEN
from fastpipe.remote.caches import Caches
from fastpipe.remote.extents import Extents
from fastpipe.remote.fetcher import Fetcher
from fastpipe.remote.retry import ATTEMPTS
from fastpipe.remote.ring import Ring
from fastpipe.remote.wants import Ticket, Wants, Where


class Reader:
    """Brings samples of remote datasets to this machine. All methods may be called by several threads.

    Args:
        index: of the dataset, or of a mixture.
        caches: of its datasets; some may lie on this machine.

    Attributes:
        ring: what is not kept: a file that the engine has to know behind the shards.
        wants: what is to be fetched, and who waits for it.
        caches: as given.
        arrivals: what writes it.
        restart, end, again: see Wants.
        begin, delay: see Fetcher.
    """

    def __init__(self, index: Index, caches: Caches) -> None:
        self.caches = caches
        self._process = os.getpid()
        self.ring = Ring()
        self._extents = Extents(index, caches.blocks.sizes)
        self.wants = Wants(self._extents, caches, self.ring)
        self.restart, self.end, self.again = self.wants.restart, self.wants.end, self.wants.again
        self.arrivals = Arrivals(self.wants, caches)
        self._fetcher = Fetcher(self._extents, self.wants, caches, self.arrivals)
        self.begin, self.delay = self._fetcher.begin, self._fetcher.delay
        self._fetch_wait_s = 0.0

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

    def brings(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples it fetches, so that they can be fetched again."""
        found: NDArray[np.bool_] = self.caches.is_remote[self._extents.of(samples)[0]]
        return found

    def damaged(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples have been found to be wrong at their source."""
        return np.array([sample in self._fetcher.damaged for sample in samples.tolist()], dtype=np.bool_)

    def waited(self, seconds: float) -> None:
        """Counts time that a batch waited for its samples."""
        self._fetch_wait_s += seconds

    def counters(self) -> dict[str, Any]:
        """By the names of Stats."""
        return {
            "fetched_bytes": self._fetcher.fetched_bytes,
            "cache_hit_bytes": self.wants.cache_hit_bytes,
            "requests": sum(each.objects.requests for each in self.caches.remote),
            "retries": sum(each.objects.retries for each in self.caches.remote),
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
        if shard < len(self.caches.is_remote):
            return shard, offset
        with self.wants.lock:
            return self.wants.ring_parts.origin(offset)

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Bytes of a shard that is not decoded: notes, say. From the cache or the ring if they are there."""
        dataset, number = self.caches.of_shard(shard)
        cache, name = dataset.cache, dataset.names[number]
        with self.wants.lock:
            first = int(cache.blocks.first[number])
            states = cache.states[first + start // BLOCK_BYTES : first + (stop - 1) // BLOCK_BYTES + 1]
            if not self._fetcher.closed and states.min() >= WRITTEN:
                with suppress(FileNotFoundError), open(cache.folder / name, "rb") as file:
                    return os.pread(file.fileno(), stop - start, start)  # unless somebody has removed the cache
            sample = self._extents.sample_at(shard, start)
            piece = self.wants.ring_parts.of(sample)
            if piece is not None and piece.place is not None and piece.start <= start and stop <= piece.stop:
                return self.ring.read(piece.place + start - piece.start, stop - start)
        answer = dataset.objects.fetched(name, start, stop, int(cache.blocks.sizes[number]))
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


@contextmanager
def brought(reader: Reader, samples: NDArray[np.int64]) -> Iterator[Where]:
    """Where samples are; they stay there inside the `with`. Ctrl-C ends the wait.

    Raises:
        DatasetError: a range does not come.
    """
    outcome: list[Where | Exception] = []
    arrived = threading.Event()

    def go(where: Where | Exception) -> None:
        outcome.append(where)
        arrived.set()

    started = time.monotonic()
    ticket = reader.ticket(samples, go)
    try:
        arrived.wait()
        reader.waited(time.monotonic() - started)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        yield outcome[0]
    finally:
        reader.end(ticket, used=False)


def check(reader: Reader, sample: int, shard: int, offset: int, size: int, expected: int) -> None:
    """Compares the hash of a sample's bytes, which are here, and fetches them again if it is another one.

    Args:
        reader: of the dataset.
        sample: its number.
        shard, offset, size: where its bytes are in the shard.
        expected: their XXH3-64.

    Raises:
        DatasetError: they are damaged at their source.
    """
    one = np.array([sample], dtype=np.int64)
    for _ in range(ATTEMPTS):
        found = xxhash.xxh3_64_intdigest(reader.read(shard, offset, offset + size))
        if found == expected:
            return
        reader.again(one)
        with brought(reader, one):
            continue
    raise DatasetError(
        f"expected XXH3-64 {expected:016x}, got {found:016x}; its bytes were fetched again and are no better, so the "
        "file behind the URL is damaged"
    )
