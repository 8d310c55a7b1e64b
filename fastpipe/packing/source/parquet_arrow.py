"""A Parquet file, or a stream of Arrow as `datasets.save_to_disk` writes it -> its groups of rows, and their rows.

Format of the stream: Arrow columnar format, "IPC streaming format".
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from fastpipe.errors import PackError, readable
from fastpipe.format.open_file import FileState, state_of
from fastpipe.packing.source.files import SourcePath, changed, state_or_problem
from fastpipe.packing.source.listing import Group
from fastpipe.packing.source.table_columns import column_values

# A row group may be a whole file, so it is read in pieces: these are held in memory.
_BUFFER_BYTES = 1 << 20
_BATCH_BYTES = 4 << 20
# At most, for repeated values count once in the size that a file states.
_BATCH_ROWS = 32
# A lie about the number of rows must not fill the memory: so many are believed, and more only of larger files.
_BELIEVED_ROWS = 1_000_000
_BYTES_PER_ROW = 8
_FOOTERS_BYTES = 64 << 20
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream of Arrow
_FILE_MAGIC = b"ARROW1"


class TableFile(contextlib.AbstractContextManager["TableFile"]):
    """An open file with a table."""

    kind: str
    group: str  # what a group of rows is called
    schema: pa.Schema

    def __init__(self, path: SourcePath) -> None:
        self.path = path
        self._listed_as: FileState | None = None
        try:
            if isinstance(path, Path):
                if not state_of(os.stat(path)).is_regular:  # opening a pipe would wait for who writes it
                    raise PackError(f"{readable(str(path))} is not a regular file (a pipe, socket or device)")
                self._file: pa.NativeFile = pa.OSFile(os.fspath(path))
            else:
                remote = path.open()
                self._listed_as = remote.state
                self._file = pa.PythonFile(remote, mode="r")
        except OSError as problem:
            raise PackError(f"cannot read {readable(str(path))}: {problem.strerror or problem}") from problem
        self._first = self.state()
        with self.reading("its description"):
            self._open()

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def groups(self) -> Iterator[Group]:
        """All groups of rows, in order."""

    @abstractmethod
    def _batches(self, group: Group, columns: list[str], rows: int | None) -> Iterator[pa.RecordBatch]: ...

    def read(self, group: Group, columns: list[str], rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in order, so many at a time; None: as many as fit into little memory."""
        read = 0
        with self.reading(f"{self.group} {group.number}"):
            for batch in self._batches(group, columns, rows):
                read += batch.num_rows
                yield batch
            if read != group.rows:
                raise ValueError(f"it has {read:,} rows; expected {group.rows:,}")

    def values(self, group: Group, columns: list[str], rows: int | None = None) -> Iterator[list[list[Any]]]:
        """The same as `column_values` has them: lists of values, one a column."""
        for batch in self.read(group, columns, rows):
            with self.reading(f"{self.group} {group.number}"):
                found = [column_values(batch.column(column)) for column in columns]
            yield found

    def state(self) -> FileState:
        """Of the open file, as it is now; behind a URL as it was listed: reading finds out whether it still is."""
        return self._listed_as or state_of(os.fstat(self._file.fileno()))

    def is_replaced(self) -> bool:
        """Whether there is another file at its path now. Of one behind a URL, each read finds that out."""
        return isinstance(self.path, Path) and state_or_problem(self.path.parent, self.path.name)[:2] != self._first[:2]

    @contextlib.contextmanager
    def reading(self, part: str) -> Iterator[None]:
        """Names the file and the part of it that cannot be read, or contradicts itself."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, EOFError, KeyError, IndexError, MemoryError) as problem:
            if self.state()[:2] != self._first[:2]:
                raise changed(self.path) from problem
            said = readable(" ".join(str(problem).split())[:300])
            why = f"cannot be read as {self.kind}: {said}. It is damaged or incomplete: get it again, or leave it out"
            if isinstance(problem, MemoryError):  # pyarrow's own is one, too
                why = "not enough memory to read it. Run the same command again where there is more"
            raise PackError(f"{readable(str(self.path))}, {part}: {why}. Finished shards are kept") from problem

    def __exit__(self, *_: object) -> None:
        self._file.close()


class ParquetTable(TableFile):
    """See TableFile. Files behind URLs are opened several times, so their footers are kept while there is room."""

    kind, group = "Parquet", "row group"
    _footers: ClassVar[dict[tuple[str, FileState], pq.FileMetaData]] = {}
    _kept_bytes = 0

    def _open(self) -> None:
        name, kept = (str(self.path), self.state()), ParquetTable._footers
        self._parquet = pq.ParquetFile(
            self._file,
            metadata=kept.get(name),
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        footer = self._parquet.metadata
        size_bytes = ParquetTable._kept_bytes + footer.serialized_size
        if not isinstance(self.path, Path) and name not in kept and size_bytes <= _FOOTERS_BYTES:
            kept[name], ParquetTable._kept_bytes = footer, size_bytes
        self.schema = self._parquet.schema_arrow

    def groups(self) -> Iterator[Group]:
        footer, size_bytes, first = self._parquet.metadata, self._first.size_bytes, 0
        for number in range(footer.num_row_groups):
            with self.reading(f"{self.group} {number}"):
                facts = footer.row_group(number)
                chunks = [facts.column(at) for at in range(facts.num_columns)]
                stored = sum(chunk.total_compressed_size for chunk in chunks)
                sizes = [chunk.total_uncompressed_size for chunk in chunks]
                after = first + facts.num_rows
                believed = first <= after <= _BELIEVED_ROWS + size_bytes // _BYTES_PER_ROW
                if not believed or not 0 <= stored <= size_bytes or min(sizes, default=0) < 0:
                    raise ValueError(
                        f"the footer says {after:,} rows up to here, {stored:,} of {size_bytes:,} bytes in it"
                    )
            yield Group(number, first, facts.num_rows, 0, sum(sizes))
            first = after

    def _batches(self, group: Group, columns: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        per_row = max(group.size_bytes // max(group.rows, 1), 1)
        rows = rows or max(1, min(_BATCH_ROWS, _BATCH_BYTES // per_row))
        yield from self._parquet.iter_batches(rows, [group.number], columns, use_threads=False)


class ArrowTable(TableFile):
    """See TableFile. Files are read, not mapped: a mapped file that becomes shorter would end the process."""

    kind, group = "Arrow", "record batch"

    def _open(self) -> None:
        if self._file.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
            raise ValueError("it has a footer (Feather); expected a stream of Arrow, as save_to_disk writes it")
        self._end = self._first.size_bytes - len(_END)
        self._file.seek(max(self._end, 0))
        if self._file.read(len(_END)) != _END:
            raise ValueError("it does not end as an Arrow stream does")
        self._file.seek(0)
        self.schema = pa.ipc.read_schema(self._file)
        self._first_batch = self._file.tell()
        self._last: tuple[int, Any] = -1, None  # offset of a batch, which may be read next, and it

    def groups(self) -> Iterator[Group]:
        number = first = 0
        offset = self._first_batch
        while offset != self._end:
            with self.reading(f"{self.group} {number}"):
                batch = self._batch(offset)
                after = self._file.tell()
                if not offset < after <= self._end:
                    raise ValueError("it goes beyond the end")
            self._last = offset, batch
            yield Group(number, first, batch.num_rows, offset, after - offset)
            number, first, offset = number + 1, first + batch.num_rows, after

    def _batches(self, group: Group, columns: list[str], rows: int | None) -> Iterator[pa.RecordBatch]:
        offset, batch = self._last
        if offset != group.offset_bytes:
            batch = self._batch(group.offset_bytes)
        for first in range(0, batch.num_rows, rows or _BATCH_ROWS):
            yield batch.select(columns).slice(first, rows or _BATCH_ROWS)

    def _batch(self, offset: int) -> pa.RecordBatch:
        self._file.seek(offset)
        message = pa.ipc.read_message(self._file)
        if message.type != "record batch":
            raise ValueError(f"expected a record batch, got a {message.type}; columns with dictionaries are not read")
        batch = pa.ipc.read_record_batch(message, self.schema)
        batch.validate(full=True)  # offsets of hostile files may lead anywhere
        return batch
