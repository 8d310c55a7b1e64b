"""A table with run lengths of masks -> a row for each image, with its mask.

Note [tables of run lengths]
Contests have masks as texts in a table: a row for each object or class of an image (Airbus,
Severstal, Understanding Clouds), or one for each image (Carvana). All rows of an image become one
mask. A pixel has the number of its class, or 1 where the table has no classes; 0 is background.
Where objects have the class 0 (iMaterialist), a pixel has the number of its class plus 1, and the
names of the field are the numbers of the table: 1 has the name "0". Of rows of two classes that
overlap, the later one covers the earlier one. Where the user asks for the column "instances", which
no table has, a pixel has the number of its row among those of the image.
The size of the image is known only when it is converted, so a mask stays a list of texts until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.errors import ImageError, PackError
from fastpipe.sources.annotations.run_lengths import parse_runs
from fastpipe.sources.class_names import are_counted_from_0
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.box_cells import is_missing
from fastpipe.sources.tables.box_rows import as_lists, table_without_boxes
from fastpipe.sources.tables.column_kinds import ColumnSummary
from fastpipe.sources.tables.likely import holds_runs
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.split_column import SplitColumn
from fastpipe.sources.tables.table_boxes import (
    find_class_columns,
    find_number_columns,
    find_size_columns,
)

MASK = "mask"
# What a user calls the column of a mask that numbers the objects.
_INSTANCES = "instances"
_NO_RUNS = "-1"  # of an image without an object, in some tables
# The rows of an image, as lists, while they are gathered. No field can have these names.
_RUNS_OF_ROWS = "#runs"
_CLASSES_OF_ROWS = "#classes"


def find_run_field(
    summaries: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    options: SourceOptions,
) -> SourceField | None:
    """The field of masks whose column has run lengths; None if there is none."""
    for field in columns.fields:
        is_mask = field.kind == MASK and field.column in summaries
        if is_mask and summaries[field.column].has_runs:
            # Without --field a mask is called so, whatever the column is called.
            names = {other.name for other in columns.fields}
            if options.fields is None and MASK not in names:
                return field._replace(name=MASK)
            return field
    return None


def find_wish_of_objects(
    summaries: Mapping[str, ColumnSummary], options: SourceOptions
) -> FieldColumn | None:
    """The field of a user that numbers the objects in run lengths, with their column.

    None: there is no such field, or not exactly one column of run lengths.

    Raises:
        PackError: the user wants the column for another field, too.
    """
    run_columns = [
        column for column, values in summaries.items() if holds_runs(column, values)
    ]
    if _INSTANCES in summaries or len(run_columns) != 1:
        return None
    wishes = options.fields or ()
    for wish in wishes:
        if wish.column != _INSTANCES or wish.kind not in (None, MASK):
            continue
        if run_columns[0] in options.field_columns:
            raise PackError(
                f"{wish}: column {run_columns[0]!r} makes one mask of an image. Leave out the other "
                "field of this column, and pack it into a second dataset"
            )
        return wish._replace(column=run_columns[0], kind=MASK)
    return None


def with_run_column(options: SourceOptions, wish: FieldColumn) -> SourceOptions:
    """The options with the column of run lengths for a field. `wish`: the field, with the column."""
    fields = []
    for field in options.fields or ():
        fields.append(wish if field.name == wish.name else field)
    return replace(options, fields=tuple(fields))


class MaskTable:
    """A table of run lengths. See Note [tables of run lengths].

    `gather` reads all rows; then `rows` has the images.
    """

    def __init__(
        self,
        summaries: Mapping[str, ColumnSummary],
        columns: ColumnChoice,
        run_field: SourceField,
        options: SourceOptions,
        *,
        typed: bool,
        table: str,
    ) -> None:
        self._run_column = run_field.column
        name_column, number_column = find_class_columns(
            summaries, columns, (run_field.column,), options, "masks"
        )
        # The numbers of classes that have names, too, are the table's own.
        self.class_column = number_column or name_column
        # The number of each class that is a name.
        self._numbers: dict[str, int] | None = None
        if self.class_column is not None:
            self._numbers = _number_names(summaries[self.class_column])
        self._are_objects_numbered = run_field.has_object_numbers
        names: tuple[str, ...] = ()
        if self._numbers is not None and not self._are_objects_numbered:
            names = ("", *self._numbers)
        self.run_field = run_field._replace(names=names)
        # Of all rows with an object, also those of other splits, so that all have the same numbers.
        # A table of validation may lack the class 0, and has the numbers of the training.
        self._are_counted_from_0 = self._is_from_0_in_given(options)
        self._max_class = 0

        size_columns = find_size_columns(summaries, (run_field.column,))
        others = []
        known = {columns.image, run_field.column, self.class_column, *size_columns}
        for field in columns.fields:
            is_wanted = options.fields is not None or field.column not in known
            if is_wanted and field.column != run_field.column:
                others.append(field)
        _check_kinds(options, run_field, table)
        self.others = as_lists(others)

        gathered_fields = [SourceField(_RUNS_OF_ROWS, "json", column=run_field.column)]
        if self.class_column is not None:
            gathered_fields.append(
                SourceField(_CLASSES_OF_ROWS, "json", column=self.class_column)
            )
        self._gathered = table_without_boxes(
            columns.image,
            (*gathered_fields, *self.others),
            number_columns=find_number_columns(summaries, others, typed=typed),
            size_columns=size_columns,
        )

    def _is_from_0_in_given(self, options: SourceOptions) -> bool:
        """Whether the dataset of --classes-from has masks of a table with a class 0."""
        if options.classes is None or self._numbers is not None:
            return False
        given_names = dict(options.classes.fields).get(self.run_field.name, ())
        return self.class_column is not None and are_counted_from_0(given_names)

    def gather(self, rows: Iterator[Row], split: SplitColumn | None) -> None:
        """Reads all rows; keeps those of the split, or all."""
        self._gathered.gather(self._with_classes_seen(rows), split)
        if self._are_counted_from_0 and self._max_class + 1 < MAX_CLASSES:
            names = ("", *map(str, range(self._max_class + 1)))
            self.run_field = self.run_field._replace(names=names)

    def _with_classes_seen(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The same rows; it keeps whether an object has the class 0, and the highest class."""
        are_numbers = self.class_column is not None and self._numbers is None
        is_seen = are_numbers and not self._are_objects_numbered
        for row in rows:
            if is_seen and not _has_no_object(row.values.get(self._run_column)):
                number = _class_number(row.values.get(self.class_column or ""))
                self._are_counted_from_0 |= number == 0
                self._max_class = max(self._max_class, number)
            yield row

    @property
    def fields(self) -> tuple[SourceField, ...]:
        return (self.run_field, *self.others)

    @property
    def empty(self) -> dict[str, Any]:
        """The values of an image that has no row."""
        values: dict[str, Any] = {other.name: [] for other in self.others}
        values[self.run_field.name] = {"shapes": []}
        return values

    def rows(self) -> Iterator[Row]:
        """A row for each image."""
        for row in self._gathered.rows():
            if row.problem is not None or row.is_of_another:
                yield row
                continue
            values = dict(row.values)
            runs = values.pop(_RUNS_OF_ROWS)
            classes = values.pop(_CLASSES_OF_ROWS, [1] * len(runs))
            try:
                values[self.run_field.name] = {"shapes": self._shapes(runs, classes)}
            except ImageError as problem:
                yield row._replace(problem=str(problem))
                continue
            yield row._replace(values=values)

    def find_assumptions(self) -> list[Assumption]:
        """The assumptions on objects that masks do not tell apart, and on classes that overlap."""
        if self._are_objects_numbered:
            return []
        return [
            *self._assume_counted_from_0(),
            *self._assume_merged(),
            *self._assume_overlap(),
        ]

    def _assume_counted_from_0(self) -> list[Assumption]:
        """The assumption that a pixel has the number of its class plus 1, if it has."""
        if not self._are_counted_from_0:
            return []
        name = self.run_field.name
        text = (
            f"masks: column {self.class_column!r} counts the classes from 0, which is the "
            "background in a mask, so a pixel has the number of its class plus 1. --classes-from "
            "FILE names the classes. The option numbers the objects of an image, with their "
            "classes as they are in a list"
        )
        fields = (
            f"--field {name}={_INSTANCES}:{MASK} --field class_id={self.class_column}"
        )
        return [Assumption(text, fields)]

    def _assume_merged(self) -> list[Assumption]:
        """The assumption on images of which several objects have one number, if there are any."""
        merged_count = 0
        for row in self._gathered.rows():
            if row.problem is not None or row.is_of_another:
                continue
            classes = self._classes_with_runs(row.values)
            merged_count += len(classes) > len(set(classes))
        if not merged_count:
            return []
        images = "1 image has"
        if merged_count > 1:
            images = f"{merged_count:,} images have"
        number = "1" if self.class_column is None else "the number of the class"
        text = (
            f"masks: {images} several objects with one number, {number}, for all rows of an image "
            "make one mask; the option numbers the objects"
        )
        option = f"--field {self.run_field.name}={_INSTANCES}:{MASK}"
        return [Assumption(text, option)]

    def _classes_with_runs(self, values: Mapping[str, Any]) -> list[str]:
        """The classes of the rows of an image that have an object."""
        runs_of_rows = values[_RUNS_OF_ROWS]
        classes = values.get(_CLASSES_OF_ROWS, [1] * len(runs_of_rows))
        return [
            str(class_value)
            for runs, class_value in zip(runs_of_rows, classes, strict=True)
            if not _has_no_object(runs)
        ]

    def _assume_overlap(self) -> list[Assumption]:
        """The assumption on images in which objects of two classes overlap, if there are any."""
        # Without classes the rows of all masks have one number, so none of them overlap.
        if self.class_column is None:
            return []
        overlapping_count = 0
        for row in self.rows():
            if row.problem is None and not row.is_of_another:
                overlapping_count += _has_overlap(
                    row.values[self.run_field.name]["shapes"]
                )
        if not overlapping_count:
            return []
        images = "1 image has"
        if overlapping_count > 1:
            images = f"{overlapping_count:,} images have"
        text = (
            f"masks: {images} pixels of several classes in column {self._run_column!r}; a pixel "
            "has the class of the last row"
        )
        return [Assumption(text)]

    def _shapes(
        self, runs_of_rows: Sequence[Any], classes: Sequence[Any]
    ) -> list[tuple[int, dict[str, str]]]:
        """The number to draw and the run lengths of each row that has some."""
        shapes: list[tuple[int, dict[str, str]]] = []
        for runs, class_value in zip(runs_of_rows, classes, strict=True):
            if _has_no_object(runs):
                continue
            text = str(runs).strip()
            try:
                parse_runs(text)
            except ValueError as problem:
                raise ImageError(f"column {self._run_column}: {problem}") from None
            number = len(shapes) + 1
            if not self._are_objects_numbered:
                number = self._number_of(class_value)
            shapes.append((number, {"runs": text}))
        return shapes

    def _number_of(self, value: Any) -> int:
        """The number of a class in masks."""
        if is_missing(value):
            raise ImageError(
                f"column {self.class_column}: expected the class of a mask, got none"
            )
        text = str(value).strip()
        if self._numbers is not None:
            return self._numbers[text]
        number = _class_number(text)
        if number < 0:
            raise ImageError(
                f"column {self.class_column}: expected the number of a class, got {text}"
            )
        return number + 1 if self._are_counted_from_0 else number


def _class_number(value: Any) -> int:
    """The number of a class in a cell; -1 if it is none."""
    if is_missing(value):
        return -1
    number = float(str(value))
    if number < 0 or not number.is_integer():
        return -1
    return int(number)


def _has_no_object(runs: Any) -> bool:
    """Whether a cell says that there is no object."""
    return is_missing(runs) or str(runs).strip() == _NO_RUNS


def _number_names(classes: ColumnSummary) -> dict[str, int] | None:
    """The number of each name, sorted, from 1 on; None if the classes are numbers themselves."""
    if classes.is_numeric:
        return None
    return {name: number for number, name in enumerate(sorted(classes.texts), 1)}


def _check_kinds(options: SourceOptions, run_field: SourceField, table: str) -> None:
    """Raises PackError if --field gives a kind to values of which an image has a list."""
    for wish in options.fields or ():
        if wish.column != run_field.column and wish.kind not in (None, "json", "text"):
            raise PackError(
                f"{wish}: {table} has rows of masks, of which an image may have several, so its "
                "value is a list in JSON; leave out the kind"
            )


def _has_overlap(shapes: Sequence[tuple[int, dict[str, str]]]) -> bool:
    """Whether a pixel is in runs of two classes."""
    if len({number for number, _ in shapes}) < 2:
        return False
    runs: list[tuple[int, int, int]] = []  # first pixel, the one behind the last, class
    for number, shape in shapes:
        for start, end in parse_runs(shape["runs"]).tolist():
            runs.append((start, end, number))
    # The last pixels of the runs so far, by class.
    ends: dict[int, int] = {}
    for start, end, number in sorted(runs):
        for other, other_end in ends.items():
            if other != number and other_end > start:
                return True
        ends[number] = max(end, ends.get(number, 0))
    return False
