"""Rows with a box each -> rows with an image each, its boxes and their classes."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.box_shares import ShareCheck, cut_shares
from fastpipe.sources.annotations.detections import box_corners
from fastpipe.sources.field_values import parse_list
from fastpipe.sources.files import SourcePath
from fastpipe.sources.folders.class_lists import (
    CLASS_LIST,
    Descriptions,
    read_class_list,
    read_descriptions,
)
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.notes import Notes
from fastpipe.sources.options import KEEP_IMAGE, quote_for_shell
from fastpipe.sources.tables.box_cells import is_missing, parse_boxes
from fastpipe.sources.tables.column_kinds import parse_text
from fastpipe.sources.tables.row_paths import clean_path, describe_wrong_path
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.split_column import SplitColumn

# Larger numbers of classes are codes, for which a list of names would be nearly empty.
_MAX_CLASS_NUMBER = 10_000
_CLASSES_FROM = "--classes-from"
# Of fewer boxes, all may have a width and height above x and y by chance.
_LEAST_BOXES_OF_CORNERS = 20


@dataclass
class BoxColumns:
    """The columns that hold the boxes of a table."""

    # four, in the order of `form`, or one that holds all four numbers.
    # Empty where the rows of an image have other values than boxes, such as captions.
    columns: tuple[str, ...]
    form: str  # one of BOX_FORMATS; "" if there are no columns
    # `BoxTable.gather` adds the assumptions that only all rows together tell.
    assumed: list[Assumption] = field(default_factory=list)


def as_lists(fields: Iterable[SourceField]) -> tuple[SourceField, ...]:
    """Fields whose values are lists: what each row of an image has in the field's column."""
    return tuple(
        source_field._replace(kind="json", is_per_box=True) for source_field in fields
    )


class _BoxRow(NamedTuple):
    """A row of the table, as it waits in `Notes` for the other rows of its image."""

    where: str
    boxes: list[list[float]]  # left, top, right, bottom of each box
    labels: list[int | str]  # the class of each box; empty if no column has classes
    fields: dict[str, list[Any]]  # field -> a value for each box
    size: Sequence[int] | None  # width and height of the image, if the row has them
    problem: str | None


@dataclass
class BoxTable:
    """A table with a row for each box. See Note [tables of boxes].

    `gather` reads all rows; then `rows`, `fields`, `empty` and `names` describe the images.
    """

    image_column: str
    boxes: BoxColumns
    class_column: str | None  # the class of each box
    # The number of this class, where `class_column` has its name.
    number_column: str | None
    has_number_classes: bool  # the texts of `class_column` are numbers
    # Where each image has one row, its class is the label of the image, too.
    labels_images: bool
    box_field: SourceField | None  # None if the boxes are not stored
    others: tuple[SourceField, ...]  # fields with a value for each box
    # Columns of `others` whose texts are read as numbers.
    number_columns: frozenset[str]
    # Width and height of the image; empty if the table has none.
    size_columns: tuple[str, ...]
    drops_bad_rows: bool = False  # rows whose box or class cannot be read

    def __post_init__(self) -> None:
        self._notes = Notes()
        # Path of an image -> offset and size in `_notes` of its first row, of its second row, ...
        self._places: dict[str, array[int]] = {}
        self._rejected: list[Row] = []  # rows without a path
        self._other_split_paths: dict[str, None] = {}
        self._names: set[str] = set()
        # The name of a class -> the number that `number_column` gives it. None if there is no such
        # column, or if it has something else.
        self._class_numbers: dict[str, int] | None = None
        if self.number_column is not None:
            self._class_numbers = {}
        # The names of classes that the table has as codes; None if there are none.
        self._descriptions: Descriptions | None = None
        self._described_code = ""  # a code of these in the table
        self._classes_without_box: Counter[str] = Counter()  # of rows without a box
        self._numbers: set[int] = set()  # classes that are numbers
        self._has_one_box_a_row = True
        # A cell lists classes, which are no label of their image.
        self._has_class_list = False
        self._shares = ShareCheck()
        # Boxes that are not the same in both forms.
        self._telling_box_count = 0
        # No box has a third number below the first, or a fourth below the second.
        self._are_ordered = True

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes by number; empty if classes are numbers.

        The table's own numbers count, with "" for numbers without a class. Else names are sorted.
        """
        if not self._class_numbers:
            return tuple(sorted(self._names))
        # The numbers may have gaps, and boxes have the numbers as they are.
        names = [""] * (max(self._class_numbers.values()) + 1)
        for name, number in self._class_numbers.items():
            names[number] = name
        return tuple(names)

    @property
    def empty(self) -> dict[str, Any]:
        """The values of an image that has no row, and so no boxes."""
        values = self._no_values()
        if self.box_field is not None:
            detection: dict[str, Any] = {"boxes": []}
            if self.class_column is not None:
                detection["labels"] = []
            values[self.box_field.name] = detection
        return values

    def _no_values(self) -> dict[str, Any]:
        """An empty list for each field but that of the boxes."""
        return {other.name: [] for other in self.others}

    def fields(self) -> tuple[SourceField, ...]:
        """The fields of the images."""
        if self.box_field is None:
            return self.others
        return (self.box_field._replace(names=self.names), *self.others)

    def gather(self, rows: Iterable[Row], split: SplitColumn | None = None) -> None:
        """Reads all rows. Rows of other splits only add the names of their classes."""
        for row in rows:
            self._read_class_number(row)
            if row.problem is None and split is not None and not split.has(row.values):
                self._add_other_split(row)
                continue

            path: Any = row.values.get(self.image_column)
            problem = row.problem or describe_wrong_path(self.image_column, path)
            if problem is not None:
                self._rejected.append(Row(row.where, problem=problem))
                continue

            # The other rows of the image may come at the end of the table. Until then the boxes
            # wait in a file, for there may be many millions.
            note = json.dumps(self._read_row(row)).encode()
            offset_bytes = self._notes.add(note)
            places = self._places.setdefault(clean_path(path), array("q"))
            places.extend((offset_bytes, len(note)))
        self._notes.flush()
        self._check_class_numbers()
        self._add_assumptions()

    def use_class_list(self, folder: SourcePath) -> None:
        """Takes the numbers or names of the classes from the list in a folder, if there is one.

        This comes before `gather`. The table's own numbers go before those of the list.
        """
        if self.class_column is not None and self.number_column is None:
            self._class_numbers = read_class_list(folder)
            if not self.has_number_classes:
                self._descriptions = read_descriptions(folder)

    def _read_class_number(self, row: Row) -> None:
        """Reads the number that the row gives the name of its class."""
        if self.class_column is None or self.number_column is None:
            return
        if self._class_numbers is None:
            return  # a row before has shown that these are no numbers of classes
        name: Any = row.values.get(self.class_column)
        number: Any = row.values.get(self.number_column)
        if not isinstance(name, str) or not name.strip():
            return  # a row without a class
        name = name.strip()
        value = -1.0
        if not is_missing(number):
            value = float(number)
        is_number = value.is_integer() and 0 <= value <= _MAX_CLASS_NUMBER
        # A class with two numbers, too, means that the column says something else.
        if not is_number or self._class_numbers.setdefault(name, int(value)) != value:
            self._class_numbers = None

    def _check_class_numbers(self) -> None:
        """Drops the numbers where two classes share one, or a class has none."""
        if self._class_numbers is None:
            return
        numbers = self._class_numbers
        unknown = sorted(self._names - numbers.keys())
        if unknown and self.number_column is None:
            text = f"classes of boxes: numbered by name, for {CLASS_LIST} has no {unknown[0]!r}"
            self.boxes.assumed.append(Assumption(text, _CLASSES_FROM))
        if unknown or not self._names or len(set(numbers.values())) < len(numbers):
            self._class_numbers = None

    def _add_assumptions(self) -> None:
        """Adds what only all rows together show, such as that some have a class and no box."""
        if self._class_numbers:
            name, number = max(self._class_numbers.items(), key=lambda item: item[1])
            place = CLASS_LIST
            option = _CLASSES_FROM
            if self.number_column is not None:
                place = f"column {self.number_column!r}"
                option = f"--label-column {self.class_column}"
            text = f"classes of boxes: numbered as in {place}: {name!r} is {number}"
            self.boxes.assumed.append(Assumption(text, option))
        if self._descriptions is not None and self._described_code:
            code = self._described_code
            text = (
                f"classes of boxes: named as in {self._descriptions.file}: {code!r} is "
                f"{self._descriptions.names[code]!r}"
            )
            self.boxes.assumed.append(Assumption(text))
        if self._classes_without_box:
            count = self._classes_without_box.total()
            name = self._classes_without_box.most_common(1)[0][0]
            rows = f"{count:,} rows have"
            if count == 1:
                rows = "1 row has"
            text = (
                f"boxes: {rows} a class ({name!r}) and no box; an image without boxes is "
                "background"
            )
            self.boxes.assumed.append(Assumption(text))
        if self._shares.are_shares and self.box_field is not None:
            columns = ", ".join(map(readable, self.boxes.columns))
            self.boxes.assumed.append(self._shares.describe(columns))
        elif self._look_like_corners:
            columns = ", ".join(map(readable, self.boxes.columns))
            text = (
                f"boxes ({columns}): in none of the {self._telling_box_count:,} boxes is the third number below "
                "the first, or the fourth below the second, so they may be corners"
            )
            self.boxes.assumed.append(Assumption(text, "--box-format xyxy"))
        if self._may_have_image_labels:
            text = (
                f"labels: none, though each image has one box, and column {self.class_column!r} "
                "has its class"
            )
            option = f"--label-column {quote_for_shell(self.class_column or '')}"
            self.boxes.assumed.append(Assumption(text, option))

    @property
    def _look_like_corners(self) -> bool:
        """Whether boxes that are assumed to have width and height may be corners by their numbers."""
        if self.box_field is None or not self.box_field.may_be_corners:
            return False
        return self._are_ordered and self._telling_box_count >= _LEAST_BOXES_OF_CORNERS

    @property
    def _may_have_image_labels(self) -> bool:
        """Whether the class of the only box may be meant as the label of the image."""
        if self.class_column is None or self.labels_images:
            return False
        has_classes = len(self._names) > 1 or len(self._numbers) > 1
        is_one_box = self._has_one_row_an_image and self._has_one_box_a_row
        return has_classes and is_one_box and len(self._places) > 1

    @property
    def _has_one_row_an_image(self) -> bool:
        # A row has an offset and a size in `_places`.
        return all(len(places) == 2 for places in self._places.values())

    def _add_other_split(self, row: Row) -> None:
        image: Any = row.values.get(self.image_column)
        if isinstance(image, str) and image:
            self._other_split_paths[clean_path(image)] = None
        # It adds the names of the classes. A problem matters only in the row's own split.
        self._read_row(row)

    def _read_row(self, row: Row) -> _BoxRow:
        """Reads the cells of a row; `problem` says why that fails."""
        try:
            boxes = self._read_boxes(row)
            if not boxes and self.class_column is not None:
                class_text = str(row.values.get(self.class_column)).strip()
                if not is_missing(class_text):
                    self._classes_without_box[class_text] += 1
            if len(boxes) != 1:
                self._has_one_box_a_row = False
            labels = self._read_labels(row, len(boxes))
            value_count = 1
            if self.boxes.columns:
                value_count = len(boxes)
            fields = {}
            for other in self.others:
                fields[other.name] = self._read_field(row, other, value_count)
            return _BoxRow(row.where, boxes, labels, fields, self._read_size(row), None)
        except ValueError as error:
            problem = str(error)
            if self.box_field is not None:
                problem = f"{problem}; {KEEP_IMAGE}"
            return _BoxRow(row.where, [], [], {}, None, problem)

    def rows(self) -> Iterator[Row]:
        """A row for each image, with all of its boxes.

        Raises:
            PackError: classes are numbers in some rows and names in others.
        """
        if self._names and self._numbers:
            raise PackError(
                f"column {self.class_column}: classes of boxes are numbers and names "
                f"({min(self._names)!r}); expected only one of both"
            )
        label_numbers: dict[int | str, int] = {}
        for number, name in enumerate(self.names):
            if name:
                label_numbers[name] = number
        box_key = "boxes"
        if self._shares.are_shares:
            box_key = "shares"
        # A label is of an image. Where images have several rows, classes are of boxes alone.
        has_image_labels = (
            self.labels_images
            and not self._has_class_list
            and self._has_one_row_an_image
        )

        for path, places in self._places.items():
            all_box_rows = self._read_notes(places)
            box_rows = all_box_rows
            if self.drops_bad_rows:
                box_rows = [row for row in all_box_rows if row.problem is None]
            boxes: list[list[float]] = []
            labels: list[int | str] = []
            sizes: list[tuple[int, int]] = []
            values = self._no_values()
            for box_row in box_rows:
                boxes += box_row.boxes
                labels += box_row.labels
                if box_row.size is not None:
                    width, height = box_row.size
                    sizes.append((width, height))
                for name, field_values in box_row.fields.items():
                    values[name] += field_values

            if self.box_field is not None:
                if self._shares.are_shares:
                    boxes = [cut_shares(box) for box in boxes]
                detection: dict[str, Any] = {box_key: boxes}
                if self.class_column is not None:
                    numbers = [label_numbers.get(label, label) for label in labels]
                    detection["labels"] = numbers
                elif box_key == "shares":
                    # `read_values` expects the key beside shares.
                    detection["labels"] = None
                if len(box_rows) < len(all_box_rows):
                    detection["dropped"] = len(all_box_rows) - len(box_rows)
                values[self.box_field.name] = detection

            image_label = None
            if has_image_labels and labels:
                image_label = labels[0]
            size = None
            if sizes:
                size = sizes[0]
            problem = _describe_problem(box_rows, sizes)
            where = all_box_rows[0].where
            yield Row(where, values, problem, path, image_label, size)

        yield from self._rejected
        for path in self._other_split_paths:
            yield Row("", path=path, is_of_another=True)

    def _read_notes(self, places: array[int]) -> list[_BoxRow]:
        rows = []
        for offset_bytes, size_bytes in zip(places[::2], places[1::2], strict=True):
            note = self._notes.read(offset_bytes, size_bytes)
            rows.append(_BoxRow(*json.loads(note)))
        return rows

    def _read_boxes(self, row: Row) -> list[list[float]]:
        """The corners of the boxes of a row: one box, none, or several if a cell lists them."""
        columns = self.boxes.columns
        if not columns:
            return []
        cells = [row.values.get(column) for column in columns]
        if len(cells) == 1:
            parsed = parse_boxes(cells[0])
            if parsed is None:
                raise ImageError(
                    f"column {columns[0]}: expected four numbers of a box, got {cells[0]!r:.60}"
                )
            boxes = parsed
        else:
            filled = [cell for cell in cells if not is_missing(cell)]
            if 0 < len(filled) < 4:
                raise ImageError(
                    f"columns {', '.join(columns)}: expected four numbers, or none where there is "
                    f"no box; got {cells}"
                )
            boxes = []
            if filled:
                boxes.append([float(str(cell)) for cell in filled])

        for box in boxes:
            self._shares.add(box)
            # A box that begins at 0, 0 is the same in both forms.
            if box[0] > 0 or box[1] > 0:
                self._telling_box_count += 1
            if box[2] < box[0] or box[3] < box[1]:
                self._are_ordered = False
        return [box_corners(box, self.boxes.form) for box in boxes]

    def _read_labels(self, row: Row, box_count: int) -> list[int | str]:
        """The class of each box: the row's, unless its cell lists a class for each box."""
        if self.class_column is None or box_count == 0:
            return []
        value: Any = row.values.get(self.class_column)
        is_list_text = isinstance(value, str) and value.strip().startswith("[")
        if is_list_text and self._can_list(row):
            value = parse_list(value.strip())
        if not isinstance(value, list):
            return [self._read_label(value)] * box_count

        self._has_class_list = True
        if len(value) != box_count:
            raise ImageError(
                f"column {self.class_column}: expected a class for each of {box_count} boxes, got "
                f"{len(value)}"
            )
        return [self._read_label(label) for label in value]

    def _can_list(self, row: Row) -> bool:
        """Whether the row may hold several boxes, so that other cells may list a value for each."""
        if len(self.boxes.columns) != 1:
            return False
        cell = row.values.get(self.boxes.columns[0])
        if isinstance(cell, str):
            return cell.strip().startswith(("[", "("))
        return isinstance(cell, list)

    def _read_label(self, value: Any) -> int | str:
        """The class of a box, and notes whether classes are names or numbers."""
        if isinstance(value, str):
            value = value.strip()
        if value in ("", None):
            raise ImageError(
                f"column {self.class_column}: expected the class of a box, got none"
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)

        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number or self.has_number_classes:
            # Pandas writes 2.0 if a class of the column is missing.
            number = int(float(value))
            if not 0 <= number < MAX_CLASSES:
                raise ImageError(
                    f"column {self.class_column}: expected a class from 0 on, got {value}"
                )
            self._numbers.add(number)
            return number
        if not isinstance(value, str):
            raise ImageError(
                f"column {self.class_column}: expected the name or number of a class, got "
                f"{value!r:.60}"
            )
        name: str = value
        if self._descriptions is not None and value in self._descriptions.names:
            self._described_code = value
            name = self._descriptions.names[value]
        self._names.add(name)
        return name

    def _read_field(self, row: Row, other: SourceField, count: int) -> list[Any]:
        """The value of a field for each box: the row's, unless its cell lists one for each box."""
        if count == 0:
            return []
        value: Any = row.values.get(other.column)
        if other.column in self.number_columns:
            value = parse_text(value)
        if self._can_list(row):
            if isinstance(value, str) and value.strip().startswith("["):
                try:
                    value = parse_list(value.strip())
                except ImageError:
                    pass  # a text that begins with a bracket
            if isinstance(value, list) and len(value) == count:
                return value
        return [value] * count

    def _read_size(self, row: Row) -> tuple[int, int] | None:
        """Width and height of the image; None if the row has none."""
        cells: list[Any] = [row.values.get(column) for column in self.size_columns]
        if not cells or any(map(is_missing, cells)):
            return None
        width, height = (int(float(cell)) for cell in cells)
        if width <= 0 or height <= 0:
            return None  # tools write 0 where they did not know the size
        return (width, height)


def table_without_boxes(
    image_column: str,
    fields: tuple[SourceField, ...],
    *,
    number_columns: frozenset[str],
    size_columns: tuple[str, ...] = (),
) -> BoxTable:
    """A table that has no boxes, whose other columns are gathered by image."""
    return BoxTable(
        image_column=image_column,
        boxes=BoxColumns((), ""),
        class_column=None,
        number_column=None,
        has_number_classes=False,
        labels_images=False,
        box_field=None,
        others=fields,
        number_columns=number_columns,
        size_columns=size_columns,
    )


def _describe_problem(
    rows: Sequence[_BoxRow], sizes: Sequence[tuple[int, int]]
) -> str | None:
    """Why the image of these rows cannot be packed; None if it can."""
    for row in rows:
        if row.problem is not None:
            # The image's message ends with the name of its first row in any case.
            if row is rows[0]:
                return row.problem
            return f"{row.problem} ({row.where})"
    for size in sizes:
        if size != sizes[0]:
            return f"its rows say different sizes: {sizes[0]} and {size}"
    return None
