"""A file behind a URL -> an open file: read in pieces, those behind the place that is read fetched in advance."""

from __future__ import annotations

import io
import os
from collections import deque
from concurrent.futures import Future
from typing import Any, NamedTuple

from fastpipe.format.file_state import FileState
from fastpipe.remote.objects import Objects
from fastpipe.remote.store import Answer

_PIECE_BYTES = 4 << 20
_AHEAD = 3  # pieces
_LEAST_BYTES = 64 << 10  # of a piece somewhere else: a header, a footer
_HELD = 6


class _Piece(NamedTuple):
    start: int
    stop: int
    answer: Future[Answer]


class RemoteFile(io.RawIOBase):
    """A file that is as it was listed; for one thread at a time.

    Args:
        objects: the files behind a URL.
        name: of it.
        state: as it was listed.

    Reading raises PackError: the file is another one now, or does not come.
    """

    def __init__(self, objects: Objects, name: str, state: FileState) -> None:
        super().__init__()
        self.state = state
        self._objects, self._name = objects, name
        self._held: deque[_Piece] = deque()
        self._at = 0
        self._reached = 0  # where the last read ended

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """A range; shorter only where the file ends before."""
        at, stop = offset_bytes, min(offset_bytes + size_bytes, self.state.size_bytes)
        found = []
        while at < stop:
            piece = self._piece(at, stop)
            data = self._objects.take(self._name, piece.answer.result(), self.state)
            end = min(stop, piece.stop)
            found.append(data[at - piece.start : end - piece.start])
            at = self._reached = end
        return b"".join(found)

    def _piece(self, at: int, stop: int) -> _Piece:
        """The piece that has the byte at `at`."""
        in_line = 0 <= at - self._reached <= _PIECE_BYTES
        found = next((each for each in self._held if each.start <= at < each.stop), None)
        if found is None:
            wanted = _PIECE_BYTES if in_line else min(max(stop - at, _LEAST_BYTES), _PIECE_BYTES)
            found = self._begin(at, wanted)
        if in_line:
            ends = found.stop
            for _ in range(_AHEAD):
                if ends >= self.state.size_bytes:
                    break
                known = next((each for each in self._held if each.start <= ends < each.stop), None)
                ends = (known or self._begin(ends, _PIECE_BYTES)).stop
        while len(self._held) > _HELD:
            oldest = self._held.popleft()
            if oldest is found:
                self._held.append(oldest)
            else:
                oldest.answer.cancel()
        return found

    def _begin(self, at: int, size_bytes: int) -> _Piece:
        stop = min(at + size_bytes, self.state.size_bytes)
        piece = _Piece(at, stop, self._objects.begin(self._name, at, stop))
        self._held.append(piece)
        return piece

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The next byte that `read` gives."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a byte."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.state.size_bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes, or all that are left; fewer only at the end."""
        left = max(self.state.size_bytes - self._at, 0)
        data = self.read_at(left if size is None or size < 0 else min(size, left), self._at)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer; returns how many bytes it got."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Gives up what was fetched in advance."""
        for piece in self._held:
            piece.answer.cancel()
        self._held.clear()
        super().close()
