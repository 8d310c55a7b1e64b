"""Files of a source behind a URL, as they were listed -> their bytes, fetched in advance; or an open file."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from fastpipe.errors import FastpipeError, PackError
from fastpipe.format.folder import Url
from fastpipe.format.open_file import FileState
from fastpipe.remote.objects import REQUEST_BYTES, Answer, Objects
from fastpipe.remote.options import RemoteOptions

_PIECE_BYTES = 4 << 20
_AHEAD = 3  # pieces
_LEAST_BYTES = 64 << 10  # of a piece somewhere else: a header, a footer
_HELD = 6


@dataclass(eq=False)
class Coming:
    """A range of a file that is on its way.

    Attributes:
        name: of the file.
        start, stop: first byte, and the one after the last.
        answer: once it is here.
    """

    name: str
    start: int
    stop: int
    answer: Future[Answer]


class Tree:
    """A list of all files below a folder, kept while a source is listed.

    Args:
        listed: lists the files below a folder.
        top: the folder.

    Attributes:
        top: as given.
        files: all files, by name.
        folders: the names in each folder, of files and of folders.
    """

    def __init__(self, listed: Callable[[str], Iterable[tuple[str, FileState]]], top: str) -> None:
        self.top = top
        self.files: dict[str, FileState] = {}
        self.folders: dict[str, dict[str, None]] = {top: {}}
        for name, facts in listed(top):
            self.files[name] = facts
            while name != top:
                folder, _, last = name.rpartition("/")
                there = self.folders.setdefault(folder, {})
                if last in there:
                    break
                there[last] = None
                name = folder
        for name in self.folders:  # some programs mark a folder by an empty object of its name
            marker = self.files.get(name)
            if marker is not None and marker.size_bytes == 0:
                del self.files[name]

    def covers(self, name: str) -> bool:
        """Whether the list has it, if it is there."""
        return not self.top or name == self.top or name.startswith(f"{self.top}/")


class SourceFiles(Objects):
    """The files behind a URL that are packed: each as it was listed, or it is an error.

    Attributes:
        tree: the list of them that was made last; None: there is none.
    """

    def __init__(self, url: Url, options: RemoteOptions) -> None:
        super().__init__(url, options, PackError)
        self.tree: Tree | None = None

    def _begin(self, error: type[FastpipeError]) -> None:
        super()._begin(error)
        self._expected: set[Coming] = set()

    def begin(self, name: str, start: int, stop: int) -> Coming:
        """Begins to fetch a range, which must not be empty."""
        return Coming(name, start, stop, self.start(self.get(name, start, stop)))

    def expect(self, ranges: Iterable[tuple[str, int, int]]) -> list[Coming]:
        """Begins to fetch ranges; `read` takes them. Ends with `forget`."""
        begun = [self.begin(*each) for each in ranges if each[1] < each[2] <= each[1] + REQUEST_BYTES]
        self._expected.update(begun)
        return begun

    def forget(self, begun: Sequence[Coming]) -> None:
        """Drops what `expect` has begun."""
        self._expected.difference_update(begun)
        for each in begun:
            each.answer.cancel()

    def read(self, name: str, start: int, stop: int, state: FileState) -> bytes:
        """A range that may be large, or empty.

        Raises:
            PackError: it does not come, or the file is another one now.
        """
        for each in list(self._expected):
            if each.name == name and each.start <= start and stop <= each.stop:
                data = self.as_listed(name, each.answer.result(), state)
                return bytes(data[start - each.start : stop - each.start])

        async def get(start: int, stop: int) -> Answer:
            answer = await self.get(name, start, stop)
            self.as_listed(name, answer, state)
            return answer

        return b"".join(self.pieces(get, start, stop))

    def as_listed(self, name: str, answer: Answer, state: FileState) -> memoryview:
        """The bytes of an answer; raises PackError if the file is another one now."""
        now = answer.state
        if now.size_bytes != state.size_bytes or (now.mtime_ns != state.mtime_ns and not self.pinned):
            how = (
                "has another ETag"
                if now.size_bytes == state.size_bytes
                else f"had {state.size_bytes:,} bytes when it was listed, and now has {now.size_bytes:,}"
            )
            raise PackError(
                f"{self.url / name} has changed while packing: it {how}. Finished shards are kept. Wait until nothing "
                "changes the source, then run the same command again: it continues with the files as they are then"
            )
        return memoryview(answer.data)


class RemoteFile(io.RawIOBase):
    """An open file, for one thread at a time.

    Args:
        files: behind a URL.
        name: of it.
        state: as it was listed.

    Reading raises PackError: the file is another one now, or does not come.
    """

    def __init__(self, files: SourceFiles, name: str, state: FileState) -> None:
        super().__init__()
        self.state = state
        self._files, self._name = files, name
        self._held: deque[Coming] = deque()
        self._at = 0
        self._reached = 0  # where the last read ended

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """A range; shorter only where the file ends before."""
        at, stop = offset_bytes, min(offset_bytes + size_bytes, self.state.size_bytes)
        found = []
        while at < stop:
            piece = self._piece(at, stop)
            end = min(stop, piece.stop)
            data = self._files.as_listed(self._name, piece.answer.result(), self.state)
            found.append(data[at - piece.start : end - piece.start])
            at = self._reached = end
        return b"".join(found)

    def _piece(self, at: int, stop: int) -> Coming:
        """The piece that has the byte at `at`; where the file is read in line, the next ones are begun, too."""
        in_line = 0 <= at - self._reached <= _PIECE_BYTES
        found = self._begun(at, _PIECE_BYTES if in_line else min(max(stop - at, _LEAST_BYTES), _PIECE_BYTES))
        ends = found.stop
        for _ in range(_AHEAD if in_line else 0):
            if ends < self.state.size_bytes:
                ends = self._begun(ends, _PIECE_BYTES).stop
        self._held.remove(found)
        self._held.append(found)  # used last
        while len(self._held) > _HELD:
            self._held.popleft().answer.cancel()
        return found

    def _begun(self, at: int, size_bytes: int) -> Coming:
        """The piece that has the byte at `at`: one that is held, or a new one of that size."""
        for each in self._held:
            if each.start <= at < each.stop:
                return each
        self._held.append(self._files.begin(self._name, at, min(at + size_bytes, self.state.size_bytes)))
        return self._held[-1]

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

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
