"""A table with a row for each box -> rows with an image each, its boxes, and the classes of these.

Note [tables of boxes]
Detection sets are often tables: `filename,width,height,class,xmin,ymin,xmax,ymax` of TensorFlow's scripts, Kaggle's
`image_id,width,height,bbox` with "[x, y, w, h]", Open Images' shares. The columns' names say what the numbers are.
Where names leave it open (x, y, width, height; bbox), COCO's way is assumed, and --box-format says another one. Rows
wait in `Notes`, since those of an image need not follow one another.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.layout import MOST_CLASSES
from fastpipe.sources.column_kinds import Seen, field_value, listed
from fastpipe.sources.detections import corners_of
from fastpipe.sources.likely import named_as_label
from fastpipe.sources.listing import Assumption, Notes, SourceField
from fastpipe.sources.options import ColumnChoice, SourceOptions, named
from fastpipe.sources.rows import Row, clean_path
from fastpipe.sources.split_column import SplitColumn

# The four columns of a box, by the words in their names, and what they hold; the first that a table has count.
_FORMS = (
    *((tuple(names.split()), "xyxy", True) for names in (
        "xmin ymin xmax ymax",
        "x0 y0 x1 y1",
        "x1 y1 x2 y2",
        "left top right bottom",
        "xtl ytl xbr ybr",
        "minx miny maxx maxy",
        "xstart ystart xend yend",
        "startx starty endx endy",
    )),
    *((tuple(names.split()), "cxcywh", True) for names in (
        "xcenter ycenter width height",
        "xcenter ycenter w h",
        "centerx centery width height",
        "xcentre ycentre width height",
        "cx cy w h",
        "cx cy width height",
        "xc yc w h",
    )),
    *((tuple(names.split()), "xywh", True) for names in (
        "xmin ymin width height",
        "xmin ymin w h",
        "left top width height",
        "left top w h",
        "x1 y1 width height",
        "x1 y1 w h",
    )),
    *((tuple(names.split()), "xywh", False) for names in ("x y w h", "x y width height")),
)  # fmt: skip
_ONE_COLUMN = frozenset(
    ("bbox", "box", "boundingbox", "bndbox", "boxes", "bboxes", "boundingboxes", "boxesstring")
)
_PREFIXES = re.compile(r"^(bbox|box|boundingbox|bndbox|bb|roi|rect|region)(?=.)")
_SIDES = (
    ("width", "height"),
    ("imagewidth", "imageheight"),
    ("imgwidth", "imgheight"),
    ("imgw", "imgh"),
    ("w", "h"),
)
_NO_BOX = frozenset(("", "[]", "no_box", "nan", "none", "null"))


class BoxColumns(NamedTuple):
    """Where a table has its boxes."""

    columns: tuple[str, ...]  # four, in the order of `form`, or one with all four numbers
    form: str  # one of BOX_FORMATS
    assumed: tuple[Assumption, ...] = ()


def box_columns(seen: Mapping[str, Seen], how: SourceOptions, table: str) -> BoxColumns | None:
    """The columns of boxes; None: there are none, or fields are made of them. PackError: it is not certain."""
    taken = {column for each in how.fields or () for column in each.columns_of(seen)}
    figures = {
        plain: column for column in seen if seen[column].are_figures and (plain := _plain(column))
    }
    for names, form, certain in _FORMS:
        columns = tuple(figures.get(name, "") for name in names)
        if all(columns) and not taken & set(columns) and not ("x3" in figures and "x2" in names):
            return _read_as(columns, form, certain, how, table)
    for column in seen:
        if (
            column not in taken
            and _plain(column, whole=True) in _ONE_COLUMN
            and _holds_boxes(seen[column])
        ):
            return _read_as((column,), "xywh", False, how, table)
    return None


def no_boxes(table: str) -> PackError:
    """Of a table whose boxes a user describes, and which has none."""
    return PackError(
        f"--box-format: {table} has no columns of boxes, such as xmin, ymin, xmax, ymax or bbox"
    )


def _holds_boxes(seen: Seen) -> bool:
    """Whether values are lists of four numbers, or such numbers without brackets."""
    if seen.are_fours:
        return True
    texts = [text for text in seen.first if text.lower() not in _NO_BOX]
    return bool(texts) and all(_fours(text) is not None for text in texts)


def _read_as(
    columns: tuple[str, ...], form: str, certain: bool, how: SourceOptions, table: str
) -> BoxColumns:
    shown = ", ".join(map(readable, columns))
    if how.box_format in (None, form) and (certain or how.box_format):
        return BoxColumns(columns, form)
    if how.box_format is not None:
        if certain:
            raise PackError(
                f"--box-format {how.box_format}: the columns {shown} of {table} say that they are {form}"
            )
        return BoxColumns(columns, how.box_format)
    words = "left, top, width, height, as COCO has them"
    return BoxColumns(
        columns, form, (Assumption(f"boxes ({shown}): {words}", "--box-format xyxy or cxcywh"),)
    )


def _plain(column: str, *, whole: bool = False) -> str:
    """The name of a column without what tables put around it: Roi.X1 is x1, bbox_width is width."""
    bare = re.sub(r"[^a-z0-9]", "", column.lower())
    return bare if whole else _PREFIXES.sub("", bare)


def class_column(
    seen: Mapping[str, Seen], columns: ColumnChoice, boxes: BoxColumns, how: SourceOptions
) -> str | None:
    """The column with the class of each box; None: there is none. PackError: several may be it."""
    if columns.label is not None:
        return columns.label
    taken = {columns.image, *boxes.columns, *(each.column for each in how.fields or ())}
    likely = [column for column in seen if column not in taken and named_as_label(column)]
    likely = [column for column in likely if not seen[column].are_fractions]
    texts = [column for column in likely if not seen[column].are_figures]
    # A table may have the name of a class and its number; the name says more.
    likely = texts if len(texts) == 1 else likely
    if len(likely) > 1:
        raise PackError(
            f"several columns may hold the classes of boxes: {named(likely)}. --label-column picks one; --field "
            "NAME=COLUMN stores another one"
        )
    return next(iter(likely), None)


@dataclass
class Gathering:
    """The rows of a table of boxes -> a row for each image. See Note [tables of boxes]"""

    seen: Mapping[str, Seen]
    image: str
    boxes: BoxColumns
    label: str | None  # the column with the class of each box
    numbered: bool  # labels are numbers
    of_images: bool  # where each image has one row, the class is its label, too
    others: tuple[SourceField, ...]  # fields with a value for each box
    field: SourceField | None  # the boxes; None: they are not stored
    sides: tuple[str, ...]  # columns with width and height of the image; (): there are none
    typed: bool

    def __post_init__(self) -> None:
        self._notes = Notes()
        self._places: dict[
            str, array[int]
        ] = {}  # path of an image -> offset and size of each of its rows
        self._lost: list[Row] = []
        self._elsewhere: dict[str, None] = {}  # paths of images of other splits
        self._names: set[str] = set()
        self._fractions, self._most = False, 0.0
        self._has_lists = (
            False  # whether a row has a list of classes, which is no label of its image
        )
        self._has_numbers = False  # whether a class is a number

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, sorted; none where they are numbers."""
        return tuple(sorted(self._names))

    @property
    def empty(self) -> dict[str, Any]:
        """The values of an image without a row: it has no boxes."""
        values: dict[str, Any] = {each.name: [] for each in self.others}
        if self.field is not None:
            values[self.field.name] = (
                {"boxes": []} if self.label is None else {"boxes": [], "labels": []}
            )
        return values

    def fields(self) -> tuple[SourceField, ...]:
        """Of the images, after `gather`."""
        own = () if self.field is None else (self.field._replace(names=self.names),)
        return (*own, *self.others)

    def gather(self, rows: Iterable[Row], split: SplitColumn | None = None) -> None:
        """Takes all rows; of other splits than the chosen one only the names of classes."""
        for row in rows:
            if split is not None and row.problem is None and not split.has(row.values):
                image: Any = row.values.get(self.image)
                if isinstance(image, str) and image:
                    self._elsewhere[clean_path(image)] = None
                with suppress(ImageError, ValueError):
                    self._labels(row, len(self._boxes(row)))
                continue
            path: Any = row.values.get(self.image)
            problem = row.problem
            if problem is None and (not isinstance(path, str) or not path):
                problem = f"column {self.image}: expected the path of an image, got {path!r:.60}"
            if problem is not None:
                self._lost.append(Row(row.where, problem=problem))
                continue
            boxes = list[list[float]]()
            labels = list[int | str]()
            others = dict[str, list[Any]]()
            size = None
            try:
                boxes = self._boxes(row)
                labels = self._labels(row, len(boxes))
                others = {each.name: self._others(row, each, len(boxes)) for each in self.others}
                size = self._size(row)
            except (ImageError, ValueError) as wrong:
                problem = str(wrong)
            note = json.dumps([row.where, boxes, labels, others, size, problem]).encode()
            place = self._places.setdefault(clean_path(path), array("q"))
            place.extend((self._notes.add(note), len(note)))
        self._notes.flush()

    def rows(self) -> Iterator[Row]:
        """One row an image, with all of its boxes."""
        if self._names and self._has_numbers:
            raise PackError(
                f"column {self.label}: classes of boxes are numbers and names ({self.names[0]!r}); expected only one "
                "of both"
            )
        numbers = {name: number for number, name in enumerate(self.names)}
        shares = self._fractions and self._most <= 1
        has_one_row = all(len(places) == 2 for places in self._places.values())
        is_of_image = self.of_images and has_one_row and not self._has_lists
        for path, places in self._places.items():
            found = [
                json.loads(self._notes.read(offset, size))
                for offset, size in zip(places[::2], places[1::2], strict=True)
            ]
            boxes = [box for _, ours, *_ in found for box in ours]
            labels = [label for _, _, ours, *_ in found for label in ours]
            others = {
                each.name: [value for row in found for value in row[3].get(each.name, ())]
                for each in self.others
            }
            first = found[0][0]
            problem = next(
                (f"{problem} ({where})" for where, *_, problem in found if problem), None
            )
            if problem is not None and found[0][-1] is not None:
                problem = found[0][-1]  # it is named by its first row anyway
            sizes = [tuple(size) for *_, size, _ in found if size is not None]
            if problem is None and len(set(sizes)) > 1:
                other = next(size for size in sizes if size != sizes[0])
                problem = f"its rows say different sizes: {sizes[0]} and {other}"
            value: dict[str, Any] = {"shares" if shares else "boxes": boxes}
            if self.label is not None:
                value["labels"] = [
                    numbers[each] if isinstance(each, str) else each for each in labels
                ]
            elif shares:
                value["labels"] = None
            values = {**({} if self.field is None else {self.field.name: value}), **others}
            label = labels[0] if is_of_image and labels else None
            yield Row(
                first, values, problem, path, label, sizes[0] if sizes and not problem else None
            )
        yield from self._lost
        for path in self._elsewhere:
            yield Row("", path=path, is_of_another=True)

    def _boxes(self, row: Row) -> list[list[float]]:
        """Left, top, right and bottom of the boxes of a row: one, or none; a list may have several."""
        cells = [row.values.get(column) for column in self.boxes.columns]
        if len(cells) == 1:
            fours = _fours(cells[0])
            if fours is None:
                raise ImageError(
                    f"column {self.boxes.columns[0]}: expected four numbers of a box, got {cells[0]!r:.60}"
                )
        else:
            there = [cell for cell in cells if not _is_missing(cell)]
            if there and len(there) < 4:
                shown = ", ".join(self.boxes.columns)
                raise ImageError(
                    f"columns {shown}: expected four numbers, or none where there is no box; got {cells}"
                )
            fours = [[float(str(cell)) for cell in there]] if there else []
        found = []
        for one, two, three, four in fours:
            box = corners_of(one, two, three, four, form=self.boxes.form)
            self._most = max(self._most, *(abs(each) for each in (one, two, three, four)))
            self._fractions = self._fractions or any(
                not each.is_integer() for each in (one, two, three, four)
            )
            found.append(box)
        return found

    def _labels(self, row: Row, count: int) -> list[int | str]:
        """The class of each of the boxes of a row: that of the row, or of a list with a class a box."""
        if self.label is None or count == 0:
            return []
        value: Any = row.values.get(self.label)
        if isinstance(value, str) and self._lists_boxes(row) and value.strip().startswith("["):
            value = listed(value.strip())
        if not isinstance(value, list):
            return [self._label(value)] * count
        self._has_lists = True
        if len(value) != count:
            raise ImageError(
                f"column {self.label}: expected a class for each of {count} boxes, got {len(value)}"
            )
        return [self._label(each) for each in value]

    def _lists_boxes(self, row: Row) -> bool:
        """Whether the cell of a row may hold several boxes, so that its other cells may have a value for each."""
        cell = row.values.get(self.boxes.columns[0]) if len(self.boxes.columns) == 1 else None
        return isinstance(cell, list) or (isinstance(cell, str) and cell.strip()[:1] in ("[", "("))

    def _label(self, value: Any) -> int | str:
        value = value.strip() if isinstance(value, str) else value
        if value in ("", None):
            raise ImageError(f"column {self.label}: expected the class of a box, got none")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if self.numbered or (isinstance(value, int) and not isinstance(value, bool)):
            number = int(float(value))
            if not 0 <= number < MOST_CLASSES:
                raise ImageError(f"column {self.label}: expected a class from 0 on, got {value}")
            self._has_numbers = True
            return number
        if not isinstance(value, str):
            raise ImageError(
                f"column {self.label}: expected the name or number of a class, got {value!r:.60}"
            )
        self._names.add(value)
        return value

    def _others(self, row: Row, field: SourceField, count: int) -> list[Any]:
        """The value of a field for each of the boxes of a row: that of the row, or of a list with a value a box."""
        value = self._other(row, field) if count else None
        text = value.strip() if isinstance(value, str) else ""
        if text.startswith("[") and self._lists_boxes(row):
            with suppress(ImageError):
                value = listed(text)
        if isinstance(value, list) and len(value) == count and self._lists_boxes(row):
            return value
        return [value] * count

    def _other(self, row: Row, field: SourceField) -> Any:
        value: Any = row.values.get(field.column)
        if self.typed or not self.seen[field.column].are_figures:
            return value
        return field_value(value, field, typed=False)

    def _size(self, row: Row) -> tuple[int, int] | None:
        cells = [row.values.get(column) for column in self.sides]
        if not cells or any(_is_missing(cell) for cell in cells):
            return None
        width, height = (int(float(cell)) for cell in cells)  # type: ignore[arg-type]
        return (width, height) if width > 0 and height > 0 else None


def gathering(
    seen: Mapping[str, Seen],
    columns: ColumnChoice,
    boxes: BoxColumns,
    how: SourceOptions,
    *,
    typed: bool,
    table: str,
) -> Gathering:
    """How a table of boxes is read: without --field, all columns that are no box, class or size have a value a box."""
    label = class_column(seen, columns, boxes, how)
    numbered = label is not None and seen[label].are_numbers(f"{table}, column {label}")
    plain = {_plain(column, whole=True): column for column in seen if column not in boxes.columns}
    sides = next(
        ((plain[one], plain[two]) for one, two in _SIDES if one in plain and two in plain), ()
    )
    if not all(seen[side].are_figures for side in sides):
        sides = ()
    own = {columns.image, label, *boxes.columns, *sides}
    if how.fields is None:
        field: SourceField | None = SourceField("boxes", "boxes")
        others = [each for each in columns.fields if each.column not in own]
    else:
        field = next(
            (SourceField(each.name, "boxes") for each in how.fields if each.column == BOXES), None
        )
        others = [each for each in columns.fields if each.column != BOXES]
    if field is not None:
        others = [each for each in others if each.name != field.name]
    for each in others:
        if (
            how.fields is not None
            and each.kind not in ("json", "text")
            and _asked_kind(how, each.name)
        ):
            raise PackError(
                f"--field {each.name}={each.column}:{each.kind}: {table} has a row for each box, so the value of an "
                "image is a list in JSON; leave out the kind"
            )
    as_json = tuple(each._replace(kind="json") for each in others)
    of_images = columns.label is not None
    return Gathering(
        seen, columns.image, boxes, label, numbered, of_images, as_json, field, sides, typed
    )


BOXES = "boxes"  # of --field: the boxes of a table with a row for each


def _asked_kind(how: SourceOptions, name: str) -> bool:
    return any(each.name == name and each.kind is not None for each in how.fields or ())


def _is_missing(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in _NO_BOX)


def _fours(cell: object) -> list[list[float]] | None:
    """The boxes in a cell: [1, 2, 3, 4], a list of these, "1 2 3 4", "1 2 3 4;5 6 7 8"; None: it holds none of that."""
    if _is_missing(cell) or cell == []:
        return []
    found: Any = cell
    if isinstance(cell, str):
        text = cell.strip()
        if text[0] in "[(":
            try:
                found = listed(text.replace("(", "[").replace(")", "]"))
            except ImageError:
                found = [re.split(r"[\s,]+", text.strip("[]() "))]  # as numpy writes arrays
        else:
            found = [re.split(r"[\s,]+", part.strip()) for part in text.split(";") if part.strip()]
    if isinstance(found, list) and found and not isinstance(found[0], (list, tuple)):
        found = [found]
    try:
        boxes = [[float(each) for each in box] for box in found]
    except (TypeError, ValueError):
        return None
    return boxes if all(len(box) == 4 for box in boxes) else None
