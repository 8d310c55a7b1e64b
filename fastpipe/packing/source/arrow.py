"""An Arrow file as `datasets.save_to_disk` writes it, a stream -> its record batches.

Format: Arrow columnar format, "IPC streaming format".
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from fastpipe.packing.source.table_file import Group, TableFile

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FILE_MAGIC = b"ARROW1"
_BATCH_ROWS = 32


class ArrowTable(TableFile):
    """See TableFile. Files are read, not mapped: a mapped file that becomes shorter would end the process."""

    kind = "Arrow"

    def _open(self) -> None:
        if self._file.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
            raise ValueError(
                "it is an Arrow file with a footer (Feather); expected a stream, as save_to_disk writes it"
            )
        end = self._first.size_bytes - len(_END)
        self._file.seek(max(end, 0))
        if self._file.read(len(_END)) != _END:
            raise ValueError("it does not end as an Arrow stream does")
        self._file.seek(0)
        self.schema = pa.ipc.read_schema(self._file)
        self._first_batch = self._file.tell()
        self._end = end

    def scan(self, column: str | None) -> Iterator[tuple[Group, list[pa.Array]]]:
        number = first = 0
        offset = self._first_batch
        while offset != self._end:
            with self.reading(_named(number)):
                batch = self._batch(offset)
                after = self._file.tell()
            if not offset < after <= self._end:
                raise self.damaged(_named(number), "it goes beyond the end")
            yield (
                Group(number, first, batch.num_rows, offset, after - offset),
                [] if column is None else [batch.column(column)],
            )
            number, first, offset = number + 1, first + batch.num_rows, after

    def read(self, group: Group, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self.reading(_named(group.number)):
            batch = self._batch(group.offset_bytes)
        if batch.num_rows != group.rows:
            raise self.damaged(_named(group.number), f"it has {batch.num_rows:,} rows, and had {group.rows:,}")
        for first in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.select(columns).slice(first, _BATCH_ROWS)

    def _batch(self, offset: int) -> pa.RecordBatch:
        self._file.seek(offset)
        message = pa.ipc.read_message(self._file)
        if message.type != "record batch":
            raise ValueError(f"expected a record batch, got a {message.type}; columns with dictionaries are not read")
        batch = pa.ipc.read_record_batch(message, self.schema)
        batch.validate(full=True)  # offsets of hostile files may lead anywhere
        return batch


def _named(number: int) -> str:
    return f"record batch {number}"
