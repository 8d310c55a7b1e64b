"""Readers of some datasets of a mixture -> one reader of all; datasets that lie here need none."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.mixed_index import MixedIndex, starts_of
from fastpipe.remote.fetcher import Delay
from fastpipe.remote.reader import Reader
from fastpipe.remote.ring import Ring
from fastpipe.remote.tickets import Ticket, Where


class MixedTicket:
    """Samples that somebody waits for; see Ticket.

    Args:
        count: of the samples.
        parts: datasets that have to answer.
        go: called once all have, or one has failed.
    """

    def __init__(self, count: int, parts: int, go: Callable[[Where | Exception], None]) -> None:
        self.tickets: list[tuple[Reader, Ticket]] = []
        self._where = Where(np.zeros(count, dtype=np.uint32), np.zeros(count, dtype=np.int64))
        self._left, self._go = parts, go
        self._lock = threading.Lock()

    def answer(self, positions: NDArray[np.intp], where: Where | Exception) -> None:
        """Where some of the samples are, or why not."""
        with self._lock:
            if self._left == 0:
                return  # another dataset has failed
            if isinstance(where, Exception):
                self._left = 0
            else:
                self._where.shard[positions], self._where.shift[positions] = where.shard, where.shift
                self._left -= 1
            if self._left:
                return
        self._go(where if isinstance(where, Exception) else self._where)


class MixedReader:
    """Like a Reader; the numbers of samples and shards are those of the mixture.

    Args:
        index: of the mixture.
        readers: of its datasets; None: the dataset lies here.
    """

    def __init__(self, index: MixedIndex, readers: list[Reader | None]) -> None:
        self._index = index
        self._readers = readers
        self._remote = [reader for reader in readers if reader is not None]
        self._shard_starts = starts_of([len(part.shards) for part in index.parts])

    @property
    def rings(self) -> list[Ring]:
        """What is not kept: the files behind the shards."""
        return [reader.ring for reader in self._remote]

    def begin(self, owner: object) -> None:
        """See Reader."""
        for reader in self._remote:
            reader.begin(owner)

    def restart(self, sharers: int) -> None:
        """See Reader."""
        for reader in self._remote:
            reader.restart(sharers)

    def ahead(self, samples: NDArray[np.int64]) -> None:
        """See Reader."""
        for reader, _, numbers in self._of(samples):
            reader.ahead(numbers)

    def ticket(self, samples: NDArray[np.int64], go: Callable[[Where | Exception], None]) -> MixedTicket:
        """See Reader."""
        parts = list(self._index.local(samples))
        ticket = MixedTicket(len(samples), len(parts), go)
        for part, positions, numbers in parts:
            reader = self._readers[part]
            if reader is None:
                shards = self._index.records_of(samples[positions])["shard"].astype(np.uint32)
                ticket.answer(positions, Where(shards, np.zeros(len(positions), dtype=np.int64)))
            else:
                ticket.tickets.append((reader, reader.ticket(numbers, self._answer(ticket, part, positions))))
        return ticket

    def _answer(
        self, ticket: MixedTicket, part: int, positions: NDArray[np.intp]
    ) -> Callable[[Where | Exception], None]:
        first, shards = int(self._shard_starts[part]), len(self._index.parts[part].shards)
        ring = int(self._shard_starts[-1]) + sum(reader is not None for reader in self._readers[:part])
        asked = weakref.ref(ticket)  # which has the tickets that have this answer

        def answer(where: Where | Exception) -> None:
            if not isinstance(where, Exception):
                moved = np.where(where.shard == shards, ring, where.shard.astype(np.int64) + first)
                where = Where(moved.astype(np.uint32), where.shift)
            if (waiting := asked()) is not None:
                waiting.answer(positions, where)

        return answer

    def end(self, ticket: MixedTicket, *, used: bool) -> None:
        """See Reader."""
        for reader, each in ticket.tickets:
            reader.end(each, used=used)

    def again(self, samples: NDArray[np.int64]) -> None:
        """See Reader."""
        for reader, _, numbers in self._of(samples):
            reader.again(numbers)

    def brings(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Reader: those of datasets that do not lie here."""
        remote = np.array([reader is not None for reader in self._readers])
        found: NDArray[np.bool_] = remote[self._index.part_of(samples)]
        return found

    def damaged(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See Reader."""
        found = np.zeros(len(samples), dtype=np.bool_)
        for reader, positions, numbers in self._of(samples):
            found[positions] = reader.damaged(numbers)
        return found

    def waited(self, seconds: float) -> None:
        """See Reader."""
        self._remote[0].waited(seconds)

    def delay(self) -> Delay | None:
        """See Reader."""
        found = []
        for part, reader in enumerate(self._readers):
            delay = None if reader is None else reader.delay()
            if delay is not None:
                found.append(delay._replace(shard=delay.shard + int(self._shard_starts[part])))
        return max(found, key=lambda each: each.seconds, default=None)

    def counters(self) -> dict[str, Any]:
        """See Reader."""
        return _summed(reader.counters() for reader in self._remote)

    def levels(self) -> dict[str, int]:
        """See Reader."""
        return _summed(reader.levels() for reader in self._remote)

    def origin(self, shard: int, offset: int) -> tuple[int, int] | None:
        """See Reader."""
        behind = shard - int(self._shard_starts[-1])
        if behind < 0:
            return shard, offset
        part = [number for number, reader in enumerate(self._readers) if reader is not None][behind]
        found = self._remote[behind].origin(len(self._index.parts[part].shards), offset)
        return None if found is None else (found[0] + int(self._shard_starts[part]), found[1])

    def close(self, patience_s: float) -> None:
        """See Reader."""
        for reader in self._remote:
            reader.close(patience_s)

    def _of(self, samples: NDArray[np.int64]) -> Iterator[tuple[Reader, NDArray[np.intp], NDArray[np.int64]]]:
        """The samples that have to be fetched, by dataset."""
        for part, positions, numbers in self._index.local(samples):
            reader = self._readers[part]
            if reader is not None:
                yield reader, positions, numbers


def _summed(figures: Iterator[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in figures:
        for name, value in each.items():
            found[name] = found.get(name, 0) + value
    return found
