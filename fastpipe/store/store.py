"""A folder, or a bucket behind a URL -> the same few verbs: list, read a range, write whole, swap, remove."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from fastpipe.format.folder import Place
from fastpipe.store.files import cannot_write, no_link

Item = TypeVar("Item")
Result = TypeVar("Result")


class NewFile(Protocol):
    """A file that nobody sees before `commit`.

    Attributes:
        path: where it is written, on this machine.
    """

    @property
    def path(self) -> Path: ...
    def commit(self, note: str = "") -> None:
        """Gives the file, which is closed and synced, its name. Raises OSError or PackError.

        Of a bucket, the file carries the note.
        """

    def discard(self) -> None:
        """Removes it, as far as that is possible."""


class Store(ABC):
    """The files of a dataset. Names have "/" between folders. Safe in threads.

    Attributes:
        place: the folder or URL.
        scratch: a folder of this machine for what is being made.
        uploaded_bytes: that were sent to a bucket.
    """

    place: Place
    scratch: Path
    uploaded_bytes = 0

    @abstractmethod
    def sizes(self, folder: str = "") -> dict[str, int]:
        """The sizes in bytes of the files that lie in a folder, by their names in it."""

    @abstractmethod
    def any_other(self) -> str | None:
        """The name of something that is there besides a work folder; None: there is nothing."""

    @abstractmethod
    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """A range of a file; None: to its end.

        Raises:
            FileNotFoundError: there is none.
            PackError: it does not come.
        """

    @abstractmethod
    def new_file(self, name: str) -> NewFile:
        """A file to be written; raises OSError or PackError."""

    @abstractmethod
    def swap(self, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        """Writes a small file if its content is still `old`; None: if there is none. False: it is not.

        Of a bucket, the file carries the note.
        """

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Removes files, if they are there, and folders in which nothing is left."""

    @abstractmethod
    def written_ns(self, name: str) -> int:
        """When a file was written, in nanoseconds since 1970; of a bucket, by the server's clock."""

    def note(self, name: str) -> str:
        """The note that a file carries; "": none, or there is no such file."""
        return ""

    def check_room(self, needed_bytes: int) -> None:  # noqa: B027 (in a folder, the disk says it when it is full)
        """Looks whether there is room for what is being made at a time; raises PackError."""

    def close(self) -> None:  # noqa: B027 (a folder has nothing to close)
        """Gives up what is under way."""

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """What `work`, which reads a little, gives for each item, in order; of a bucket, for several at a time."""
        return map(work, items)

    @contextlib.contextmanager
    def whole(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file to write. When the block ends well, it is there, whole; else it is not.

        Raises:
            PackError: the disk or server refuses; the message names the file.
        """
        shown = f"{self.place}/{name}"
        try:
            new = self.new_file(name)
        except OSError as problem:
            raise cannot_write(shown, problem) from problem
        try:
            with open(new.path, "wb", opener=no_link) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            new.commit()
        except BaseException as problem:
            new.discard()
            if isinstance(problem, OSError):
                raise cannot_write(shown, problem) from problem
            raise

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Writes a small file; see `whole`."""
        with self.whole(name) as file:
            file.write(data)
