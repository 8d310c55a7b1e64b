"""A table of one split -> whether the table of the training beside it numbers its classes otherwise.

The table of the training is read once, and no image of it is looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.detections import Detections
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.field_values import parse_list
from fastpipe.sources.files import SourcePath
from fastpipe.sources.folders.class_lists import find_class_list, read_descriptions
from fastpipe.sources.folders.split_classes import are_own_numbers
from fastpipe.sources.folders.splits import find_training
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables.class_columns import ClassTexts, settle_classes
from fastpipe.sources.tables.column_kinds import ColumnSummary
from fastpipe.sources.tables.manifest_reader import METADATA, choose_reader
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.table_files import training_tables
from fastpipe.sources.tables.table_text import LISTS

# In place of the name of a field: the classes of images, or of boxes or masks that have a row each.
_LABELS = ""

# A field, or _LABELS -> the names of its classes by number.
_Names = Mapping[str, Sequence[str]]


def compare_with_training(
    path: SourcePath,
    kind: str,
    columns: ColumnChoice,
    listing: Listing,
    options: SourceOptions,
) -> list[Assumption]:
    """Says that the table of the training beside val.csv, say, numbers the classes otherwise.

    Classes that are numbers keep them in any table.

    Args:
        path: the table.
        kind: as of `list_manifest`.
        columns: its columns with the image and the classes, and its fields.
        listing: of its images.
        options: the user's.
    """
    ours = _names_in_listing(columns, listing)
    if not ours:
        return []
    tables = training_tables(path)
    if path.name.lower() in METADATA:
        tables = _metadata_of_training(path)
    for table in tables:
        theirs = _names_in_table(table, kind, columns, options)
        # The table of the training may have more classes, if they come behind these.
        are_other_numbers = False
        for field_name, names in ours.items():
            training_names = list(theirs.get(field_name, ()))
            if training_names and training_names[: len(names)] != list(names):
                are_other_numbers = True
        if are_other_numbers:
            return [_describe_other_numbers(path, table, ours, theirs)]
        if any(theirs.values()):
            return []
    return []


def _metadata_of_training(path: SourcePath) -> list[SourcePath]:
    """The metadata of the folder of training beside the folder of a split."""
    if not isinstance(path, Path):
        return []
    training = find_training(path.parent.absolute())
    if training is None or not (training / path.name).is_file():
        return []
    return [training / path.name]


def _names_in_listing(columns: ColumnChoice, listing: Listing) -> _Names:
    """The names of the classes of a split that are no numbers."""
    names: dict[str, Sequence[str]] = {}
    classes = list(listing.classes)
    for field in listing.fields:
        # Boxes and masks with a row each have no column.
        has_rows = field.kind == "mask" or (field.kind == "boxes" and not field.column)
        if has_rows and not classes:
            # Number 0 of a mask is the background, which has no name.
            classes = [name for name in field.names if name]
        elif field.kind == "classes" or (field.kind == "boxes" and field.column):
            names[field.name] = field.names
    if columns.label is not None and not are_own_numbers(classes):
        names[_LABELS] = classes
    return {field_name: known for field_name, known in names.items() if known}


def _describe_other_numbers(
    path: SourcePath, table: SourcePath, ours: _Names, theirs: _Names
) -> Assumption:
    name = path.name
    training_name = table.name
    names_file = table
    # The metadata of a split lies in the folder of the split.
    if isinstance(path, Path) and path.name.lower() in METADATA:
        name = path.parent.absolute().name
        training_name = table.parent.name
        names_file = table.parent
    text = (
        f"classes: those of {readable(name)} alone, with other numbers than those of "
        f"{readable(training_name)} beside it"
    )
    # The lines of a list have images and classes, so --classes-from cannot read it.
    if table.suffix.lower() in LISTS:
        all_names = {*theirs.get(_LABELS, ()), *ours.get(_LABELS, ())}
        class_list = find_class_list(path.parent, all_names)
        if class_list is None:
            remedy = "write the names of all classes into a file, one on each line"
            return Assumption(f"{text}; {remedy}", "--classes-from FILE")
        names_file = class_list
    return Assumption(text, f"--classes-from {quote_for_shell(str(names_file))}")


def _names_in_table(
    table: SourcePath, kind: str, columns: ColumnChoice, options: SourceOptions
) -> _Names:
    """The names of the classes in another table; none if it has no such columns."""
    try:
        reader = choose_reader(table, kind, options)
        if reader.classes is not None:
            return {_LABELS: list(reader.classes)}
        names = _TableNames(columns, options, is_typed=kind != "csv")
        for row in reader.read_rows():
            if row.problem is None:
                names.add(row)
        return names.settle(table)
    except PackError:
        return {}  # it is another kind of table


class _TableNames:
    """The names of classes in the rows of a table, of which `add` takes one after the other."""

    def __init__(
        self, columns: ColumnChoice, options: SourceOptions, *, is_typed: bool
    ) -> None:
        self._label_column = columns.label
        self._image_column = columns.image
        self._options = options
        self._is_typed = is_typed
        self._labels: set[str] = set()
        # Fields with the classes of an image in a column, and their columns.
        self._class_fields: dict[str, SourceField] = {}
        # Fields of boxes in objects.
        self._box_fields: dict[str, SourceField] = {}
        self._detections: dict[str, Detections] = {}
        self._summaries: dict[str, ColumnSummary] = {}
        # The columns of the row before, and those of them that may have the classes of fields.
        self._columns: tuple[str, ...] = ()
        self._class_columns: list[str] = []
        for field in columns.fields:
            if field.kind == "classes":
                self._class_fields[field.name] = field
            elif field.kind == "boxes" and field.column:
                self._box_fields[field.name] = field
                self._detections[field.name] = Detections()

    def add(self, row: Row) -> None:
        if self._label_column is not None:
            self._labels.update(self._labels_in(row.values.get(self._label_column)))
        for name, field in self._box_fields.items():
            self._detections[name].add(row.values.get(field.column))
        column_names = tuple(row.values)
        if column_names != self._columns:
            self._columns = column_names
            self._class_columns = list(self._find_class_columns(column_names))
        for column in self._class_columns:
            summary = self._summaries.get(column)
            if summary is None:
                summary = ColumnSummary(typed=self._is_typed, keeps_all=True)
                self._summaries[column] = summary
            summary.add(row.values.get(column), row.where)

    def _labels_in(self, value: Any) -> Iterator[str]:
        """The names of classes in a cell, which may list those of several boxes."""
        if isinstance(value, str) and value.strip().startswith("["):
            try:
                value = parse_list(value.strip())
            except ImageError:
                return  # the image of the row is rejected
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and name.strip():
                # In JSON, spaces around a name belong to it.
                yield name if self._is_typed else name.strip()

    def _find_class_columns(self, columns: Sequence[str]) -> Iterator[str]:
        """The columns of a row that may have the classes of fields."""
        for field in self._class_fields.values():
            if field.columns:
                yield from self._wished_columns(field, columns)
            else:
                yield field.column

    def _wished_columns(
        self, field: SourceField, columns: Collection[str]
    ) -> Iterator[str]:
        """The columns that the user means by a field of columns of 0 and 1."""
        for wish in self._options.fields or ():
            if wish.name == field.name:
                # A name that no column has is among them.
                yield from (
                    name for name in wish.columns_of(columns) if name in columns
                )

    def settle(self, table: SourcePath) -> _Names:
        """The names by field, after the last row."""
        descriptions = read_descriptions(table.parent)
        labels = self._labels
        if descriptions is not None:
            labels = {descriptions.names.get(label, label) for label in labels}
        names: dict[str, Sequence[str]] = {_LABELS: sorted(labels)}
        for name, detections in self._detections.items():
            names[name] = sorted(detections.names)

        texts = {}
        for column, summary in self._summaries.items():
            texts[column] = ClassTexts(summary.texts, summary.items)
        unnamed = []
        for field in self._class_fields.values():
            if field.columns:
                names[field.name] = self._flag_columns(field)
            else:
                unnamed.append(field._replace(names=(), separator=""))
        settled, _ = settle_classes(unnamed, texts, self._options)
        for field in settled:
            names[field.name] = field.names
        return names

    def _flag_columns(self, field: SourceField) -> list[str]:
        """The columns of 0 and 1 of a field."""
        columns = []
        for column in self._wished_columns(field, self._summaries):
            is_other = column in (self._image_column, self._label_column)
            if not is_other and self._summaries[column].flags:
                columns.append(column)
        return columns
