"""A batch of rows of Arrow -> the images and the values of fields in it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.fields import PICTURE_KINDS
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.tables.arrow_columns import type_name


class Cells:
    """Rows that follow one another, as columns.

    Attributes:
        has_images: whether samples have an image; else they have fields only.
        sizes: the bytes of each image, 0 where there is none; of samples without an image, those of
            the pictures in their lists.
    """

    def __init__(self, batch: pa.RecordBatch, columns: ColumnChoice) -> None:
        self.has_images = bool(columns.image)
        self.sizes: list[int]
        if self.has_images:
            self._images, self._paths = _images_and_paths(batch.column(columns.image))
            self.sizes = _byte_lengths(self._images).tolist()
        else:
            totals = np.zeros(batch.num_rows, dtype=np.int64)
            for field in columns.fields:
                if field.kind == "images":
                    totals += _list_bytes(plain_column(batch.column(field.column)))
            self.sizes = totals.tolist()
        # A field has a column, or a list of columns with a class each.
        self._fields: list[pa.Array | list[pa.Array]] = []
        for field in columns.fields:
            if field.columns:
                flags = [plain_column(batch.column(column)) for column in field.columns]
                self._fields.append(flags)
            elif field.kind in PICTURE_KINDS:
                images, _ = _images_and_paths(batch.column(field.column))
                self._fields.append(images)
            else:
                self._fields.append(plain_column(batch.column(field.column)))

    def image(self, at: int) -> bytes | None:
        return cast("bytes | None", self._images[at].as_py())

    def image_start(self, at: int, size_bytes: int) -> bytes:
        """The first bytes of the image of a row, which has one. Does not copy the others."""
        return bytes(self._images[at].as_buffer()[:size_bytes])

    def path(self, at: int) -> str | None:
        """The path that the table has for the image of a row; None if it has none."""
        if self._paths is None:
            return None
        try:
            return cast("str | None", self._paths[at].as_py())
        except UnicodeDecodeError:
            return None

    def value(self, field: int, at: int) -> Any:
        """The value of a field in a row, as Python has it.

        Raises:
            ValueError: there is none, such as for text that is not UTF-8.
        """
        cells = self._fields[field]
        if isinstance(cells, list):
            return [column[at].as_py() for column in cells]
        return cells[at].as_py()


def _byte_lengths(images: pa.Array) -> Int64s:
    """(rows,) the bytes of each image, 0 where there is none."""
    lengths = pc.fill_null(pc.binary_length(images), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)


def _list_bytes(column: pa.Array) -> Int64s:
    """(rows,) the bytes of all pictures in each list."""
    counts = pc.fill_null(pc.list_value_length(column), 0)
    ends = np.cumsum(counts.to_numpy(zero_copy_only=False))
    images, _ = _images_and_paths(pc.list_flatten(column))
    bytes_before = np.concatenate([[0], np.cumsum(_byte_lengths(images))])
    starts = np.concatenate([[0], ends[:-1]])
    return np.asarray(bytes_before[ends] - bytes_before[starts], dtype=np.int64)


def _images_and_paths(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """The bytes of a column with images, and the paths that stand beside them."""
    column = plain_column(column)
    if not types.is_struct(column.type):
        return column, None
    names = [part.name for part in column.type]
    parts = dict(zip(names, column.flatten(), strict=True))
    paths = None
    if "path" in parts:
        paths = plain_column(parts["path"])
    return plain_column(parts["bytes"]), paths


def plain_column(column: pa.Array) -> pa.Array:
    """A column without extensions, dictionaries and views. Times and decimals become text."""
    if isinstance(column, pa.ExtensionArray):
        return plain_column(column.storage)
    if types.is_dictionary(column.type):
        return plain_column(column.dictionary_decode())
    if type_name(column.type) == "time":
        return column.cast(pa.string())
    if types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if types.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return column
