"""A Parquet file, or a stream of Arrow as `datasets.save_to_disk` writes it -> groups of rows, and
their rows.

The format of the stream: Arrow columnar format, "IPC streaming format".
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq

from fastpipe.dataset.format.open_file import FileState, changed_error
from fastpipe.errors import PackError, in_one_line, readable
from fastpipe.sources.files import SourcePath, open_regular, state_or_problem
from fastpipe.sources.listing import Group
from fastpipe.sources.tables.arrow_cells import plain_column
from fastpipe.sources.tables.arrow_columns import has_text_lists, type_name

# A row group may be a whole file, so it is read in pieces. These are held in memory.
_BUFFER_BYTES = 1 << 20
_BATCH_BYTES = 4 << 20
# At most, because the size that a file states counts repeated values once.
_BATCH_ROWS = 32
# A false number of rows must not fill the memory. More rows are believed only of larger files.
_BELIEVED_ROWS = 1_000_000
_BYTES_PER_ROW = 8
_MAX_KEPT_BYTES = 64 << 20
_STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FEATHER_MAGIC = b"ARROW1"


class TableFile(ABC):
    """An open file with a table."""

    # The name of the format, for errors.
    kind: str
    # The format's word for a group of rows, for errors.
    group: str
    schema: pa.Schema

    def __init__(self, path: SourcePath) -> None:
        self.path = path
        self.opened = open_regular(path)
        self._first_state = self.opened.state
        try:
            with self.reading("its description"):
                if isinstance(path, Path):
                    # Arrow's own file reads ranges of any length, and copies none.
                    self._file = pa.OSFile(os.fspath(path))
                else:
                    self._file = pa.PythonFile(self.opened, mode="r")
                self._open()
        except BaseException:
            # `__exit__` is not called for an object that was never finished.
            self.opened.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.opened.close()

    @abstractmethod
    def _open(self) -> None:
        """Reads the schema."""

    @abstractmethod
    def groups(self) -> Iterator[Group]:
        """All groups of rows, in order."""

    @abstractmethod
    def _batches(
        self, group: Group, columns: list[str], rows: int | None
    ) -> Iterator[pa.RecordBatch]: ...

    def read(
        self, group: Group, columns: list[str], rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Reads the rows of a group, in order, so many at a time.

        With `rows` None, as many as fit into little memory.
        """
        row_count = 0
        with self.reading(f"{self.group} {group.number}"):
            for batch in self._batches(group, columns, rows):
                row_count += batch.num_rows
                yield batch
            if row_count != group.rows:
                raise ValueError(f"it has {row_count:,} rows; expected {group.rows:,}")

    def values(
        self, group: Group, columns: list[str], rows: int | None = None
    ) -> Iterator[list[list[Any]]]:
        """Reads the values of Python, a list for each column. Times and decimals are text."""
        for batch in self.read(group, columns, rows):
            with self.reading(f"{self.group} {group.number}"):
                values = []
                for column in columns:
                    values.append(plain_column(batch.column(column)).to_pylist())
            yield values

    def column(self, column: str, rows: int) -> Iterator[Any]:
        """Reads the values of a column in all groups, so many rows at a time."""
        for group in self.groups():
            for (values,) in self.values(group, [column], rows):
                yield from values

    def rows(self, columns: list[str]) -> Iterator[tuple[Any, ...]]:
        """Reads all rows, with the values of these columns."""
        for group in self.groups():
            for values in self.values(group, columns):
                yield from zip(*values, strict=True)

    def holds_texts(self, column: str) -> bool:
        return type_name(self.schema.field(column).type) == "text"

    def holds_lists_of_texts(self, column: str) -> bool:
        return has_text_lists(self.schema.field(column).type)

    def is_replaced(self) -> bool:
        """Whether there is another file at its path now.

        False for a file behind a URL: there, each read finds out whether the file is the same.
        """
        if not isinstance(self.path, Path):
            return False
        state = state_or_problem(self.path.parent, self.path.name)
        return state[:2] != self._first_state[:2]

    @contextlib.contextmanager
    def reading(self, part: str) -> Iterator[None]:
        """Turns the errors of pyarrow and of the system into PackErrors that name the file and the
        part of it.
        """
        try:
            yield
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            EOFError,
            KeyError,
            IndexError,
            MemoryError,
        ) as problem:
            # A file that was written again looks damaged, and is not.
            # Size and mtime: a hard link to a file changes its ctime.
            if self.opened.state[:2] != self._first_state[:2]:
                raise changed_error(self.path) from problem
            if isinstance(problem, MemoryError):  # pyarrow's own error is one, too
                why = "not enough memory to read it. Run the same command again where there is more"
            else:
                words = readable(in_one_line(problem, 300))
                why = (
                    f"cannot be read as {self.kind}: {words}. It is damaged or incomplete: get it "
                    "again, or leave it out"
                )
            raise PackError(
                f"{readable(str(self.path))}, {part}: {why}. Finished shards are kept"
            ) from problem


class ParquetTable(TableFile):
    """See TableFile."""

    kind = "Parquet"
    group = "row group"
    # Files behind URLs are opened several times, so their footers are kept while there is room.
    _kept_footers: ClassVar[dict[tuple[str, FileState], pq.FileMetaData]] = {}
    _kept_bytes = 0

    def _open(self) -> None:
        key = (str(self.path), self._first_state)
        kept_footer = ParquetTable._kept_footers.get(key)
        self._parquet = pq.ParquetFile(
            self._file,
            metadata=kept_footer,
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        self.schema = self._parquet.schema_arrow
        if kept_footer is None and not isinstance(self.path, Path):
            footer = self._parquet.metadata
            kept_bytes = ParquetTable._kept_bytes + footer.serialized_size
            if kept_bytes <= _MAX_KEPT_BYTES:
                ParquetTable._kept_footers[key] = footer
                ParquetTable._kept_bytes = kept_bytes

    def groups(self) -> Iterator[Group]:
        footer = self._parquet.metadata
        file_bytes = self._first_state.size_bytes
        first_row = 0
        for number in range(footer.num_row_groups):
            with self.reading(f"{self.group} {number}"):
                row_group = footer.row_group(number)
                stored_bytes = 0
                sizes = []  # of the columns, without compression
                for index in range(row_group.num_columns):
                    chunk = row_group.column(index)
                    stored_bytes += chunk.total_compressed_size
                    sizes.append(chunk.total_uncompressed_size)

                # The footer of a damaged or hostile file may say anything.
                end_row = first_row + row_group.num_rows
                most_rows = _BELIEVED_ROWS + file_bytes // _BYTES_PER_ROW
                is_believed = (
                    first_row <= end_row <= most_rows
                    and 0 <= stored_bytes <= file_bytes
                )
                if not is_believed or min(sizes, default=0) < 0:
                    raise ValueError(
                        f"the footer says {end_row:,} rows up to here, {stored_bytes:,} of "
                        f"{file_bytes:,} bytes"
                    )
            yield Group(number, first_row, row_group.num_rows, 0, sum(sizes))
            first_row = end_row

    def _batches(
        self, group: Group, columns: list[str], rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        if rows is None:
            bytes_per_row = max(group.size_bytes // max(group.rows, 1), 1)
            rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // bytes_per_row))
        yield from self._parquet.iter_batches(
            rows, [group.number], columns, use_threads=False
        )


class ArrowTable(TableFile):
    """See TableFile.

    Files are read, not mapped: a mapped file that becomes shorter would end the process.
    """

    kind = "Arrow"
    group = "record batch"

    def _open(self) -> None:
        if self._file.read(len(_FEATHER_MAGIC)) == _FEATHER_MAGIC:
            raise ValueError(
                "it has a footer (Feather); expected a stream of Arrow, as save_to_disk writes it"
            )
        self._end_offset = self._first_state.size_bytes - len(_STREAM_END)
        self._file.seek(max(self._end_offset, 0))
        if self._file.read(len(_STREAM_END)) != _STREAM_END:
            raise ValueError("it does not end as an Arrow stream does")
        self._file.seek(0)
        self.schema = pa.ipc.read_schema(self._file)
        self._first_offset = self._file.tell()
        # `groups` reads each batch to find its end. It is kept, since it is often read next.
        self._kept_offset = -1
        self._kept_batch: pa.RecordBatch | None = None

    def groups(self) -> Iterator[Group]:
        number = 0
        first_row = 0
        offset = self._first_offset
        while offset != self._end_offset:
            with self.reading(f"{self.group} {number}"):
                batch = self._read_batch(offset)
                next_offset = self._file.tell()
                if not offset < next_offset <= self._end_offset:
                    raise ValueError("it goes beyond the end")
            self._kept_offset = offset
            self._kept_batch = batch
            yield Group(number, first_row, batch.num_rows, offset, next_offset - offset)
            number += 1
            first_row += batch.num_rows
            offset = next_offset

    def _batches(
        self, group: Group, columns: list[str], rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        batch = self._kept_batch
        if batch is None or self._kept_offset != group.offset_bytes:
            batch = self._read_batch(group.offset_bytes)
        step = rows or _BATCH_ROWS
        for first_row in range(0, batch.num_rows, step):
            yield batch.select(columns).slice(first_row, step)

    def _read_batch(self, offset: int) -> pa.RecordBatch:
        self._file.seek(offset)
        message = pa.ipc.read_message(self._file)
        if message.type != "record batch":
            raise ValueError(
                f"expected a record batch, got a {message.type}; columns with dictionaries are not "
                "read"
            )
        batch = pa.ipc.read_record_batch(message, self.schema)
        # The offsets in hostile files may lead anywhere.
        batch.validate(full=True)
        return batch
