"""A path of a source, on this machine or behind a URL -> its state, its bytes, and the names in a folder.

All that tells the two apart while a source is listed and read stands here, and in `reading`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias, cast

from fastpipe.format.folder import Url
from fastpipe.format.read_at import read_at
from fastpipe.remote.urls import place_of

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions
    from fastpipe.remote.remote_path import RemotePath

SourcePath: TypeAlias = "Path | RemotePath"
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # no waiting for the writer of a pipe


class Status(Protocol):
    """What os.stat tells. Of a file behind a URL, st_mtime_ns names its content: see `remote.objects.Facts`."""

    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...
    @property
    def st_mode(self) -> int: ...


class OpenFile(Protocol):
    """An open file, read by ranges."""

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """A range; shorter only where the file ends before."""

    def status(self) -> Status:
        """As it is now."""

    def close(self) -> None:
        """Closes it."""


def source_path(data: str | os.PathLike[str], remote: RemoteOptions | None = None) -> SourcePath:
    """The path of a source, or of an image root.

    Args:
        data: a path, or a URL.
        remote: credentials for a URL.

    Raises:
        ConfigError: a URL that nobody reads.
    """
    found = place_of(data)
    if not isinstance(found, Url):
        return Path(cast("str | os.PathLike[str]", found))
    from fastpipe.remote.options import RemoteOptions  # most sources are on this machine
    from fastpipe.remote.remote_path import remote_path

    return remote_path(found, remote or RemoteOptions())


def status(root: SourcePath, path: str) -> Status:
    """The state of a file below a folder.

    Raises:
        OSError: there is none, or it cannot be looked at.
    """
    if isinstance(root, Path):
        return os.stat(os.path.join(root, path))  # a Path for each of a million files would take seconds
    return (root / path).stat()


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

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
