"""The files of a spool that all workers see: in a shared folder or behind a URL. Each is whole or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from fastpipe.errors import PackError
from fastpipe.format.folder import Place
from fastpipe.format.read_at import read_at
from fastpipe.packing.output.files import PARTIAL, cannot_write, make_in_shared, no_link, publish
from fastpipe.remote.options import RemoteOptions


class SpoolStore(ABC):
    """The files of a spool. Writing one twice, also at the same time, leaves one that is whole.

    Attributes:
        read_bytes: that are best read at once.
    """

    read_bytes = 1 << 20  # they stay in a core's cache

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Name -> size in bytes of the files that there are."""

    @abstractmethod
    def read_at(self, name: str, at: int, size_bytes: int) -> bytes:
        """A range of a file; raises OSError or PackError."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A small file.

        Raises:
            FileNotFoundError: there is none.
        """

    @abstractmethod
    def write(self, name: str, pieces: Iterable[bytes | memoryview], *, synced: bool = True) -> None:
        """Writes a file.

        Args:
            name: of it.
            pieces: its bytes.
            synced: they are on the disk when it has its name, and outlive a failure of the machine.

        Raises:
            PackError: the disk or server refuses.
        """

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Removes files."""

    @abstractmethod
    def end(self) -> None:
        """Removes the folder, if it is one and nothing is left in it."""


def store_of(spool: Place, remote: RemoteOptions | None) -> SpoolStore:
    """The store in a folder or behind a URL."""
    return _Folder(spool) if isinstance(spool, Path) else _Bucket(spool, remote or RemoteOptions())


class _Folder(SpoolStore):
    def __init__(self, folder: Path) -> None:
        if folder.is_symlink():
            raise PackError(f"{folder} is a link; expected a folder, because packing writes only into its destination")
        self._folder = folder

    def sizes(self) -> dict[str, int]:
        sizes = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for each in entries:
                with contextlib.suppress(FileNotFoundError):  # another worker has renamed or removed it
                    if each.is_file(follow_symlinks=False):
                        sizes[each.name] = each.stat().st_size
        return sizes

    def read_at(self, name: str, at: int, size_bytes: int) -> bytes:
        handle = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return read_at(handle, size_bytes, at)
        finally:
            os.close(handle)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, name: str, pieces: Iterable[bytes | memoryview], *, synced: bool = True) -> None:
        partial = self._folder / f"{name}.{uuid.uuid4().hex}{PARTIAL}"  # another worker may write the same file
        try:
            make_in_shared(self._folder)
            with open(partial, "wb", opener=no_link) as file:
                for piece in pieces:
                    file.write(piece)
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            (publish if synced else os.replace)(partial, self._folder / name)
        except BaseException as problem:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            if isinstance(problem, OSError):
                raise cannot_write(self._folder / name, problem) from problem
            raise

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.rmdir()


class _Bucket(SpoolStore):
    read_bytes = 8 << 20

    def __init__(self, url: Place, remote: RemoteOptions) -> None:
        from fastpipe.format.folder import Url
        from fastpipe.remote.objects import Objects

        self._objects = Objects(Url(url), remote, uploads=True)

    def sizes(self) -> dict[str, int]:
        return {name: facts.size_bytes for name, facts in self._objects.listed("")}

    def read_at(self, name: str, at: int, size_bytes: int) -> bytes:
        from fastpipe.remote.objects import REQUEST_BYTES

        stop = at + size_bytes
        starts = range(at, stop, REQUEST_BYTES)
        begun = [self._objects.begin(name, start, min(start + REQUEST_BYTES, stop)) for start in starts]
        return b"".join(bytes(each.result().data) for each in begun)

    def read(self, name: str) -> bytes:
        answer = self._objects.get(name)
        if answer is None:
            raise FileNotFoundError(2, "no such file", str(self._objects.url / name))
        return bytes(answer.data)

    def write(self, name: str, pieces: Iterable[bytes | memoryview], *, synced: bool = True) -> None:
        with tempfile.TemporaryFile(dir=_local_folder()) as file:  # no name: it goes with a killed worker
            for piece in pieces:
                file.write(piece)
            file.flush()
            # obstore takes a file by its path.
            self._objects.run(self._objects.put(name, Path(f"/proc/self/fd/{file.fileno()}")))

    def remove(self, names: Iterable[str]) -> None:
        self._objects.run(self._objects.remove(list(names)))

    def end(self) -> None:
        """Buckets have no folders."""


def _local_folder() -> Path:
    from fastpipe.packing.output.bucket import default_spool

    folder = default_spool()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
