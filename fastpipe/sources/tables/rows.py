"""A row of a table or of annotations, one for each image; and its label and values of fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fastpipe.errors import ImageError
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.field_values import field_value
from fastpipe.sources.tables.column_kinds import NO_LABELS
from fastpipe.sources.tables.conversations import describe_miscount
from fastpipe.sources.tables.row_paths import describe_wrong_path
from fastpipe.sources.tables.split_column import SplitColumn

_ROW_NAME = re.compile(r"\.[a-z]+/[0-9]{6,}(#[0-9]+)?$")
_ANNOTATION_NAME = re.compile(r"\.json(\.gz)?/annotations/\d{6,}$")


class Row(NamedTuple):
    """One image, as a source describes it. Paths have "/", and are relative to the image root."""

    where: str  # the row's name, see `row_name`
    # As in JSON: by column, or from `rows_of` on by field. A value of "mask" or "image" is a path.
    values: Mapping[str, Any] = {}
    problem: str | None = None  # why the image cannot be packed, if that is known
    path: str = ""  # of the image's file
    label: int | str | None = None  # number or name of a class
    size: tuple[int, int] | None = None  # width and height, if the source has them
    # Whether the row is of another split. Its label counts, as all splits have the same classes.
    is_of_another: bool = False
    has_image: bool = True  # else the sample has fields only, and no path
    name: str = ""  # of a sample without an image; "": `where`


class Rows:
    """Rows that can be read several times: `begin` gives a new iterator over them."""

    def __init__(self, begin: Callable[[], Iterator[Row]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Row]:
        return self._begin()


def row_name(file: str, number: int) -> str:
    """The name of a row, such as train.csv/000123."""
    return f"{file}/{number:06d}"


def is_row_name(name: str) -> bool:
    """Whether `row_name` has given a sample its name; #2 and the like may stand behind it."""
    return _ROW_NAME.search(name) is not None


def is_annotation_name(name: str) -> bool:
    """Whether `row_name` has given an annotation of COCO its name, such as
    instances.json/annotations/000123."""
    return _ANNOTATION_NAME.search(name) is not None


def rows_of(
    rows: Iterable[Row],
    columns: ColumnChoice,
    *,
    typed: bool = True,
    numbered: bool = False,
    split: SplitColumn | None = None,
) -> Iterator[Row]:
    """Rows with values by column -> rows with path, label and values by field.

    Args:
        rows: the rows of a table.
        columns: the columns that are read.
        typed: whether values are of JSON or Parquet; else they are the texts of a CSV file.
        numbered: whether the texts of labels are numbers.
        split: the split that is packed; None for all rows.
    """
    list_fields = [field.name for field in columns.fields if field.kind == "images"]
    for row in rows:
        path: Any = ""
        problem = row.problem
        if columns.image and problem is None:
            path = row.values.get(columns.image)
            # Visual Genome names its images by numbers: 5 means 5.jpg.
            if isinstance(path, int) and not isinstance(path, bool):
                path = str(path)
            problem = describe_wrong_path(columns.image, path)
        if problem is not None:
            yield Row(row.where, problem=problem)
            continue

        label = None
        if columns.label is not None:
            label = _read_label(row.values.get(columns.label), typed, numbered)
        if split is not None and not split.has(row.values):
            yield Row(row.where, path=path, label=label, is_of_another=True)
            continue

        values: dict[str, Any] = {}
        for field in columns.fields:
            value: Any = row.values.get(field.column)
            if field.columns:
                value = [row.values.get(column) for column in field.columns]
            try:
                values[field.name] = field_value(value, field, typed=typed)
            except ImageError as error:
                problem = f"field {field.name}: {error}"
        if not columns.image and problem is None:
            problem = describe_miscount(values, list_fields)
        name = ""
        if columns.name:
            name = str(row.values.get(columns.name) or "")
        has_image = bool(columns.image)
        yield Row(
            row.where, values, problem, path, label, has_image=has_image, name=name
        )


def _read_label(value: Any, typed: bool, numbered: bool) -> Any:
    """The label in a cell; None if it has none. See `rows_of`."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return None
    if typed:
        return value  # in JSON, spaces around a name belong to it
    if text in NO_LABELS:
        return None
    if numbered:
        return int(text.partition(".")[0])  # pandas writes 7.0 for 7
    return text
