"""A URL of a source -> a path: what pathlib tells of files on this machine, told of files behind a URL."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

from fastpipe.errors import ConfigError, PackError
from fastpipe.format.file_state import FileState
from fastpipe.format.folder import Url
from fastpipe.remote.objects import Objects
from fastpipe.remote.options import RemoteOptions
from fastpipe.remote.remote_file import RemoteFile


class _Tree:
    """A list of all files below a folder, kept while a source is listed.

    Attributes:
        top: the folder.
        files: all files, by name.
        folders: the names in each folder, of files and of folders.
    """

    def __init__(self, objects: Objects, top: str) -> None:
        self.top = top
        self.files: dict[str, FileState] = {}
        self.folders: dict[str, dict[str, None]] = {top: {}}
        for name, facts in objects.listed(top):
            self.files[name] = facts
            self._place(name)
        for name in self.folders:  # some programs mark a folder by an empty object of its name
            marker = self.files.get(name)
            if marker is not None and marker.size_bytes == 0:
                del self.files[name]

    def covers(self, name: str) -> bool:
        """Whether the list has it, if it is there."""
        return not self.top or name == self.top or name.startswith(f"{self.top}/")

    def _place(self, name: str) -> None:
        while name != self.top:
            folder, _, last = name.rpartition("/")
            there = self.folders.setdefault(folder, {})
            if last in there:
                return
            there[last] = None
            name = folder


class _Place:
    """What the paths of one bucket or server share."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.tree: _Tree | None = None


class RemotePath:
    """A file or folder behind a URL, with the methods of pathlib.Path that listing a source needs.

    It is no os.PathLike: the functions of `os` refuse it, and `packing/source/files` has others in their place.
    """

    __slots__ = ("_at", "_place")

    def __init__(self, place: _Place, at: PurePosixPath) -> None:
        self._place = place
        self._at = at

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return RemotePath(self._place, self._at / name)

    def __str__(self) -> str:
        return str(self._place.objects.url / self.key if self.key else self._place.objects.url)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def objects(self) -> Objects:
        """The files behind the URL of its bucket."""
        return self._place.objects

    @property
    def key(self) -> str:
        """Its name in the bucket; "" is the bucket."""
        key = str(self._at)
        return "" if key == "." else key

    @property
    def name(self) -> str:
        """The last part."""
        return self._at.name

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return self._at.stem

    @property
    def suffix(self) -> str:
        """The ending of the last part, with its dot."""
        return self._at.suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return RemotePath(self._place, self._at.parent)

    def with_name(self, name: str) -> RemotePath:
        """The same in the same folder, with another name."""
        return RemotePath(self._place, self._at.with_name(name))

    def resolve(self) -> RemotePath:
        """Itself: there are no links."""
        return self

    def apart(self) -> RemotePath:
        """The same, with requests of its own: see `Objects.apart`."""
        place = _Place(self.objects.apart())
        place.tree = self._place.tree
        return RemotePath(place, self._at)

    def forget(self) -> None:
        """Drops the list of files that was made, which may be large. That of the Hub is needed to open files."""
        if not self.objects.pinned:
            self._place.tree = None

    def look_up(self, names: Sequence[str]) -> list[FileState | None]:
        """The states of files below it, many at a time; None where there is no such file."""
        keys = [_key(self / name) for name in names]
        if self._listed(self.key) is None:
            there = iter(self.objects.stats([key for key in keys if key is not None]))
            return [None if key is None else next(there) for key in keys]
        return [None if key is None else self._state(key) for key in keys]

    def state(self) -> FileState:
        """Of a file.

        Raises:
            FileNotFoundError: there is no such file.
            PackError: the server does not tell.
        """
        key = _key(self)
        facts = None if key is None else self._state(key)
        if facts is None:
            raise FileNotFoundError(2, "no such file", str(self))
        return facts

    def is_file(self) -> bool:
        """Whether there is such a file."""
        key = _key(self)
        return key is not None and self._state(key) is not None

    def is_dir(self) -> bool:
        """Whether it is a folder. Of a web server, which has no lists, every name without an ending is called one."""
        if not self.objects.has_lists:
            return not self.suffix
        tree = self._listed(self.key)
        if tree is None:
            return not self.is_file() and self.objects.is_folder(self.key)
        return bool(tree.folders.get(self.key))

    def exists(self) -> bool:
        """Whether there is such a file or folder."""
        return self.is_file() or self.is_dir()

    def read_bytes(self) -> bytes:
        """The whole content of a small file; errors as of `state`."""
        state = self.state()
        return self.objects.read(self.key, 0, state.size_bytes, state)

    def read_as_listed(self, start: int, stop: int, state: FileState) -> bytes:
        """A range of a file that was listed; see `Objects.read`."""
        return self.objects.read(self.key, start, stop, state)

    def open(self) -> RemoteFile:
        """Opens it to read; errors as of `state`."""
        return RemoteFile(self.objects, self.key, self.state())

    def open_buffered(self) -> io.BufferedReader:
        """The same, with readline."""
        return io.BufferedReader(self.open(), 1 << 20)

    def listed(self) -> tuple[list[str], list[str]]:
        """Names of the folders and of the files in a folder, sorted.

        Raises:
            PackError: the server has no lists.
        """
        tree = self._list()
        names = sorted(tree.folders.get(self.key, ()))
        inner = [(name, f"{self.key}/{name}" if self.key else name) for name in names]
        return (
            [name for name, key in inner if key in tree.folders],
            [name for name, key in inner if key in tree.files],
        )

    def files_below(self) -> Iterator[str]:
        """Paths of all files below a folder, relative to it; errors as of `listed`."""
        start = len(self.key) + 1 if self.key else 0
        tree = self._list()
        for name in tree.files:
            if not self.key or name.startswith(f"{self.key}/"):
                yield name[start:]

    def expect(self, ranges: Sequence[tuple[str, int, int]]) -> list[object]:
        """Begins to fetch ranges of files below it; see `Objects.expect`."""
        return self.objects.expect([((self / name).key, start, stop) for name, start, stop in ranges])

    def _listed(self, key: str) -> _Tree | None:
        """The list that has this name, if there is one. The Hub is always asked for lists: see `Objects.pinned`."""
        tree = self._place.tree
        if tree is not None and tree.covers(key):
            return tree
        if self.objects.pinned:
            self._place.tree = tree = _Tree(self.objects, key.rpartition("/")[0])
            return tree
        return None

    def _list(self) -> _Tree:
        if not self.objects.has_lists:
            raise PackError(
                f"{self}: a web server has no list of its files; expected a file: a tar, a Parquet file, or one that "
                "lists the images (CSV, JSONL, COCO)"
            )
        tree = self._place.tree
        if tree is None or not tree.covers(self.key):
            self._place.tree = tree = _Tree(self.objects, self.key)
        return tree

    def _state(self, key: str) -> FileState | None:
        tree = self._listed(key)
        return self.objects.stat(key) if tree is None else tree.files.get(key)


def remote_path(url: Url, options: RemoteOptions) -> RemotePath:
    """The path of a URL.

    Raises:
        ConfigError: obstore is not installed, or an option is unknown.
    """
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    top = 3 if scheme.lower() == "hf" else 1  # datasets/ORG/NAME, or the bucket
    if len(parts) < top:
        raise ConfigError(f"expected {scheme}://datasets/ORG/NAME, got {url}")
    objects = Objects(Url(f"{scheme}://{'/'.join(parts[:top])}"), options)
    key = "/".join(parts[top:])
    return RemotePath(_Place(objects), PurePosixPath(unquote(key) if scheme.lower() in ("http", "https") else key))


def _key(path: RemotePath) -> str | None:
    """Its name in the bucket, if an object can have it."""
    key = path.key
    return None if not key or key.startswith("/") or ".." in key.split("/") else key
