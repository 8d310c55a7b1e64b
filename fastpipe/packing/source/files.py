"""A path of a source, on this machine or behind a URL -> its state, its bytes, and the names in a folder.

All that tells the two apart while a source is listed and read stands here, and in `reading`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias, cast

from fastpipe.errors import PackError, readable
from fastpipe.format.file_state import FileState, state_of
from fastpipe.format.folder import Url
from fastpipe.format.read_at import read_at
from fastpipe.remote.urls import place_of

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions
    from fastpipe.remote.remote_path import RemotePath


SourcePath: TypeAlias = "Path | RemotePath"
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # no waiting for the writer of a pipe


class OpenFile(Protocol):
    """An open file, read by ranges."""

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """A range; shorter only where the file ends before."""

    @property
    def state(self) -> FileState:
        """As it is now; behind a URL as it was listed: reading finds out whether it still is."""

    def close(self) -> None:
        """Closes it."""


def source_path(data: str | os.PathLike[str], remote: RemoteOptions | None = None) -> SourcePath:
    """The path of a source, or of an image root.

    Raises:
        ConfigError: a URL that nobody reads.
    """
    found = place_of(data)
    if not isinstance(found, Url):
        return Path(cast("str | os.PathLike[str]", found))
    from fastpipe.remote.options import RemoteOptions  # most sources are on this machine
    from fastpipe.remote.remote_path import remote_path

    return remote_path(found, remote or RemoteOptions())


def state_at(root: SourcePath, path: str) -> FileState:
    """The state of a file below a folder.

    Raises:
        OSError: there is none, or it cannot be looked at.
    """
    if isinstance(root, Path):
        return state_of(os.stat(os.path.join(root, path)))  # a Path for each of a million files would take seconds
    return (root / path).state()


def opened(path: SourcePath) -> OpenFile:
    """Opens a file to read ranges of it.

    Raises:
        OSError: it cannot be opened.
    """
    return _LocalFile(path) if isinstance(path, Path) else path.open()


def open_binary(path: SourcePath) -> BinaryIO:
    """Opens a file as `open(path, "rb")` does.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, "rb") if isinstance(path, Path) else cast("BinaryIO", path.open_buffered())


@contextmanager
def open_unchanged(path: SourcePath) -> Iterator[BinaryIO]:
    """Opens a file that must not change while it is read.

    Raises:
        PackError: it has, or it cannot be read.
    """
    try:
        with open_binary(path) as file:
            before = state_at(path.parent, path.name)
            yield file
            after = state_at(path.parent, path.name)
    except OSError as problem:
        raise PackError(f"cannot read {readable(str(path))}: {problem.strerror}") from problem
    if before[:2] != after[:2]:
        raise PackError(
            f"{readable(str(path))} has changed while it was read; wait until nothing changes it, then run the same "
            "command again"
        )


def folders_and_files(root: SourcePath) -> tuple[list[str], list[str]]:
    """The names in a folder, sorted: of folders, and of all else.

    Raises:
        OSError, PackError: it cannot be listed.
    """
    if not isinstance(root, Path):
        return root.listed()
    folders, files = list[str](), list[str]()
    with os.scandir(root) as entries:
        for each in sorted(entries, key=lambda entry: entry.name):
            (folders if _is_folder(each) else files).append(each.name)
    return folders, files


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        return False  # a link to itself is a file that cannot be read


def names_in(folder: SourcePath) -> list[str]:
    """All names in a folder.

    Raises:
        OSError, PackError: it cannot be listed.
    """
    if isinstance(folder, Path):
        return os.listdir(folder)
    folders, files = folder.listed() if folder.objects.has_lists else ([], [])
    return folders + files


class _LocalFile:
    """See OpenFile."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, FLAGS)

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        return read_at(self._descriptor, size_bytes, offset_bytes)

    @property
    def state(self) -> FileState:
        return state_of(os.fstat(self._descriptor))

    def close(self) -> None:
        os.close(self._descriptor)


def entries_of(folder: SourcePath) -> dict[str, bool]:
    """Name -> whether it is a folder, sorted.

    Raises:
        PackError: the folder cannot be listed.
    """
    try:
        folders, files = folders_and_files(folder)
    except OSError as problem:
        raise _cannot_be_listed(problem) from problem
    found = {**dict.fromkeys(folders, True), **dict.fromkeys(files, False)}
    return {name: found[name] for name in sorted(found) if not name.startswith(".")}


def files_below(root: SourcePath) -> list[str]:
    """The paths of all files below a folder, relative to it, with "/".

    Raises:
        PackError: a folder cannot be listed.
    """
    if not isinstance(root, Path):
        return [path for path in root.files_below() if not any(part.startswith(".") for part in path.split("/"))]

    def refuse(problem: OSError) -> None:
        raise _cannot_be_listed(problem) from problem

    found = []
    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        prefix = os.path.relpath(folder, root).replace(os.sep, "/") + "/"
        found += [prefix.removeprefix("./") + name for name in files if not name.startswith(".")]
    return found


def _cannot_be_listed(problem: OSError) -> PackError:
    return PackError(f"{readable(str(problem.filename))} cannot be listed: {problem.strerror}")
