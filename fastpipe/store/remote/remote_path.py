"""Files of a source behind a URL -> listed and looked up as pathlib does it; read as they were listed, in advance."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from fastpipe.errors import FastpipeError, PackError
from fastpipe.format.folder import Url
from fastpipe.format.open_file import FileState, changed
from fastpipe.store.remote.objects import REQUEST_BYTES, Answer, Objects
from fastpipe.store.remote.options import RemoteOptions

_PIECE_BYTES = 4 << 20
_AHEAD = 3  # pieces
_LEAST_BYTES = 64 << 10  # of a piece somewhere else: a header, a footer
_HELD = 6


@dataclass(eq=False)
class Coming:
    """A range of a file that is on its way."""

    name: str
    start: int
    stop: int
    answer: Future[Answer]


class Tree:
    """All files below a folder."""

    def __init__(self, listed: Callable[[str], Iterable[tuple[str, FileState]]], top: str) -> None:
        self.top = top
        self.files: dict[str, FileState] = {}  # by name
        self.folders: dict[str, dict[str, None]] = {top: {}}  # the names in each, of files and of folders
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
        return not self.top or name == self.top or name.startswith(f"{self.top}/")


class SourceFiles(Objects):
    """The files behind a URL that are packed: each as it was listed, or it is an error."""

    def __init__(self, url: Url, options: RemoteOptions) -> None:
        super().__init__(url, options, PackError)
        self.tree: Tree | None = None  # the list that was made last

    def _begin(self, error: type[FastpipeError]) -> None:
        super()._begin(error)
        self._expected: dict[int, list[Coming]] = {}  # by the number of who expects them

    def begin(self, name: str, start: int, stop: int) -> Coming:
        return Coming(name, start, stop, self.start(self.get(name, start, stop)))

    def expect(self, number: int, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Begins to fetch ranges; `read` takes them. Ends with `forget`."""
        small = (each for each in ranges if each[1] < each[2] <= each[1] + REQUEST_BYTES)
        self._expected[number] = [self.begin(*each) for each in small]

    def forget(self, number: int) -> None:
        for each in self._expected.pop(number):
            each.answer.cancel()

    def read(self, name: str, start: int, stop: int, state: FileState) -> bytes:
        """A range that may be large, or empty. PackError: it does not come, or the file is another one now."""
        for each in chain(*self._expected.copy().values()):
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
            how = "it has another ETag"
            if now.size_bytes != state.size_bytes:
                how = f"it had {state.size_bytes:,} bytes when it was listed, and now has {now.size_bytes:,}"
            raise changed(self.url / name, f": {how}")
        return memoryview(answer.data)


class RemoteFile(io.RawIOBase):
    """An open file, for one thread at a time. PackError: it is another one now, or does not come."""

    def __init__(self, files: SourceFiles, name: str, state: FileState) -> None:
        super().__init__()
        self.state = state
        self._files, self._name = files, name
        self._held: deque[Coming] = deque()
        self._at = 0
        self._reached = 0  # where the last read ended

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """A range; shorter only where the file ends before. Read in line, the next pieces are begun, too."""
        at, stop = offset_bytes, min(offset_bytes + size_bytes, self.state.size_bytes)
        found = []
        while at < stop:
            in_line = 0 <= at - self._reached <= _PIECE_BYTES
            piece = self._begun(at, _PIECE_BYTES if in_line else min(max(stop - at, _LEAST_BYTES), _PIECE_BYTES))
            self._held.remove(piece)
            self._held.append(piece)  # used last
            ahead = piece.stop
            for _ in range(_AHEAD if in_line else 0):
                if ahead < self.state.size_bytes:
                    ahead = self._begun(ahead, _PIECE_BYTES).stop
            while len(self._held) > _HELD:
                self._held.popleft().answer.cancel()
            end = min(stop, piece.stop)
            data = self._files.as_listed(self._name, piece.answer.result(), self.state)
            found.append(data[at - piece.start : end - piece.start])
            at = self._reached = end
        return b"".join(found)

    def _begun(self, at: int, size_bytes: int) -> Coming:
        """The piece that has the byte at `at`: one that is held, or a new one of that size."""
        for each in self._held:
            if each.start <= at < each.stop:
                return each
        self._held.append(self._files.begin(self._name, at, min(at + size_bytes, self.state.size_bytes)))
        return self._held[-1]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.state.size_bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read_at(len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        for piece in self._held:
            piece.answer.cancel()
        self._held.clear()
        super().close()


@dataclass(frozen=True, slots=True, repr=False)
class RemotePath:
    """A file or folder behind a URL, with the methods of pathlib.Path that listing a source needs.

    It is no os.PathLike: the functions of `os` refuse it, and `sources/files` has others in their place.
    """

    objects: SourceFiles  # the files behind the URL of its bucket or server
    _at: PurePosixPath

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return RemotePath(self.objects, self._at / name)

    def __str__(self) -> str:
        return str(self.objects.url / self.key if self.key else self.objects.url)

    @property
    def key(self) -> str:
        """Its name in the bucket; "" is the bucket."""
        key = str(self._at)
        return "" if key == "." else key

    @property
    def name(self) -> str:
        return self._at.name

    @property
    def suffix(self) -> str:
        return self._at.suffix

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.objects, self._at.parent)

    def resolve(self) -> RemotePath:
        return self

    def apart(self) -> RemotePath:
        """This path, with requests of its own: see `Objects.apart`."""
        return RemotePath(self.objects.apart(), self._at)

    def forget(self) -> None:
        """Drops the list of files that was made, which may be large. That of the Hub is needed to open files."""
        if not self.objects.pinned:
            self.objects.tree = None

    def look_up(self, names: Sequence[str]) -> list[FileState | None]:
        """The states of files below it, many at a time; None where there is no such file."""
        keys = [(self / name).key for name in names]
        wanted = [key for key in keys if key and not key.startswith("/") and ".." not in key.split("/")]
        tree = self._listed()
        states = self.objects.stats(wanted) if tree is None else map(tree.files.get, wanted)
        found = dict(zip(wanted, states, strict=True))
        return [found.get(key) for key in keys]

    def state(self) -> FileState:
        """Of a file. FileNotFoundError: there is no such file. PackError: the server does not tell."""
        (found,) = self.look_up([""])
        if found is None:
            raise FileNotFoundError(2, "no such file", str(self))
        return found

    def is_file(self) -> bool:
        return self.look_up([""]) != [None]

    def is_dir(self) -> bool:
        """A web server has no lists: every name without an ending is called a folder."""
        if not self.objects.has_lists:
            return not self.suffix
        tree = self._listed()
        if tree is None:
            return not self.is_file() and any(True for _ in self.objects.listed(self.key))
        return bool(tree.folders.get(self.key))

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def read_bytes(self) -> bytes:
        """The whole content of a small file; errors as of `state`."""
        state = self.state()
        return self.objects.read(self.key, 0, state.size_bytes, state)

    def open(self) -> RemoteFile:
        return RemoteFile(self.objects, self.key, self.state())

    def listed(self) -> list[tuple[str, bool]]:
        """Names in a folder, and whether each is a folder's; it may be a file's, too. PackError: there are no lists."""
        tree = self._list()
        names = [(name, (self / name).key) for name in tree.folders.get(self.key, ())]
        folders = [(name, True) for name, key in names if key in tree.folders]
        return folders + [(name, False) for name, key in names if key in tree.files]

    def files_below(self) -> Iterator[str]:
        """Paths of all files below a folder, relative to it; errors as of `listed`."""
        below = f"{self.key}/" if self.key else ""
        return (name.removeprefix(below) for name in self._list().files if name.startswith(below))

    def _listed(self) -> Tree | None:
        """The list that has it, if there is one. The Hub is always asked for lists: see `Objects.pinned`."""
        tree = self.objects.tree
        if (tree is None or not tree.covers(self.key)) and self.objects.pinned:
            self.objects.tree = tree = Tree(self.objects.listed, self.key.rpartition("/")[0])
        return tree if tree is not None and tree.covers(self.key) else None

    def _list(self) -> Tree:
        if not self.objects.has_lists:
            raise PackError(
                f"{self}: a web server has no list of its files; expected a file: a tar, a Parquet file, or one that "
                "lists the images (CSV, JSONL, COCO)"
            )
        tree = self._listed()
        if tree is None:
            self.objects.tree = tree = Tree(self.objects.listed, self.key)
        return tree


def remote_path(url: Url, options: RemoteOptions) -> RemotePath:
    """The path of a URL. ConfigError: obstore is not installed, or an option is unknown."""
    parts = url.path.split("/")
    top = 3 if url.scheme == "hf" else 1  # datasets/ORG/NAME, or the bucket
    key = "/".join(parts[top:])
    objects = SourceFiles(Url(url.removesuffix(f"/{key}")), options)
    return RemotePath(objects, PurePosixPath(unquote(key) if url.is_web else key))
