"""Bytes that no disk keeps -> places in a file in memory, which the engine reads like a shard.

Note [used again]
Bytes that are not needed any more leave their place to the next ones. While as much comes as goes,
no page is taken from the system or given back, which would cost as much as the copy itself. Places
have a few dozen different lengths, so a free one nearly always fits. If more is free than in use,
as at the end of an epoch, memory goes back to the system. If somebody reads a place that has other
bytes by then, the hash of the sample is wrong, and the sample is fetched again.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fastpipe.arrays import Int64s
from fastpipe.native import _engine

_PAGE = mmap.PAGESIZE
# Free memory that is kept even if nothing is in use.
_SPARE_BYTES = 4 << 20
# Small neighbours of a shard are stored in the ring as one piece, up to this size.
_PIECE_BYTES = 64 << 10


class Ring:
    """A file in memory. It takes memory only for places that are in use, or kept for reuse."""

    # The apparent size of the sparse file: more than will ever be in it.
    size_bytes = 1 << 50

    def __init__(self) -> None:
        # The descriptor closes itself.
        self._descriptor = _engine.Descriptor(
            os.memfd_create("fastpipe-ring", os.MFD_CLOEXEC)
        )
        self._file = self._descriptor.number()
        os.ftruncate(self._file, self.size_bytes)
        # The path by which other code of this process opens the file.
        self.path = f"/proc/self/fd/{self._file}"
        # The end of the last place.
        self._end = 0
        self._used_bytes = 0
        self._free_bytes = 0
        # Free places by their size: those whose memory is kept, and those that take no memory.
        self._free: defaultdict[int, deque[int]] = defaultdict(deque)
        self._empty: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, size: int) -> int:
        """Reserves a place for `size` bytes. Returns its offset."""
        room = room_of(size)
        self._used_bytes += room
        if self._free[room]:
            self._free_bytes -= room
            return self._free[room].pop()
        if self._empty[room]:
            return self._empty[room].pop()
        place = self._end
        self._end += room
        return place

    def give_back(self, place: int, size: int) -> None:
        """Frees a place that `take` returned; Note [used again]."""
        room = room_of(size)
        self._used_bytes -= room
        self._free_bytes += room
        self._free[room].append(place)
        while self._free_bytes > self._used_bytes + _SPARE_BYTES:
            self._release_memory()

    def _release_memory(self) -> None:
        """Gives the memory of one free place back to the system."""
        for room, places in self._free.items():
            if places:
                place = places.popleft()
                punch(self._file, place, place + room)
                self._empty[room].append(place)
                self._free_bytes -= room
                return

    def write(self, place: int, data: Any) -> None:
        view = memoryview(data)
        written = 0
        while written < len(view):
            rest = view[written:]
            written += os.pwrite(self._file, rest, place + written)

    def read(self, place: int, size: int) -> bytes:
        return os.pread(self._file, size, place)

    @property
    def memory_bytes(self) -> int:
        return os.fstat(self._file).st_blocks * 512


def room_of(size: int) -> int:
    """The size in bytes of a place for `size` bytes: whole pages, and at most a sixteenth more."""
    pages = -(-size // _PAGE)  # rounded up
    # Sizes have five significant bits, so there are 16 of them between two powers of two.
    step = 1 << max(pages.bit_length() - 5, 0)
    steps = -(-pages // step)  # rounded up
    return steps * step * _PAGE


def punch(descriptor: int, start: int, stop: int) -> None:
    """Gives whole pages of a file back to the disk or the memory. They read as zeros afterwards."""
    with mmap.mmap(descriptor, stop - start, offset=start) as pages:
        pages.madvise(mmap.MADV_REMOVE)


@dataclass(eq=False)
class ShardPart:
    """A range of a shard that one request fetches: blocks of the cache, or samples of the ring."""

    shard: int
    start: int
    stop: int
    # The blocks of the range; None if the bytes go into the ring.
    blocks: range | None = None
    # The parts of the range that the ring keeps. Bytes between them are dropped.
    pieces: list[RingPiece] = field(default_factory=list)
    # Whether it belongs to the first batch of an epoch.
    is_first_batch: bool = False

    @property
    def keys(self) -> set[Key]:
        """What a ticket may wait for: this part, or each of its blocks."""
        if self.blocks is None:
            return {self}
        return set(self.blocks)

    @property
    def dead(self) -> bool:
        """Whether it is for the ring, and nobody wants it any more."""
        return self.blocks is None and all(piece.dead for piece in self.pieces)


@dataclass(eq=False)
class RingPiece:
    """Neighbouring samples of a shard, or one large one, that are stored in the ring together."""

    part: ShardPart
    start: int
    stop: int
    samples: list[int]
    # The samples that the plan still needs.
    planned: set[int] = field(default_factory=set)
    # The offset in the ring; None before the bytes come and after they are dropped.
    ring_offset: int | None = None
    # Whether nobody finds samples in it any more.
    dead: bool = False


# A block's number, or a part for the ring.
Key = int | ShardPart


class RingParts:
    """The samples in the ring, or on their way. The caller holds the lock, but for `store`."""

    def __init__(self, ring: Ring, lock: threading.RLock) -> None:
        self._ring = ring
        self._lock = lock
        self._piece_of_sample: dict[int, RingPiece] = {}
        # The samples of the last batch. Their bytes stay until the next batch has been used,
        # because the notes beside an image are read later than the image.
        self._last_used: list[tuple[int, RingPiece]] = []

    def of(self, sample: int) -> RingPiece | None:
        """The piece that has a sample; None if the ring does not have it."""
        return self._piece_of_sample.get(sample)

    def put(self, sample: int, part: ShardPart, start: int, stop: int) -> RingPiece:
        """Adds a sample at the end of a part. `start` and `stop` are offsets in the shard."""
        part.stop = stop
        if part.pieces:
            last = part.pieces[-1]
            joined_bytes = stop - last.start
            if last.stop == start and joined_bytes <= _PIECE_BYTES:
                last.stop = stop
                last.samples.append(sample)
                self._piece_of_sample[sample] = last
                return last
        piece = RingPiece(part, start, stop, [sample])
        part.pieces.append(piece)
        self._piece_of_sample[sample] = piece
        return piece

    def origin(self, place: int) -> tuple[int, int] | None:
        """The shard and the offset in it of a byte in the ring; None if nothing is stored there."""
        for piece in set(self._piece_of_sample.values()):
            if piece.ring_offset is None:
                continue
            offset = place - piece.ring_offset
            if 0 <= offset < piece.stop - piece.start:
                return piece.part.shard, piece.start + offset
        return None

    def store(self, part: ShardPart, data: Any) -> None:
        """Writes the bytes of a part that are still wanted. OSError: there is no memory."""
        places: list[tuple[RingPiece, int]] = []
        with self._lock:
            for piece in part.pieces:
                if not piece.dead:
                    place = self._ring.take(piece.stop - piece.start)
                    places.append((piece, place))
        view = memoryview(data)
        try:
            # Without the lock, because copying takes long.
            for piece, place in places:
                first = piece.start - part.start
                end = piece.stop - part.start
                self._ring.write(place, view[first:end])
        except OSError:
            with self._lock:
                self.forget(part.pieces)
            raise
        finally:
            with self._lock:
                for piece, place in places:
                    # The piece may have been forgotten while it was written.
                    if piece.dead:
                        self._ring.give_back(place, piece.stop - piece.start)
                    else:
                        piece.ring_offset = place

    def use(self, samples: Int64s) -> Iterable[RingPiece]:
        """Notes that a batch has used samples.

        Returns the pieces of the batch before, whose samples the plan does not need any more.
        """
        before = self._last_used
        self._last_used = []
        for sample in samples.tolist():
            piece = self._piece_of_sample.get(sample)
            if piece is not None:
                self._last_used.append((sample, piece))
        for sample, piece in before:
            piece.planned.discard(sample)
        return {piece for _, piece in before}

    def next_plan(self, pinned: set[RingPiece]) -> None:
        """Drops what only the present plan needs; see `give_back`."""
        self._last_used.clear()
        pieces = set(self._piece_of_sample.values())
        for piece in pieces:
            piece.planned.clear()
        self.give_back(pieces, pinned)

    def give_back(self, pieces: Iterable[RingPiece], pinned: set[RingPiece]) -> None:
        """Frees the places of pieces that nobody needs. `pinned` are waited for, or read."""
        for piece in pieces:
            if piece.planned or piece in pinned:
                continue
            self.forget([piece])
            if piece.ring_offset is not None:
                size = piece.stop - piece.start
                self._ring.give_back(piece.ring_offset, size)
                piece.ring_offset = None

    def forget(self, pieces: Iterable[RingPiece]) -> None:
        """From now on nobody finds samples in these pieces. Whoever reads them may go on."""
        for piece in pieces:
            piece.dead = True
            piece.planned.clear()
            for sample in piece.samples:
                # Another piece may have the sample by now.
                if self._piece_of_sample.get(sample) is piece:
                    del self._piece_of_sample[sample]
