"""A file with a table -> its groups of rows and the columns of each; what Parquet and Arrow have in common."""

from __future__ import annotations

import contextlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow as pa

from fastpipe.errors import PackError, readable
from fastpipe.format.file_state import FileState, state_of
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.reading import changed


class Group(NamedTuple):
    """Rows that are read together: a row group of Parquet, a record batch of Arrow.

    Attributes:
        number: in its file.
        first_row, rows: of the file.
        offset_bytes: where it begins; 0 where the file itself says that.
        size_bytes: of its columns, about, when they are not compressed.
    """

    number: int
    first_row: int
    rows: int
    offset_bytes: int
    size_bytes: int


class TableFile(ABC):
    """An open file with a table.

    Attributes:
        schema: its columns.
        is_remote: it is behind a URL.

    Raises:
        PackError: it cannot be read, or is no such table.
    """

    kind: str
    group: str  # what a group of rows is called
    schema: pa.Schema

    def __init__(self, path: SourcePath) -> None:
        self.path = path
        try:
            self._opened_as: FileState | None = None
            if isinstance(path, Path):
                self._file: pa.NativeFile = _on_this_machine(path)
            else:
                remote = path.open()
                self._opened_as = remote.state
                self._file = pa.PythonFile(remote, mode="r")
            self.is_remote = self._opened_as is not None
        except OSError as problem:
            raise PackError(f"cannot read {readable(str(path))}: {problem.strerror or problem}") from problem
        self._first = self.state()
        try:
            with self.reading("its description"):
                self._open()
        except BaseException:
            self._file.close()
            raise

    @abstractmethod
    def _open(self) -> None:
        """Reads the schema."""

    @abstractmethod
    def scan(self, column: str | None) -> Iterator[tuple[Group, list[pa.Array]]]:
        """All groups, each with the values of one column."""

    @abstractmethod
    def read(self, group: Group, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in order, a few at a time."""

    def state(self) -> FileState:
        """Of the open file, as it is now."""
        if self._opened_as is not None:
            return self._opened_as
        return state_of(os.fstat(self._file.fileno()))

    def is_replaced(self) -> bool:
        """Whether there is another file at its path now. Of one behind a URL, each read finds that out."""
        if not isinstance(self.path, Path):
            return False
        try:
            return state_of(os.stat(self.path))[:2] != self._first[:2]
        except FileNotFoundError:
            return True

    @contextlib.contextmanager
    def reading(self, part: str) -> Iterator[None]:
        """Names the file and the part of it that cannot be read."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, EOFError, KeyError, IndexError) as problem:
            if self.state()[:2] != self._first[:2]:
                raise changed(self.path) from problem
            said = " ".join(str(problem).split())[:300]
            raise PackError(
                f"{readable(str(self.path))}, {part}: cannot be read as {self.kind}: {readable(said)}. The file is "
                "damaged or incomplete: get it again, or leave it out. Finished shards are kept"
            ) from problem
        except MemoryError as problem:  # pyarrow's own is one, too
            raise PackError(
                f"{readable(str(self.path))}, {part}: not enough memory to read it. Finished shards are kept. Run the "
                "same command again where there is more memory"
            ) from problem

    def damaged(self, part: str, what: str) -> PackError:
        """The error for a file that contradicts itself."""
        return PackError(
            f"{readable(str(self.path))}, {part}: {what}. The file is damaged or incomplete: get it again, or leave it "
            "out. Finished shards are kept"
        )

    def _named(self, number: int) -> str:
        return f"{self.group} {number}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def _on_this_machine(path: Path) -> pa.NativeFile:
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for who writes it
        raise PackError(f"{readable(str(path))} is not a regular file (a pipe, socket or device)")
    return pa.OSFile(os.fspath(path))
