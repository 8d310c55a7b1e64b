"""The columns of a table and the user's options -> the columns with images, labels and fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from fastpipe.dataset.format.fields import ARRAY_KINDS
from fastpipe.errors import PackError, readable
from fastpipe.sources.column_names import describe_columns, field_name
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.listing import SourceField
from fastpipe.sources.options import SourceOptions

# Columns with the path of an image, if there is no --image-column.
_PATHS = "path file_name filename file filepath file_path image image_path image_file img img_path"
IMAGE_COLUMNS = frozenset(_PATHS.split())
# If there is none of these, columns with the id of an image.
_IDS = (
    "image_id imageid image_name imagename img_name img_id image_index image_filename filepaths "
    "filenames fname"
)
_ID_COLUMNS = frozenset(_IDS.split())
FILE_NAME = "file_name"
_LABEL = "label"


class ColumnChoice(NamedTuple):
    """What is read of a table.

    Attributes:
        image: the column with images or their paths; "": samples have no image.
        label: the column with labels; None: there are none.
        fields: of the samples.
        has_paths: images are paths; else bytes.
        classes: names of the label's numbers; None: nothing says them.
        name: the column that names samples without an image; "": their place in the table does.
    """

    image: str
    label: str | None
    fields: tuple[SourceField, ...]
    has_paths: bool = True
    classes: tuple[str, ...] | None = None
    name: str = ""

    def columns_to_read(self) -> list[str]:
        """Names of the columns that a sample is made of; its label is known before."""
        columns = [self.image] if self.image else []
        for field in self.fields:
            columns += field.columns or [field.column]
        return list(dict.fromkeys(columns))


def choose_columns(
    table: str,
    columns: Collection[str],
    options: SourceOptions,
    images: Collection[str],
    kind_of: Callable[[str], str],
    further: str = "",
    are_flags: Callable[[str], bool] = lambda _: True,
    hint: str = "",
    pick: str = "",
    *,
    needs_image: bool = True,
) -> ColumnChoice:
    """Finds the columns that are asked for, or that are certain.

    Args:
        table: its name, for messages.
        columns: of the table.
        options: the user's options.
        images: columns that may hold the images.
        kind_of: returns the kind of field for a column, if the user has not said it.
        further: ending of columns with further images; their fields have names without it.
        are_flags: whether a column has 0 and 1, or -1 and 1; a pattern names only such columns.
        hint: what else to do if there is no column with images.
        pick: the options to pass if several columns may hold the images; "": nothing tells.
        needs_image: False: samples have no image where no column may hold it.

    Raises:
        PackError: a column is missing, or the user has to choose.
    """
    columns_by_field = {}
    for wish in options.fields or ():
        columns_by_field[wish] = wish.columns_of(columns)
    _check_columns(table, columns, options, columns_by_field)
    image = options.image_column
    if image is None:
        # A column that the user calls an array has no images, though it may have bytes or paths.
        arrays: set[str] = set()
        for wish, wished_columns in columns_by_field.items():
            if wish.kind in ARRAY_KINDS:
                arrays.update(wished_columns)
        candidates = [column for column in images if column not in arrays]
        if candidates or needs_image:
            image = _only_image_column(table, columns, candidates, further, hint, pick)
        else:
            image = ""

    label = options.label_column
    # A column that alone makes a field is no label, unless the user says so.
    claimed = {image}
    for field_columns in columns_by_field.values():
        if len(field_columns) == 1:
            claimed.update(field_columns)
    if label is None and _LABEL in columns and _LABEL not in claimed:
        label = _LABEL

    chosen = options.fields
    if chosen is None:
        others = [column for column in columns if column not in (image, label)]
        chosen = _name_fields(others, further)
    fields = []
    for wish in chosen:
        flags = _flag_columns(
            wish, columns_by_field.get(wish, ()), (image, label), are_flags
        )
        if flags:
            kind = "classes"
        else:
            kind = wish.kind or kind_of(wish.column)
        # Of columns of 0 and 1, their names are the names of the classes.
        field = SourceField(
            wish.name, kind, names=flags, column=wish.column, columns=flags
        )
        fields.append(field)
    return ColumnChoice(image, label, tuple(fields))


def _only_image_column(
    table: str,
    columns: Collection[str],
    images: Collection[str],
    further: str,
    hint: str,
    pick: str,
) -> str:
    """The only column that may hold the images; see `choose_columns`.

    PackError: there is none, or there are several.
    """
    if len(images) == 1:
        return next(iter(images))
    if images:
        raise PackError(
            f"{table} has several columns that may hold the images: {describe_columns(images)}. "
            f"{pick or '--image-column picks one'}"
        )
    example = "path, file_name or image"
    if further:
        example = FILE_NAME
    raise PackError(
        f"{table}: expected a column with images, or with paths such as {example}; got "
        f"{describe_columns(columns)}. --image-column names it{hint}"
    )


def _check_columns(
    table: str,
    columns: Collection[str],
    options: SourceOptions,
    columns_by_field: Mapping[FieldColumn, Sequence[str]],
) -> None:
    """Raises PackError if a user asks for a column that the table does not have."""
    # The option as a user gives it -> the columns that it names.
    wishes: dict[str, Sequence[str | None]] = {
        f"--image-column {options.image_column}": [options.image_column],
        f"--label-column {options.label_column}": [options.label_column],
    }
    for field, field_columns in columns_by_field.items():
        wishes[str(field)] = field_columns
        if field.column not in columns:
            field.check_kind(columns)
    for option, wanted_columns in wishes.items():
        for column in wanted_columns:
            if column is not None and column not in columns:
                raise PackError(
                    f"{option}: {table} has no such column; expected one of "
                    f"{describe_columns(columns)}"
                )


def _name_fields(columns: Iterable[str], further: str) -> tuple[FieldColumn, ...]:
    """A field for each column, called like it; see `choose_columns`."""
    fields: dict[str, FieldColumn] = {}
    for column in columns:
        # A-b and a_b give a_b and a_b_.
        name = field_name(column.removesuffix(further).lower(), fields)
        fields[name] = FieldColumn(name, column)
    return tuple(fields.values())


def _flag_columns(
    field: FieldColumn,
    columns: tuple[str, ...],
    others: Collection[str | None],
    are_flags: Callable[[str], bool],
) -> tuple[str, ...]:
    """The columns of 0 and 1 that a field of classes is made of; () if it is made of one column."""
    if columns in ((), (field.column,)):
        return ()
    expected = f"{field}: expected columns of 0 and 1, or -1 and 1, a column a class"
    # A pattern leaves out other columns that it fits. A column that is named must have flags.
    by_name = {name.strip() for name in field.column.split(",")}
    flags = []
    for column in columns:
        if are_flags(column):
            if column not in others:
                flags.append(column)
        elif column in by_name:
            raise PackError(f"{expected}; {readable(column)} has others")
    if not flags:
        raise PackError(f"{expected}; no column that fits has")
    return tuple(flags)


def find_image_like_columns(
    columns: Iterable[str], options: SourceOptions
) -> list[str]:
    """The columns that are called as if they held the paths of images, and are no fields."""
    field_columns = options.field_columns
    paths = []
    ids = []
    for column in columns:
        if column in field_columns:
            continue
        name = re.sub(r"[ -]", "_", column.lower())
        if name in IMAGE_COLUMNS:
            paths.append(column)
        elif name in _ID_COLUMNS:
            ids.append(column)
    # An id beside a path is no second path: "image_id" of a table that also has "file_name".
    return paths or ids
