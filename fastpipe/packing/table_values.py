"""A row of a table -> the bytes of its image and the values of its fields, checked."""

from __future__ import annotations

from typing import Any

from fastpipe.errors import ImageError, readable
from fastpipe.packing.fields.values import take
from fastpipe.packing.picture.probe import image_format
from fastpipe.packing.source.reading import LARGE_BYTES, START_BYTES
from fastpipe.packing.source.table_cells import Cells, as_meant
from fastpipe.packing.source.table_columns import TableColumns, TableField


def image_of(cells: Cells, at: int) -> bytes:
    """The bytes of a row's image.

    Raises:
        ImageError: it has none.
    """
    if cells.sizes[at] > LARGE_BYTES:
        image_format(cells.image_start(at, START_BYTES))  # a film among the images need not be copied
    data = cells.image(at)
    if data is not None:
        return data
    path = cells.path(at)
    if path is None:
        raise ImageError("no image: expected bytes, got null")
    raise ImageError(
        f"no bytes of an image, only its path {readable(path)}: write the table with the images in it, for example "
        "with Dataset.to_parquet or save_to_disk"
    )


def values_of(cells: Cells, at: int, columns: TableColumns) -> list[tuple[str, str, Any]]:
    """Name, kind and value of each field of a row.

    Raises:
        ImageError: a value cannot be; the message is the reason.
    """
    found = []
    for number, field in enumerate(columns.fields):
        try:
            found.append((field.name, field.kind, _value(cells, at, number, field)))
        except ImageError as problem:
            raise ImageError(f"field {field.name}: {problem}") from None
    return found


def _value(cells: Cells, at: int, number: int, field: TableField) -> Any:
    try:
        value = cells.value(number, at)
    except UnicodeDecodeError as problem:
        raise ImageError(f"expected UTF-8 ({problem.reason} at byte {problem.start})") from None
    except (ValueError, OverflowError) as problem:
        raise ImageError(str(problem)) from None
    return value if field.kind in ("mask", "image") else take(field.kind, as_meant(field, value))
