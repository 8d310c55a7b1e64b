"""Files of a source behind a URL -> listed and looked up as pathlib does it; read in advance."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.open_file import FileState, changed_error
from fastpipe.errors import FastpipeError, PackError
from fastpipe.store.remote.objects import REQUEST_BYTES, Answer, Objects
from fastpipe.store.remote.options import RemoteOptions

# A file that is read in order is fetched in pieces of this size, some of them ahead.
_PIECE_BYTES = 4 << 20
_PIECES_AHEAD = 3
# The least that is fetched at any other place, such as a header or a footer.
_MIN_PIECE_BYTES = 64 << 10
_MAX_PIECES_HELD = 6


@dataclass(eq=False)
class Coming:
    """A range of a file that is under way."""

    name: str
    start: int
    stop: int
    answer: Future[Answer]

    def covers(self, name: str, start: int, stop: int) -> bool:
        """Whether it has all bytes of a range."""
        if self.name != name:
            return False
        return self.start <= start and stop <= self.stop


class Tree:
    """All files below a folder."""

    def __init__(
        self, listed: Callable[[str], Iterable[tuple[str, FileState]]], top: str
    ) -> None:
        self.top = top
        # The state of each file, by its name.
        self.files: dict[str, FileState] = {}
        # The names in each folder, of files and of folders, in the order of the list.
        self.folders: dict[str, dict[str, None]] = {top: {}}
        for name, state in listed(top):
            self.files[name] = state
            self._add_to_folders(name)
        # Some programs mark a folder by an empty object of its name.
        for folder in self.folders:
            marker = self.files.get(folder)
            if marker is not None and marker.size_bytes == 0:
                del self.files[folder]

    def _add_to_folders(self, name: str) -> None:
        """Adds a name to its folder, and each new folder to the one above it."""
        while name != self.top:
            folder, _, last_part = name.rpartition("/")
            names = self.folders.setdefault(folder, {})
            if last_part in names:
                return
            names[last_part] = None
            name = folder

    def covers(self, name: str) -> bool:
        """Whether a name is that of the folder, or of a file or folder below it."""
        if self.top in ("", name):
            return True
        return name.startswith(f"{self.top}/")


class SourceFiles(Objects):
    """The files behind a URL that are packed. A file that changed since the list is an error."""

    def __init__(self, url: Url, options: RemoteOptions) -> None:
        super().__init__(url, options, PackError)
        # The last list.
        self.tree: Tree | None = None

    def _begin(self, error: type[FastpipeError]) -> None:
        super()._begin(error)
        # The ranges that `expect` began, by its number.
        self._expected: dict[int, list[Coming]] = {}

    def begin(self, name: str, start: int, stop: int) -> Coming:
        """Begins to fetch a range."""
        request = self.get(name, start, stop)
        answer = self.start(request)
        return Coming(name, start, stop, answer)

    def expect(self, number: int, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Begins to fetch ranges (name, start, stop) that `read` will ask for.

        `forget`, with the same number, drops them.
        """
        coming: list[Coming] = []
        for name, start, stop in ranges:
            most_stop = start + REQUEST_BYTES
            # `read` fetches a larger range in pieces.
            if start < stop <= most_stop:
                coming.append(self.begin(name, start, stop))
        self._expected[number] = coming

    def forget(self, number: int) -> None:
        for coming in self._expected.pop(number):
            coming.answer.cancel()

    def read(self, name: str, start: int, stop: int, state: FileState) -> bytes:
        """Reads a range, which may be large, or empty.

        Raises:
            PackError: the range cannot be fetched, or the file was changed.
        """
        coming = self._find_expected(name, start, stop)
        if coming is not None:
            answer = coming.answer.result()
            data = self.as_listed(name, answer, state)
            first = start - coming.start
            end = stop - coming.start
            return bytes(data[first:end])

        async def get(piece_start: int, piece_stop: int) -> Answer:
            answer = await self.get(name, piece_start, piece_stop)
            self.as_listed(name, answer, state)
            return answer

        pieces = self.pieces(get, start, stop)
        return b"".join(pieces)

    def _find_expected(self, name: str, start: int, stop: int) -> Coming | None:
        # A copy, because other threads add and drop.
        expected = self._expected.copy()
        for ranges in expected.values():
            for coming in ranges:
                if coming.covers(name, start, stop):
                    return coming
        return None

    def as_listed(self, name: str, answer: Answer, state: FileState) -> memoryview:
        """The bytes of an answer. Raises PackError if the file was changed since it was listed."""
        state_now = answer.state
        if state_now.size_bytes != state.size_bytes:
            reason = (
                f"it had {state.size_bytes:,} bytes when it was listed, and now has "
                f"{state_now.size_bytes:,}"
            )
            raise changed_error(self.url / name, f": {reason}")
        has_other_etag = state_now.mtime_ns != state.mtime_ns
        if has_other_etag and not self.pinned:
            raise changed_error(self.url / name, ": it has another ETag")
        return memoryview(answer.data)


class RemoteFile(io.RawIOBase):
    """An open file, for one thread at a time.

    Raises:
        PackError: the file was changed, or cannot be fetched.
    """

    def __init__(self, files: SourceFiles, name: str, state: FileState) -> None:
        super().__init__()
        self.state = state
        self._files = files
        self._name = name
        # The pieces that are there or under way. The one that was used last is at the end.
        self._held: deque[Coming] = deque()
        self._position = 0
        # The end of the last read.
        self._last_stop = 0

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """Reads a range; it is shorter only at the end of the file.

        If the file is read in order, the next pieces are begun, too.
        """
        offset = offset_bytes
        wanted_stop = offset_bytes + size_bytes
        stop = min(wanted_stop, self.state.size_bytes)
        parts: list[memoryview] = []
        while offset < stop:
            skipped_bytes = offset - self._last_stop
            is_in_order = 0 <= skipped_bytes <= _PIECE_BYTES
            piece_bytes = _PIECE_BYTES
            if not is_in_order:
                missing_bytes = max(stop - offset, _MIN_PIECE_BYTES)
                piece_bytes = min(missing_bytes, _PIECE_BYTES)
            piece = self._piece_at(offset, piece_bytes)
            # The piece was used last, so it moves to the end and is dropped last.
            self._held.remove(piece)
            self._held.append(piece)
            if is_in_order:
                self._begin_ahead(piece.stop)
            while len(self._held) > _MAX_PIECES_HELD:
                unused_piece = self._held.popleft()
                unused_piece.answer.cancel()

            end = min(stop, piece.stop)
            answer = piece.answer.result()
            data = self._files.as_listed(self._name, answer, self.state)
            first_in_piece = offset - piece.start
            end_in_piece = end - piece.start
            parts.append(data[first_in_piece:end_in_piece])
            offset = end
            self._last_stop = end
        return b"".join(parts)

    def _begin_ahead(self, offset: int) -> None:
        for _ in range(_PIECES_AHEAD):
            if offset >= self.state.size_bytes:
                return
            piece = self._piece_at(offset, _PIECE_BYTES)
            offset = piece.stop

    def _piece_at(self, offset: int, size_bytes: int) -> Coming:
        """The piece that has a byte: one that is held, or a new one of this size."""
        for piece in self._held:
            if piece.start <= offset < piece.stop:
                return piece
        wanted_stop = offset + size_bytes
        stop = min(wanted_stop, self.state.size_bytes)
        piece = self._files.begin(self._name, offset, stop)
        self._held.append(piece)
        return piece

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origins = {
            os.SEEK_SET: 0,
            os.SEEK_CUR: self._position,
            os.SEEK_END: self.state.size_bytes,
        }
        position = origins[whence] + offset
        self._position = max(0, position)
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")  # of bytes
        data = self.read_at(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        for piece in self._held:
            piece.answer.cancel()
        self._held.clear()
        super().close()


@dataclass(frozen=True, slots=True, repr=False)
class RemotePath:
    """A file or folder behind a URL, with the methods of pathlib.Path that listing a source needs.

    It is not an os.PathLike: the functions of `os` refuse it. `sources/files` has other functions
    for it.
    """

    # The files behind the URL of its bucket or server.
    objects: SourceFiles
    _path: PurePosixPath

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return RemotePath(self.objects, self._path / name)

    def __str__(self) -> str:
        if not self.key:
            return str(self.objects.url)
        return str(self.objects.url / self.key)

    @property
    def key(self) -> str:
        """Its name in the bucket; "" is the bucket."""
        key = str(self._path)
        if key == ".":
            return ""
        return key

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def suffix(self) -> str:
        return self._path.suffix

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.objects, self._path.parent)

    def resolve(self) -> RemotePath:
        return self

    def apart(self) -> RemotePath:
        """This path, with requests of its own: see `Objects.apart`."""
        return RemotePath(self.objects.apart(), self._path)

    def forget(self) -> None:
        """Drops the list of files, which may be large. The Hub needs it to open files."""
        if not self.objects.pinned:
            self.objects.tree = None

    def look_up(self, names: Sequence[str]) -> list[FileState | None]:
        """The states of files below it, many at a time; None if there is no such file."""
        keys = [(self / name).key for name in names]
        # No object has such a name, and some servers answer it with another file.
        valid = [key for key in keys if _is_valid_key(key)]
        tree = self._known_tree()
        if tree is None:
            states = self.objects.stats(valid)
        else:
            states = [tree.files.get(key) for key in valid]
        state_of_key = dict(zip(valid, states, strict=True))
        return [state_of_key.get(key) for key in keys]

    def state(self) -> FileState:
        """The state of a file.

        Raises:
            FileNotFoundError: there is no such file.
            PackError: the server does not answer.
        """
        (state,) = self.look_up([""])
        if state is None:
            raise FileNotFoundError(2, "no such file", str(self))
        return state

    def is_file(self) -> bool:
        (state,) = self.look_up([""])
        return state is not None

    def is_dir(self) -> bool:
        """Whether it is a folder. A web server has no lists: a name without a suffix is one."""
        if not self.objects.has_lists:
            return not self.suffix
        tree = self._known_tree()
        if tree is not None:
            return bool(tree.folders.get(self.key))
        if self.is_file():
            return False
        listed = self.objects.listed(self.key)
        first = next(iter(listed), None)
        return first is not None

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def read_bytes(self) -> bytes:
        """The whole content of a small file. Errors as of `state`."""
        state = self.state()
        return self.objects.read(self.key, 0, state.size_bytes, state)

    def open(self) -> RemoteFile:
        return RemoteFile(self.objects, self.key, self.state())

    def listed(self) -> list[tuple[str, bool]]:
        """The names in a folder, and whether each is a folder's. A name may be both.

        Raises:
            PackError: the server has no lists.
        """
        tree = self._list()
        folders: list[tuple[str, bool]] = []
        files: list[tuple[str, bool]] = []
        for name in tree.folders.get(self.key, ()):
            key = (self / name).key
            if key in tree.folders:
                folders.append((name, True))
            if key in tree.files:
                files.append((name, False))
        return folders + files

    def files_below(self) -> Iterator[str]:
        """The paths of all files below a folder, relative to it. Errors as of `listed`."""
        prefix = ""
        if self.key:
            prefix = f"{self.key}/"
        tree = self._list()
        for name in tree.files:
            if name.startswith(prefix):
                yield name.removeprefix(prefix)

    def _known_tree(self) -> Tree | None:
        """The last list, if it has this path; otherwise None.

        The Hub is always asked for lists: see `Objects.pinned`.
        """
        tree = self.objects.tree
        if tree is not None and tree.covers(self.key):
            return tree
        if not self.objects.pinned:
            return None
        parent, _, _ = self.key.rpartition("/")
        tree = Tree(self.objects.listed, parent)
        self.objects.tree = tree
        return tree

    def _list(self) -> Tree:
        if not self.objects.has_lists:
            raise PackError(
                f"{self}: a web server has no list of its files; expected a file: a tar, a Parquet "
                "file, or one that lists the images (CSV, JSONL, COCO)"
            )
        tree = self._known_tree()
        if tree is None:
            tree = Tree(self.objects.listed, self.key)
            self.objects.tree = tree
        return tree


def _is_valid_key(key: str) -> bool:
    if not key or key.startswith("/"):
        return False
    return ".." not in key.split("/")


def remote_path(url: Url, options: RemoteOptions) -> RemotePath:
    """The path of a URL.

    Raises:
        ConfigError: obstore is not installed, or an option is unknown.
    """
    parts = url.path.split("/")
    # The bucket is the first part. On the Hub it is datasets/ORG/NAME.
    num_bucket_parts = 1
    if url.scheme == "hf":
        num_bucket_parts = 3
    key_parts = parts[num_bucket_parts:]
    key = "/".join(key_parts)
    bucket = url.removesuffix(f"/{key}")
    objects = SourceFiles(Url(bucket), options)
    # Names in buckets have no escapes.
    if url.is_web:
        key = unquote(key)
    return RemotePath(objects, PurePosixPath(key))
