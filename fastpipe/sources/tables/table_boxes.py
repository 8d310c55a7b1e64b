"""The columns of a table -> those that hold boxes and their classes.

Note [tables of boxes]
Detection sets are often tables: `filename,width,height,class,xmin,ymin,xmax,ymax` of TensorFlow's
scripts, Kaggle's `image_id,width,height,bbox` with "[x, y, w, h]", Open Images' shares of the
image's size. The names of the columns say what the numbers are. Where they leave it open (x, y,
width, height; bbox), COCO's way is assumed, and --box-format says another one. The rows of an image
need not follow one another, so `BoxTable` keeps all rows in `Notes` before it gives the rows of
images.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from fastpipe.errors import PackError, readable
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.column_names import describe_columns, field_name
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.box_cells import (
    NO_BOX,
    has_sides_of_boxes,
    parse_boxes,
)
from fastpipe.sources.tables.box_rows import BoxColumns, BoxTable, as_lists
from fastpipe.sources.tables.column_kinds import ColumnSummary
from fastpipe.sources.tables.likely import is_label_name

# The name of the field with the boxes of such a table, and the column of --field that stands for
# them.
BOXES = "boxes"

# The names of the four columns of a box -> their box format. The first entry that fits counts.
_FOUR_COLUMNS = {
    "xmin ymin xmax ymax": "xyxy",
    "x0 y0 x1 y1": "xyxy",
    "x1 y1 x2 y2": "xyxy",
    "left top right bottom": "xyxy",
    "xtl ytl xbr ybr": "xyxy",
    "minx miny maxx maxy": "xyxy",
    "xstart ystart xend yend": "xyxy",
    "startx starty endx endy": "xyxy",
    "xcenter ycenter width height": "cxcywh",
    "xcenter ycenter w h": "cxcywh",
    "centerx centery width height": "cxcywh",
    "xcentre ycentre width height": "cxcywh",
    "cx cy w h": "cxcywh",
    "cx cy width height": "cxcywh",
    "xc yc w h": "cxcywh",
    "xmin ymin width height": "xywh",
    "xmin ymin w h": "xywh",
    "left top width height": "xywh",
    "left top w h": "xywh",
    "x1 y1 width height": "xywh",
    "x1 y1 w h": "xywh",
    "x y w h": "xywh",
    "x y width height": "xywh",
}
# Here x and y may be a corner or the centre, so the format is an assumption.
_AMBIGUOUS = ("x y w h", "x y width height")
_ONE_COLUMN = frozenset(
    (
        "bbox",
        "box",
        "boundingbox",
        "bndbox",
        "boxes",
        "bboxes",
        "boundingboxes",
        "boxesstring",
    )
)
_PREFIXES = re.compile(r"^(bbox|box|face|boundingbox|bndbox|bb|roi|rect|region)(?=.)")
# Columns with the number of a class. Others, such as a severity, say something else of it.
_CLASS_NUMBER = re.compile(r"class|label|categor|target|.*id$")
_IMAGE_SIZES = (
    ("width", "height"),
    ("imagewidth", "imageheight"),
    ("imgwidth", "imgheight"),
    ("imgw", "imgh"),
    ("w", "h"),
)


def find_box_columns(
    summaries: Mapping[str, ColumnSummary], options: SourceOptions, table: str
) -> BoxColumns | None:
    """The columns of boxes; None if there are none, or if --field makes fields of them.

    Raises:
        PackError: --box-format contradicts the names of the columns.
    """
    # Columns that become fields are no boxes: the user wants their values as they are.
    field_columns: set[str] = set()
    for wish in options.fields or ():
        field_columns.update(wish.columns_of(summaries))

    numeric = {}  # the name of a column without words for a box -> the column
    for column, values in summaries.items():
        if values.is_numeric:
            numeric[_plain(column)] = column
    for names, form in _FOUR_COLUMNS.items():
        columns = tuple(numeric.get(name, "") for name in names.split())
        if not all(columns) or not field_columns.isdisjoint(columns):
            continue
        if "x2" in names and "x3" in numeric:
            continue  # the corners of a quadrilateral
        return _with_format(columns, form, names not in _AMBIGUOUS, options, table)

    for column, values in summaries.items():
        if column in field_columns:
            continue
        if _holds_objects(values):
            return _with_format((column,), "xywh", True, options, table)
        if _letters(column) not in _ONE_COLUMN:
            continue
        if _holds_boxes(values):
            return _with_format((column,), "xywh", False, options, table)
    return None


def no_boxes(table: str) -> PackError:
    """The error of --box-format for a table without boxes."""
    return PackError(
        f"{table} has no columns of boxes, such as xmin, ymin, xmax, ymax or bbox",
        option="box_format",
    )


def _holds_boxes(column: ColumnSummary) -> bool:
    """Whether the values are lists of four numbers, or texts with four numbers."""
    if column.are_boxes:
        return True
    texts = [text for text in column.first if text.lower() not in NO_BOX]
    return bool(texts) and all(parse_boxes(text) is not None for text in texts)


def _with_format(
    columns: tuple[str, ...],
    form: str,
    is_certain: bool,
    options: SourceOptions,
    table: str,
) -> BoxColumns:
    """The columns with their box format: the user's, or else the one of their names."""
    shown = ", ".join(map(readable, columns))
    if options.box_format is not None:
        if is_certain and options.box_format != form:
            raise PackError(
                f"--box-format {options.box_format}: the columns {shown} of {table} are {form} by "
                "their names; leave the option out, or rename the columns"
            )
        return BoxColumns(columns, options.box_format)
    if is_certain:
        return BoxColumns(columns, form)
    text = f"boxes ({shown}): left, top, width, height, as COCO has them"
    return BoxColumns(columns, form, [Assumption(text, "--box-format xyxy or cxcywh")])


def _holds_objects(column: ColumnSummary) -> bool:
    """Whether the values are lists of objects with the sides of boxes, and some are not empty."""
    texts = [text for text in column.first if text.lower() not in NO_BOX]
    return bool(texts) and all(map(has_sides_of_boxes, texts))


def _letters(column: str) -> str:
    """The letters and digits in the name of a column: image_width is imagewidth."""
    return re.sub(r"[^a-z0-9]", "", column.lower())


def _plain(column: str) -> str:
    """The same without words for a box at its start: Roi.X1 is x1, bbox_width is width."""
    return _PREFIXES.sub("", _letters(column))


def describe_box_table(
    summaries: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    boxes: BoxColumns,
    options: SourceOptions,
    *,
    typed: bool,
    table: str,
) -> BoxTable:
    """Describes how a table of boxes is read.

    Without --field, all columns but those of images, boxes, classes and sizes become fields with a
    value for each box; so does a column with the numbers of classes that have names, for these may
    not be what it holds. `typed`: values are of JSON or Parquet, and not texts.

    Raises:
        PackError: several columns may hold the classes, or --field gives a kind of its own.
    """
    class_column, number_column = find_class_columns(
        summaries, columns, boxes.columns, options
    )
    has_number_classes = False
    if class_column is not None:
        shown = f"{table}, column {class_column}"
        has_number_classes = summaries[class_column].are_numbers(
            shown, is_chosen=options.label_column is not None
        )
    size_columns = find_size_columns(summaries, boxes.columns)
    may_be_corners = boxes.form == "xywh" and bool(boxes.assumed)

    if options.fields is None:
        box_field: SourceField | None = SourceField(
            BOXES, "boxes", may_be_corners=may_be_corners
        )
        known = {columns.image, class_column, *boxes.columns, *size_columns}
        if BOXES not in summaries:
            known.add(BOXES)  # it is no column, and stands for the boxes
        others = [field for field in columns.fields if field.column not in known]
        names = {field.name for field in others}
        for index, field in enumerate(others):
            # A column that is called so holds something else, such as how many boxes there are.
            if field.name == BOXES:
                others[index] = field._replace(name=field_name(BOXES, names))
    else:
        box_field = None
        for wish in options.fields:
            if wish.column == BOXES:
                box_field = box_field or SourceField(
                    wish.name, "boxes", may_be_corners=may_be_corners
                )
            elif wish.kind not in (None, "json", "text"):
                raise PackError(
                    f"{wish}: {table} has a row for each box, so the value of an image is a list "
                    "in JSON; leave out the kind"
                )
        others = [field for field in columns.fields if field.column != BOXES]

    return BoxTable(
        image_column=columns.image,
        boxes=boxes,
        class_column=class_column,
        number_column=number_column,
        has_number_classes=has_number_classes,
        labels_images=columns.label is not None,
        box_field=box_field,
        others=as_lists(others),
        number_columns=find_number_columns(summaries, others, typed=typed),
        size_columns=size_columns,
        drops_bad_rows=options.keeps_images,
    )


def find_class_columns(
    summaries: Mapping[str, ColumnSummary],
    columns: ColumnChoice,
    object_columns: Collection[str],
    options: SourceOptions,
    objects: str = "boxes",
) -> tuple[str | None, str | None]:
    """The column with the class of each object, and the one with its number; None if none has it.

    Args:
        summaries, columns, options: of the table.
        object_columns: those that hold the objects.
        objects: what they are, for messages.

    Raises:
        PackError: several columns may hold the classes.
    """
    if columns.label is not None:
        return columns.label, None
    used = {columns.image, *object_columns, *options.field_columns}
    likely = []
    for column, values in summaries.items():
        # Numbers with fractions are scores, which may be called class_confidence.
        can_be_class = column not in used and not values.has_fractions
        if can_be_class and is_label_name(column):
            likely.append(column)

    # A table may have both the name and the number of a class.
    names = []
    numbers = []
    for column in likely:
        if not summaries[column].is_numeric:
            names.append(column)
        elif _CLASS_NUMBER.match(_letters(column)):
            numbers.append(column)
    if len(names) == 1:
        # Of several numbers nothing says which one is that of the class.
        if len(numbers) == 1:
            return names[0], numbers[0]
        return names[0], None
    if len(likely) > 1:
        raise PackError(
            f"several columns may hold the classes of {objects}: {describe_columns(likely)}. "
            "--label-column picks one; --field NAME=COLUMN stores another one"
        )
    if likely:
        return likely[0], None
    return None, None


def find_number_columns(
    summaries: Mapping[str, ColumnSummary],
    fields: Iterable[SourceField],
    *,
    typed: bool,
) -> frozenset[str]:
    """The columns of fields whose texts are numbers. `typed`: values are no texts, so none are."""
    if typed:
        return frozenset()
    # In CSV all values are texts, also those that are numbers.
    number_columns = set()
    for field in fields:
        if summaries[field.column].is_numeric:
            number_columns.add(field.column)
    return frozenset(number_columns)


def find_size_columns(
    summaries: Mapping[str, ColumnSummary], object_columns: Collection[str]
) -> tuple[str, ...]:
    """The columns with width and height of the image; empty if there are none."""
    by_letters = {}
    for column in summaries:
        if column not in object_columns:
            by_letters[_letters(column)] = column
    for width_letters, height_letters in _IMAGE_SIZES:
        if width_letters in by_letters and height_letters in by_letters:
            width = by_letters[width_letters]
            height = by_letters[height_letters]
            if summaries[width].is_numeric and summaries[height].is_numeric:
                return (width, height)
            return ()
    return ()
