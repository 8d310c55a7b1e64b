"""Bytes that no disk keeps -> places in a file in memory that the engine reads like a shard, until they have been used.

Note [used again]
Bytes that are not needed any more leave their place to those that come: no page is taken from the system or given back
while as much comes as goes, which would cost as much as the copy itself. Places have lengths of a few dozen kinds, so
that one which is free nearly always fits. If more is free than in use, as at the end of an epoch, it goes back.
Whoever reads a place that has got other bytes meanwhile finds another hash.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.native import _engine

_PAGE = mmap.PAGESIZE
_SPARE_BYTES = 4 << 20
_PIECE_BYTES = 64 << 10  # small neighbours lie in the ring together


class Ring:
    """A file in memory. It takes memory only for places that are in use, or free to be used again."""

    size_bytes = 1 << 50  # that it seems to have: more than can ever be in it

    def __init__(self) -> None:
        self._descriptor = _engine.Descriptor(os.memfd_create("fastpipe-ring", os.MFD_CLOEXEC))  # closes itself
        self._file = self._descriptor.number()
        os.ftruncate(self._file, self.size_bytes)
        # By which other code of this process opens it.
        self.path = f"/proc/self/fd/{self._file}"
        self._end = 0  # of all places so far
        self._used_bytes = self._free_bytes = 0
        # By the room that they have: places whose memory is kept, and others.
        self._free: defaultdict[int, deque[int]] = defaultdict(deque)
        self._empty: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, size: int) -> int:
        """A place for so many bytes, where nothing else is."""
        room = room_of(size)
        self._used_bytes += room
        if self._free[room]:
            self._free_bytes -= room
            return self._free[room].pop()
        if self._empty[room]:
            return self._empty[room].pop()
        self._end += room
        return self._end - room

    def give_back(self, place: int, size: int) -> None:
        """Leaves a place of `take` to others; Note [used again]."""
        room = room_of(size)
        self._used_bytes -= room
        self._free_bytes += room
        self._free[room].append(place)
        while self._free_bytes > self._used_bytes + _SPARE_BYTES:
            room, places = next(each for each in self._free.items() if each[1])
            self._empty[room].append(places.popleft())
            punch(self._file, self._empty[room][-1], self._empty[room][-1] + room)
            self._free_bytes -= room

    def write(self, place: int, data: Any) -> None:
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.pwrite(self._file, view[done:], place + done)

    def read(self, place: int, size: int) -> bytes:
        return os.pread(self._file, size, place)

    @property
    def memory_bytes(self) -> int:
        return os.fstat(self._file).st_blocks * 512


def room_of(size: int) -> int:
    """What a place for so many bytes takes: whole pages, and at most a sixteenth more."""
    pages = -(-size // _PAGE)
    step = 1 << max(pages.bit_length() - 5, 0)
    return -(-pages // step) * step * _PAGE


def punch(descriptor: int, start: int, stop: int) -> None:
    """Gives whole pages of a file back to the disk or the memory; they read as zeros afterwards."""
    with mmap.mmap(descriptor, stop - start, offset=start) as pages:
        pages.madvise(mmap.MADV_REMOVE)


@dataclass(eq=False)
class ShardPart:
    """A range of a shard that is fetched at once: blocks that the cache keeps, or samples for the ring."""

    shard: int
    start: int
    stop: int
    blocks: range | None = None  # that it consists of; None: it goes into the ring
    pieces: list[RingPiece] = field(default_factory=list)  # that the ring keeps; bytes between them are dropped
    first: bool = False  # of a first batch

    @property
    def keys(self) -> set[Key]:
        """What may be waited for of it."""
        return {self} if self.blocks is None else set(self.blocks)

    @property
    def dead(self) -> bool:
        """Whether it is for the ring, and nobody wants it any more."""
        return self.blocks is None and all(piece.dead for piece in self.pieces)


@dataclass(eq=False)
class RingPiece:
    """Neighbouring samples of a shard, or one large one, that lie in the ring together."""

    part: ShardPart
    start: int
    stop: int
    samples: list[int]
    planned: set[int] = field(default_factory=set)  # samples that the plan still needs
    place: int | None = None  # in the ring; None: not there yet, or not any more
    dead: bool = False  # nobody finds samples in it any more


Key = int | ShardPart  # a block, or a part in the ring


class RingParts:
    """What is in the ring, or on its way there. The caller holds the lock, but for `store`."""

    def __init__(self, ring: Ring, lock: threading.RLock) -> None:
        self._ring, self._lock = ring, lock
        self._of: dict[int, RingPiece] = {}  # sample -> the piece that has it
        self._used: list[tuple[int, RingPiece]] = []  # kept until the next ones are: notes are read later

    def of(self, sample: int) -> RingPiece | None:
        return self._of.get(sample)

    def put(self, sample: int, part: ShardPart, start: int, stop: int) -> RingPiece:
        """A sample with these bytes of the shard is to be found in a part, as its last one."""
        part.stop = stop
        last = part.pieces[-1] if part.pieces else None
        if last is not None and last.stop == start and stop - last.start <= _PIECE_BYTES:
            last.stop = stop
            last.samples.append(sample)
        else:
            last = RingPiece(part, start, stop, [sample])
            part.pieces.append(last)
        self._of[sample] = last
        return last

    def origin(self, place: int) -> tuple[int, int] | None:
        """Shard and byte of a place; None: nothing is there."""
        for piece in set(self._of.values()):
            if piece.place is not None and 0 <= place - piece.place < piece.stop - piece.start:
                return piece.part.shard, piece.start + place - piece.place
        return None

    def store(self, part: ShardPart, data: Any) -> None:
        """Writes what has come of a part, for whoever still wants it. OSError: there is no memory."""
        with self._lock:
            places = [(piece, self._ring.take(piece.stop - piece.start)) for piece in part.pieces if not piece.dead]
        view = memoryview(data)
        try:
            for piece, place in places:
                self._ring.write(place, view[piece.start - part.start : piece.stop - part.start])
        except OSError:
            with self._lock:
                self.forget(part.pieces)
            raise
        finally:
            with self._lock:
                for piece, place in places:
                    if piece.dead:
                        self._ring.give_back(place, piece.stop - piece.start)
                    else:
                        piece.place = place

    def use(self, samples: NDArray[np.int64]) -> Iterable[RingPiece]:
        """Samples have been used; gives the pieces of those that were used before: the plan needs these no more."""
        used, self._used = self._used, [(each, self._of[each]) for each in samples.tolist() if each in self._of]
        for sample, piece in used:
            piece.planned.discard(sample)
        return {piece for _, piece in used}

    def next_plan(self, pinned: set[RingPiece]) -> None:
        """No sample is to be used any more by the plan at hand; see `give_back`."""
        self._used.clear()
        pieces = set(self._of.values())
        for piece in pieces:
            piece.planned.clear()
        self.give_back(pieces, pinned)

    def give_back(self, pieces: Iterable[RingPiece], pinned: set[RingPiece]) -> None:
        """Gives back what those pieces take that nobody needs; somebody waits for `pinned`, or reads them."""
        for piece in pieces:
            if not piece.planned and piece not in pinned:
                self.forget([piece])
                if piece.place is not None:
                    self._ring.give_back(piece.place, piece.stop - piece.start)
                    piece.place = None

    def forget(self, pieces: Iterable[RingPiece]) -> None:
        """Nobody finds samples in these pieces any more; who reads them may go on."""
        for piece in pieces:
            piece.dead = True
            piece.planned.clear()
            for sample in piece.samples:
                if self._of.get(sample) is piece:
                    del self._of[sample]
