"""A table of images that nobody has passed -> the arguments that pack it, for a message.

A user who follows a message should get the labels at once, so the options that name them stand in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.column_choice import ColumnChoice, find_image_like_columns
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.splits import FEW
from fastpipe.sources.listing import SourceField
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables import synset_strings
from fastpipe.sources.tables.box_cells import has_sides_of_boxes
from fastpipe.sources.tables.column_kinds import ColumnSummary
from fastpipe.sources.tables.likely import (
    find_column_assumptions,
    find_columns_of_box_classes,
    holds_runs,
    is_label_name,
)
from fastpipe.sources.tables.likely_encoding import likely_encoding
from fastpipe.sources.tables.listed_images import (
    ALL_ROWS,
    ListingTable,
    first_cells,
    with_stems,
)
from fastpipe.sources.tables.lists_of_tables import (
    describe_lists_of_splits,
    find_lists_of_splits,
    without_lists,
)
from fastpipe.sources.tables.names_beside import option_of_names_beside
from fastpipe.sources.tables.point_tables import find_point_table
from fastpipe.sources.tables.table_files import tables_of_other_splits
from fastpipe.sources.tables.training_classes import describe_options_of_training
from fastpipe.sources.tables.written_names import fold_name, folded_stem

_TABLES_SHOWN = 5
# So many rows show which column has labels. In packing, all rows count.
_ROWS_READ = 500
_LABEL = "label"
_LABEL_COLUMN = "--label-column "
_CLASSES_FROM = "--classes-from "
# A field of several classes an image has this in it: --field tags=apple,banana:classes.
_CLASSES = ":classes"
_MASK = ":mask"
# A table with one of these columns has boxes, and its classes are found by themselves.
_BOXES = frozenset(("xmin", "x_min", "xmax", "x1", "left", "bbox", "box", "boxes"))


def some_tables(tables: Sequence[ListingTable]) -> str:
    """The arguments that pack one of the tables, the likeliest first, for a message."""
    paths = []
    paths_with_options = []
    all_options = set()
    found = find_lists_of_splits(tables[0])
    tables_of_images = without_lists(tables, found.lists)
    for table in tables_of_images[:_TABLES_SHOWN]:
        path = readable(str(table.path))
        options = ""
        if table.image_root is not None:
            options = f" --image-root {readable(str(table.image_root))}"
        options += describe_options_of_labels(table.path, table.image_root)
        text = f", with{options}" if options else ""
        paths.append(path)
        paths_with_options.append(path + text)
        all_options.add(text)
    # Options that all need are named once, at the end.
    if len(all_options) == 1:
        text = " or ".join(paths) + all_options.pop()
    else:
        text = "; or ".join(paths_with_options)
    return text + describe_lists_of_splits(tables_of_images[0], found)


def describe_options_of_labels(table: SourcePath, images: SourcePath | None) -> str:
    """The options that name the labels in a table and their numbers; "" if none is needed or known.

    Args:
        table: a file of CSV, TSV or JSONL, or a list.
        images: the folder of its images, if it is known.
    """
    options = ""
    if isinstance(table, Path) and isinstance(images, Path):
        options = describe_options_of_training(table, images.absolute())
    if _CLASSES_FROM not in options:
        options += option_of_names_beside(table)
    if _LABEL_COLUMN not in options:
        options = _option_of_label_column(table, images) + options
    options += _option_of_images_without_row(table, images)
    return option_of_encoding(table) + options


def _option_of_images_without_row(table: SourcePath, images: SourcePath | None) -> str:
    """The option that packs the images without a row in a table of boxes; "" if all have one.

    An image without boxes may be background. See Note [images without a row].
    """
    if not isinstance(images, Path):
        return ""
    first_row = first_cells(table, 1)
    if not first_row or _BOXES.isdisjoint(first_row[0]):
        return ""
    # Their rows may be about these images.
    if tables_of_other_splits(table):
        return ""
    rows = first_cells(table, ALL_ROWS)
    if len(rows) == ALL_ROWS:
        return ""
    listed: set[str] = set()
    for row in rows:
        for text in row.values():
            listed.add(folded_stem(text))
    pictures = filter(is_picture, names_in(images, FEW).files)
    stems = set(map(folded_stem, pictures))
    if stems <= listed or stems.isdisjoint(listed):
        return ""
    return " --unlisted keep"


def option_of_encoding(table: SourcePath) -> str:
    """The option for text that is not UTF-8; "" if none is needed."""
    try:
        encoding = likely_encoding(table)
    except (PackError, OSError):
        return ""
    return f" --encoding {encoding}" if encoding is not None else ""


def _option_of_label_column(table: SourcePath, images: SourcePath | None) -> str:
    """The option that names the columns with labels; "" if none look like it."""
    if find_point_table(table, SourceOptions()) is not None:
        return ""
    summaries: dict[str, ColumnSummary] = {}
    for index, row in enumerate(first_cells(table, _ROWS_READ)):
        for column, text in row.items():
            summary = summaries.setdefault(column, ColumnSummary(typed=False))
            summary.add(text, str(index))
    image = _find_image_column(summaries)
    if image is None and isinstance(images, Path):
        image = _find_column_of_names(summaries, images)
    if image is None:
        return ""
    return describe_options_of_columns(summaries, image, SourceOptions())


def describe_options_of_columns(
    summaries: Mapping[str, ColumnSummary], image: str, options: SourceOptions
) -> str:
    """The options for the labels in a table, or else for its masks; "" if none are needed or known.

    Args:
        summaries: of the columns.
        image: the column with the images.
        options: the user's. If they choose labels or fields, nothing is left to name.
    """
    if options.label_column is not None or options.fields is not None:
        return ""
    has_labels = _LABEL in summaries or set(synset_strings.COLUMNS) <= summaries.keys()
    if has_labels:
        return ""
    if _has_boxes_or_masks(summaries):
        return _option_of_box_classes(summaries, image)
    fields = []
    for column, values in summaries.items():
        if column != image:
            field = SourceField(column, values.kind, column=column)
            fields.append(field)
    columns = ColumnChoice(image, None, tuple(fields))
    assumptions = find_column_assumptions(summaries, columns, options)
    for kinds in ((_LABEL_COLUMN, _CLASSES), (_MASK,)):
        for assumption in assumptions:
            if any(kind in assumption.option for kind in kinds):
                return f" {assumption.option}"
    return ""


def _option_of_box_classes(summaries: Mapping[str, ColumnSummary], image: str) -> str:
    """The option that names the classes of boxes; "" if their column is found by its name."""
    is_box_table = not _BOXES.isdisjoint(column.lower() for column in summaries)
    if not is_box_table or any(map(is_label_name, summaries)):
        return ""
    columns = find_columns_of_box_classes(summaries, (image,))
    return f" {_LABEL_COLUMN}{quote_for_shell(columns[0])}" if columns else ""


def _find_image_column(summaries: Mapping[str, ColumnSummary]) -> str | None:
    """The only column that may have the images; None if none or several may."""
    columns = find_image_like_columns(summaries, SourceOptions())
    if not columns:
        columns = [
            column for column, values in summaries.items() if values.are_pictures
        ]
    return columns[0] if len(columns) == 1 else None


def _find_column_of_names(
    summaries: Mapping[str, ColumnSummary], images: Path
) -> str | None:
    """The only column with names of files in a folder, with or without their endings."""
    files = with_stems(names_in(images, FEW).files)
    columns = []
    for column, values in summaries.items():
        if not files.isdisjoint(map(fold_name, values.first)):
            columns.append(column)
    return columns[0] if len(columns) == 1 else None


def _has_boxes_or_masks(summaries: Mapping[str, ColumnSummary]) -> bool:
    for column, values in summaries.items():
        if column.lower() in _BOXES or values.are_boxes or holds_runs(column, values):
            return True
        if any(map(has_sides_of_boxes, values.first)):
            return True
    return False
