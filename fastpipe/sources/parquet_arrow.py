"""A Parquet file, or a stream of Arrow as `datasets.save_to_disk` writes it -> its groups of rows, and their rows.

Format of the stream: Arrow columnar format, "IPC streaming format".
"""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from fastpipe.errors import PackError, readable
from fastpipe.format.open_file import FileState, changed
from fastpipe.sources.detections import CATEGORIES
from fastpipe.sources.files import SourcePath, open_regular, state_or_problem
from fastpipe.sources.likely import Known
from fastpipe.sources.listing import Group
from fastpipe.sources.options import ColumnChoice, SourceOptions, choose_columns, named_as_image

_PICTURES = ("image", "mask")
_CHOOSE = "Choose the columns to store with --field NAME=COLUMN"
# Each type's name -> the kind of field that its values are, and its tests. Times, dates and decimals are kept as text.
_TYPES: Mapping[str, tuple[str | None, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "text": ("text", (types.is_string, types.is_large_string, types.is_string_view)),
    "bytes": (
        "bytes",
        (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
    ),
    "time": ("text", (types.is_timestamp, types.is_date, types.is_time, types.is_decimal)),
    "int": ("int", (types.is_integer,)),
    "bool": ("int", (types.is_boolean,)),
    "float": ("floats", (types.is_floating,)),
    "list": (None, (types.is_list, types.is_large_list, types.is_fixed_size_list)),
    "struct": (None, (types.is_struct,)),
    "null": (None, (types.is_null,)),
}


def columns_of_table(schema: pa.Schema, how: SourceOptions, file: str) -> ColumnChoice:
    """See `choose_columns`; what Hugging Face's datasets says of the columns counts, too."""
    _check_names(schema, file)
    held = {each.name: _held(each.type) for each in schema}
    features = _features(schema)

    def of_type(wanted: str) -> list[str]:
        return [name for name, type_name in held.items() if type_name == wanted]

    def kind_of(column: str) -> str:
        if (kind := _kind(schema.field(column).type, features.get(column))) is None:
            raise _wrong(schema, file, column, f"a type that a field can hold. {_CHOOSE}")
        return kind

    def check(column: str, allowed: Collection[str], expected: str) -> None:
        if held[column] not in allowed:
            raise _wrong(schema, file, column, expected)

    images = (
        [name for name in held if _is_feature(features.get(name), "Image")]
        or of_type("file")
        or of_type("bytes")
    )
    images = images or named_as_image(of_type("text"), how)
    image, label, asked, *_ = choose_columns(
        file,
        schema.names,
        how,
        images,
        kind_of,
        are_flags=lambda column: held[column] in ("int", "bool", "float"),
    )
    has_paths = held[image] == "text"
    check(
        image, ("text", "bytes", "file"), "images, as bytes, a struct of bytes and path, or paths"
    )
    if label is not None:
        others = f"Name another column with --label-column, or store this one as a field: --field labels={label}"
        check(label, ("text", "int", "null"), f"labels, as whole numbers or names. {others}")
    types_, what = (
        (("text",), "paths, as the images are") if has_paths else (("bytes", "file"), "bytes")
    )
    fields = []
    for each in asked:
        if each.kind in _PICTURES:
            check(each.column, types_, f"{what}, for --field {each.name}={each.column}:{each.kind}")
        names = _class_names(_items(features.get(each.column))) if each.kind == "classes" else None
        fields.append(each if each.columns else each._replace(names=names or ()))
    classes = None if label is None or held[label] == "text" else _class_names(features.get(label))
    return ColumnChoice(image, label, tuple(fields), has_paths, classes)


def known_columns(schema: pa.Schema) -> dict[str, Known]:
    """The columns that may hold a class for each row: numbers and texts."""
    held = {each.name: _held(each.type) for each in schema}
    return {
        name: Known(are_fractions=what == "float")
        for name, what in held.items()
        if what in ("int", "text", "bool")
    }


def columns_of_rows(schema: pa.Schema, how: SourceOptions, file: str) -> list[str]:
    """The columns of a table whose values can stand in a manifest, as JSON has them."""
    _check_names(schema, file)
    odd = [each.name for each in schema if _kind(each.type, None) in (None, "bytes", "image")]
    asked = {how.image_column, how.label_column, *(each.column for each in how.fields or ())}
    if wrong := [name for name in odd if how.fields is None or name in asked]:
        raise _wrong(
            schema, file, wrong[0], f"values that JSON can hold, in metadata of images. {_CHOOSE}"
        )
    return [name for name in schema.names if name not in odd]


def _check_names(schema: pa.Schema, file: str) -> None:
    if twice := [name for name in schema.names if schema.names.count(name) > 1]:
        raise PackError(f"{file}: expected each column once, got {twice[0]!r} several times")


def _wrong(schema: pa.Schema, file: str, column: str, expected: str) -> PackError:
    return PackError(
        f"{file}: column {column!r} is {_storage(schema.field(column).type)}; expected {expected}"
    )


def _storage(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _storage(kind.storage_type)
    return _storage(kind.value_type) if types.is_dictionary(kind) else kind


def _held(kind: pa.DataType) -> str:
    """What values of a type are: "file" is the struct that Hugging Face's Image is stored as; "": none of `_TYPES`."""
    kind = _storage(kind)
    name = next(
        (name for name, (_, tests) in _TYPES.items() if any(test(kind) for test in tests)), ""
    )
    parts = {part.name: part.type for part in kind} if name == "struct" else {}
    is_file = (
        "bytes" in parts and parts.keys() <= {"bytes", "path"} and _held(parts["bytes"]) == "bytes"
    )
    return "file" if is_file else name


def _kind(kind: pa.DataType, feature: Any) -> str | None:
    """The kind of field that a column's values are; None: of none."""
    held = _held(kind)
    if held == "file" or _is_feature(feature, "Image"):
        return "image"
    items = _held(_storage(kind).value_type) if held == "list" else ""
    if items == "float":
        return "floats"
    if items == "int" and _class_names(_items(feature)) is not None:
        return "classes"
    found, _ = _TYPES.get(held, (None, ()))
    return found or ("json" if _is_json(kind) else None)


def _is_json(kind: pa.DataType) -> bool:
    kind = _storage(kind)
    held = _held(kind)
    parts = (
        [part.type for part in kind]
        if held == "struct"
        else [kind.value_type]
        if held == "list"
        else []
    )
    return (
        all(map(_is_json, parts))
        if parts
        else held in ("null", "bool", "int", "float", "text", "struct")
    )


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    with contextlib.suppress(KeyError, ValueError, TypeError, RecursionError):
        return {**json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]}
    return {}


def _is_feature(feature: Any, name: str) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == name


def _class_names(feature: Any) -> tuple[str, ...] | None:
    names = feature.get("names") if _is_feature(feature, "ClassLabel") else None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def detection_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Columns of structs, or lists of structs, with "bbox" -> the names of their classes as Hugging Face has them."""
    features = _features(schema)
    found = {}
    for column in schema:
        kind = _storage(column.type)
        kind = _storage(kind.value_type) if _held(kind) == "list" else kind
        if _held(kind) == "struct" and "bbox" in {part.name for part in kind}:
            feature = features.get(column.name)
            parts: Any = _items(feature) or feature
            classes = [parts.get(name) for name in CATEGORIES] if isinstance(parts, dict) else []
            names = (_class_names(each) or _class_names(_items(each)) for each in classes)
            found[column.name] = next(filter(None, names), ())
    return found


def _items(feature: Any) -> Any:
    """The feature of a list's items: datasets has written lists in three ways."""
    if isinstance(feature, list) and len(feature) == 1:
        return feature[0]
    return feature.get("feature") if isinstance(feature, dict) else None


class Cells:
    """Rows that follow one another, as columns; `sizes` are the bytes of each image, 0 where there is none."""

    def __init__(self, batch: pa.RecordBatch, columns: ColumnChoice) -> None:
        self._images, self._paths = _files(batch.column(columns.image))
        self.sizes: list[int] = pc.fill_null(pc.binary_length(self._images), 0).to_pylist()
        self._fields = [
            [_values(batch.column(column)) for column in each.columns]
            if each.columns
            else _files(batch.column(each.column))[0]
            if each.kind in _PICTURES
            else _values(batch.column(each.column))
            for each in columns.fields
        ]

    def image(self, at: int) -> bytes | None:
        return cast("bytes | None", self._images[at].as_py())

    def image_start(self, at: int, size_bytes: int) -> bytes:
        """The first bytes of the image of a row, which has one; without a copy of the others."""
        return bytes(self._images[at].as_buffer()[:size_bytes])

    def path(self, at: int) -> str | None:
        """What the table calls the image of a row; None: nothing."""
        with contextlib.suppress(UnicodeDecodeError):
            return None if self._paths is None else cast("str | None", self._paths[at].as_py())
        return None

    def value(self, field: int, at: int) -> Any:
        """The value of a field in a row, as Python has it; ValueError: there is none, such as text that is no UTF-8."""
        cells = self._fields[field]
        return (
            [each[at].as_py() for each in cells] if isinstance(cells, list) else cells[at].as_py()
        )


def _files(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Bytes and paths of a column with images."""
    column = _values(column)
    if not types.is_struct(column.type):
        return column, None
    parts = dict(zip([part.name for part in column.type], column.flatten(), strict=True))
    return _values(parts["bytes"]), _values(parts["path"]) if "path" in parts else None


def _values(column: pa.Array) -> pa.Array:
    """A column in a type that holds its values; times and decimals as text."""
    if isinstance(column, pa.ExtensionArray):
        return _values(column.storage)
    if types.is_dictionary(column.type):
        return _values(column.dictionary_decode())
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    wide = pa.string() if _held(column.type) == "time" else views.get(column.type)
    return column if wide is None else column.cast(wide)


# A row group may be a whole file, so it is read in pieces: these are held in memory.
_BUFFER_BYTES, _BATCH_BYTES = 1 << 20, 4 << 20
_BATCH_ROWS = 32  # at most, for repeated values count once in the size that a file states
# A lie about the number of rows must not fill the memory: so many are believed, and more only of larger files.
_BELIEVED_ROWS, _BYTES_PER_ROW = 1_000_000, 8
_FOOTERS_BYTES = 64 << 20
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream of Arrow
_FILE_MAGIC = b"ARROW1"


class TableFile(contextlib.AbstractContextManager["TableFile"]):
    """An open file with a table."""

    kind: str
    group: str  # what a group of rows is called
    schema: pa.Schema

    def __init__(self, path: SourcePath) -> None:
        self.path, self.opened = path, open_regular(path)
        self._first = self.opened.state
        # Arrow's own file reads ranges of any length, and copies none.
        self._file = (
            pa.OSFile(os.fspath(path))
            if isinstance(path, Path)
            else pa.PythonFile(self.opened, mode="r")
        )
        weakref.finalize(self, self.opened.close)  # also where it is found to be no table
        with self.reading("its description"):
            self._open()

    @abstractmethod
    def _open(self) -> None: ...

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
        """The rows of a group, in order, so many at a time; None: as many as fit into little memory."""
        read = 0
        with self.reading(f"{self.group} {group.number}"):
            for batch in self._batches(group, columns, rows):
                read += batch.num_rows
                yield batch
            if read != group.rows:
                raise ValueError(f"it has {read:,} rows; expected {group.rows:,}")

    def values(
        self, group: Group, columns: list[str], rows: int | None = None
    ) -> Iterator[list[list[Any]]]:
        """The same as Python has them: lists of values, one a column; times and decimals as text."""
        for batch in self.read(group, columns, rows):
            with self.reading(f"{self.group} {group.number}"):
                found = [_values(batch.column(column)).to_pylist() for column in columns]
            yield found

    def holds_texts(self, column: str) -> bool:
        return _held(self.schema.field(column).type) == "text"

    def is_replaced(self) -> bool:
        """Whether there is another file at its path now. Of one behind a URL, each read finds that out."""
        return (
            isinstance(self.path, Path)
            and state_or_problem(self.path.parent, self.path.name)[:2] != self._first[:2]
        )

    @contextlib.contextmanager
    def reading(self, part: str) -> Iterator[None]:
        """Names the file and the part of it that cannot be read, or contradicts itself."""
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
            if self.opened.state[:2] != self._first[:2]:
                raise changed(self.path) from problem
            said = readable(" ".join(str(problem).split())[:300])
            why = f"cannot be read as {self.kind}: {said}. It is damaged or incomplete: get it again, or leave it out"
            if isinstance(problem, MemoryError):  # pyarrow's own is one, too
                why = "not enough memory to read it. Run the same command again where there is more"
            raise PackError(
                f"{readable(str(self.path))}, {part}: {why}. Finished shards are kept"
            ) from problem

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.opened.close()


class ParquetTable(TableFile):
    """See TableFile. Files behind URLs are opened several times, so their footers are kept while there is room."""

    kind, group = "Parquet", "row group"
    _footers: ClassVar[dict[tuple[str, FileState], pq.FileMetaData]] = {}
    _kept_bytes = 0

    def _open(self) -> None:
        name, kept = (str(self.path), self.opened.state), ParquetTable._footers
        options = {
            "buffer_size": _BUFFER_BYTES,
            "pre_buffer": False,
            "page_checksum_verification": True,
        }
        self._parquet = pq.ParquetFile(self._file, metadata=kept.get(name), **options)
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
                        f"the footer says {after:,} rows up to here, {stored:,} of {size_bytes:,} bytes"
                    )
            yield Group(number, first, facts.num_rows, 0, sum(sizes))
            first = after

    def _batches(
        self, group: Group, columns: list[str], rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        per_row = max(group.size_bytes // max(group.rows, 1), 1)
        rows = rows or max(1, min(_BATCH_ROWS, _BATCH_BYTES // per_row))
        yield from self._parquet.iter_batches(rows, [group.number], columns, use_threads=False)


class ArrowTable(TableFile):
    """See TableFile. Files are read, not mapped: a mapped file that becomes shorter would end the process."""

    kind, group = "Arrow", "record batch"

    def _open(self) -> None:
        if self._file.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
            raise ValueError(
                "it has a footer (Feather); expected a stream of Arrow, as save_to_disk writes it"
            )
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
                batch, after = self._batch(offset), self._file.tell()
                if not offset < after <= self._end:
                    raise ValueError("it goes beyond the end")
            self._last = offset, batch
            yield Group(number, first, batch.num_rows, offset, after - offset)
            number, first, offset = number + 1, first + batch.num_rows, after

    def _batches(
        self, group: Group, columns: list[str], rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        offset, batch = self._last
        if offset != group.offset_bytes:
            batch = self._batch(group.offset_bytes)
        for first in range(0, batch.num_rows, rows or _BATCH_ROWS):
            yield batch.select(columns).slice(first, rows or _BATCH_ROWS)

    def _batch(self, offset: int) -> pa.RecordBatch:
        self._file.seek(offset)
        message = pa.ipc.read_message(self._file)
        if message.type != "record batch":
            raise ValueError(
                f"expected a record batch, got a {message.type}; columns with dictionaries are not read"
            )
        batch = pa.ipc.read_record_batch(message, self.schema)
        batch.validate(full=True)  # offsets of hostile files may lead anywhere
        return batch
