"""A batch of a table's rows -> the bytes of its images and the values of its fields, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastpipe.errors import ImageError
from fastpipe.packing.source.column_kinds import field_value
from fastpipe.packing.source.table_columns import TableColumns, TableField, is_shown_as_text, storage

_PICTURES = ("image", "mask")


@dataclass(frozen=True)
class Cells:
    """Rows that follow one another, as columns.

    Attributes:
        sizes: bytes of each image; 0 where there is none.
        images: the images' bytes.
        paths: what the table calls the images; None: it does not.
        fields: the columns of the fields.
    """

    sizes: Sequence[int]
    images: pa.Array
    paths: pa.Array | None
    fields: tuple[pa.Array, ...]

    def image(self, at: int) -> bytes | None:
        """The image of a row."""
        data: bytes | None = self.images[at].as_py()
        return data

    def image_start(self, at: int, size_bytes: int) -> bytes:
        """The first bytes of the image of a row, which has one; without a copy of the others."""
        return bytes(self.images[at].as_buffer()[:size_bytes])

    def path(self, at: int) -> str | None:
        """What the table calls the image of a row."""
        try:
            name: str | None = None if self.paths is None else self.paths[at].as_py()
        except UnicodeDecodeError:
            return None
        return name

    def value(self, field: int, at: int) -> Any:
        """The value of a field in a row, as Python has it.

        Raises:
            ValueError: it cannot be one, such as text that is no UTF-8.
        """
        return self.fields[field][at].as_py()


def cells(batch: pa.RecordBatch, columns: TableColumns) -> Cells:
    """The cells of a batch.

    Raises:
        pyarrow.ArrowException: a value of its type cannot be shown as text.
    """
    column = _plain(batch.column(columns.image))
    images, paths = _files(column)
    fields = []
    for field in columns.fields:
        values = _plain(batch.column(field.column))
        if field.kind in _PICTURES:
            values = _files(values)[0]
        elif is_shown_as_text(values.type):
            values = values.cast(pa.string())
        fields.append(values)
    sizes = pc.fill_null(pc.binary_length(images), 0).to_pylist()
    return Cells(sizes, images, paths, tuple(fields))


def _files(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Bytes and paths of a column with images."""
    if not pa.types.is_struct(column.type):
        return column, None
    parts = dict(zip([part.name for part in column.type], column.flatten(), strict=True))
    return _plain(parts["bytes"]), _plain(parts["path"]) if "path" in parts else None


def _plain(column: pa.Array) -> pa.Array:
    """A column in the type that holds its values."""
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    wide = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return column.cast(wide[column.type]) if storage(column.type) in wide else column


def row_values(batch: pa.RecordBatch, columns: TableColumns) -> list[tuple[str | None, dict[str, Any], str | None]]:
    """Of each row the path of its image, the values of its fields, and what is wrong with them, if anything.

    Raises:
        UnicodeDecodeError: a text is no UTF-8.
    """
    paths = _plain(batch.column(columns.image)).to_pylist()
    found = [dict[str, Any]() for _ in paths]
    wrong = [None if path else f"no path of an image, got {path!r}" for path in paths]
    for field in columns.fields:
        for at, value in enumerate(column_values(batch.column(field.column))):
            try:
                found[at][field.name] = as_meant(field, value)
            except ImageError as problem:
                wrong[at] = f"field {field.name}: {problem}"
    return list(zip(paths, found, wrong, strict=True))


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them; times and decimals as text."""
    values = _plain(column)
    found: list[Any] = (values.cast(pa.string()) if is_shown_as_text(values.type) else values).to_pylist()
    return found


def as_meant(field: TableField, value: Any) -> Any:
    """A value of a cell as a field of this kind has it, not yet checked.

    Raises:
        ImageError: it cannot be one.
    """
    if field.kind == "int" and isinstance(value, bool):
        return int(value)
    if field.names and isinstance(value, list):
        return [_class_name(each, field.names) for each in value]
    try:
        return field_value(value, field.kind, typed=True)
    except ValueError as problem:
        raise ImageError(str(problem)) from None


def _class_name(number: Any, names: Sequence[str]) -> str:
    if isinstance(number, int) and 0 <= number < len(names):
        return names[number]
    raise ImageError(f"expected class numbers of 0 to {len(names) - 1:,}, got {number}")
