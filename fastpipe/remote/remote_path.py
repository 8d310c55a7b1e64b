"""A URL of a source -> a path: what pathlib tells of files on this machine, told of files behind a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

from fastpipe.errors import ConfigError, PackError
from fastpipe.format.folder import Url
from fastpipe.format.open_file import FileState
from fastpipe.remote.options import RemoteOptions
from fastpipe.remote.remote_file import Coming, RemoteFile, SourceFiles, Tree


class RemotePath:
    """A file or folder behind a URL, with the methods of pathlib.Path that listing a source needs.

    It is no os.PathLike: the functions of `os` refuse it, and `packing/source/files` has others in their place.

    Attributes:
        objects: the files behind the URL of its bucket or server.
    """

    __slots__ = ("_at", "objects")

    def __init__(self, objects: SourceFiles, at: PurePosixPath) -> None:
        self.objects = objects
        self._at = at

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        return RemotePath(self.objects, self._at / name)

    def __str__(self) -> str:
        return str(self.objects.url / self.key if self.key else self.objects.url)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

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
        return RemotePath(self.objects, self._at.parent)

    def resolve(self) -> RemotePath:
        """Itself: there are no links."""
        return self

    def apart(self) -> RemotePath:
        """The same, with requests of its own: see `Objects.apart`."""
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
        """Of a file.

        Raises:
            FileNotFoundError: there is no such file.
            PackError: the server does not tell.
        """
        (found,) = self.look_up([""])
        if found is None:
            raise FileNotFoundError(2, "no such file", str(self))
        return found

    def is_file(self) -> bool:
        """Whether there is such a file."""
        return self.look_up([""]) != [None]

    def is_dir(self) -> bool:
        """Whether it is a folder. Of a web server, which has no lists, every name without an ending is called one."""
        if not self.objects.has_lists:
            return not self.suffix
        tree = self._listed()
        if tree is None:
            return not self.is_file() and any(True for _ in self.objects.listed(self.key))
        return bool(tree.folders.get(self.key))

    def exists(self) -> bool:
        """Whether there is such a file or folder."""
        return self.is_file() or self.is_dir()

    def read_bytes(self) -> bytes:
        """The whole content of a small file; errors as of `state`."""
        state = self.state()
        return self.objects.read(self.key, 0, state.size_bytes, state)

    def read_as_listed(self, start: int, stop: int, state: FileState) -> bytes:
        """A range of a file that was listed; see `SourceFiles.read`."""
        return self.objects.read(self.key, start, stop, state)

    def open(self) -> RemoteFile:
        """Opens it to read; errors as of `state`."""
        return RemoteFile(self.objects, self.key, self.state())

    def listed(self) -> tuple[list[str], list[str]]:
        """Names of the folders and of the files in a folder, sorted. PackError: the server has no lists."""
        tree = self._list()
        names = sorted(tree.folders.get(self.key, ()))
        inner = [(name, f"{self.key}/{name}" if self.key else name) for name in names]
        return (
            [name for name, key in inner if key in tree.folders],
            [name for name, key in inner if key in tree.files],
        )

    def files_below(self) -> Iterator[str]:
        """Paths of all files below a folder, relative to it; errors as of `listed`."""
        below = f"{self.key}/" if self.key else ""
        return (name.removeprefix(below) for name in self._list().files if name.startswith(below))

    def expect(self, ranges: Sequence[tuple[str, int, int]]) -> list[Coming]:
        """Begins to fetch ranges of files below it; see `SourceFiles.expect`."""
        return self.objects.expect([((self / name).key, start, stop) for name, start, stop in ranges])

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
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    top = 3 if scheme.lower() == "hf" else 1  # datasets/ORG/NAME, or the bucket
    if len(parts) < top:
        raise ConfigError(f"expected {scheme}://datasets/ORG/NAME, got {url}")
    objects = SourceFiles(Url(f"{scheme}://{'/'.join(parts[:top])}"), options)
    key = "/".join(parts[top:])
    return RemotePath(objects, PurePosixPath(unquote(key) if scheme.lower() in ("http", "https") else key))
