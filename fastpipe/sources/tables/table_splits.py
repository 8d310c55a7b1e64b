"""Parquet or Arrow files of the splits beside one -> the names of classes in their texts.

Texts have no numbers, and a split may lack a class. So the classes of a split are those of all
splits. Of the others only the columns of labels, classes and boxes are read.
"""

from __future__ import annotations

from typing import Any

from fastpipe.dataset.format.fields import CLASS_KINDS
from fastpipe.errors import PackError, readable
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.files import SourcePath
from fastpipe.sources.folders.split_classes import are_own_numbers
from fastpipe.sources.listing import Listing
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.settled_fields import settle_fields
from fastpipe.sources.tables.table_classes import SCAN_ROWS, TableClasses
from fastpipe.sources.tables.table_paths import TablePaths, find_other_splits, split_of
from fastpipe.sources.tables.tables import open_table


def find_split_of_tables(root: SourcePath, options: SourceOptions) -> str:
    """The split that is packed; "" if neither the user nor the name of the file says it."""
    if options.split:
        return options.split
    if root.is_dir():
        return ""
    return split_of(root.name)


def list_classes_of_other_splits(
    listing: Listing, root: SourcePath, options: SourceOptions
) -> dict[str, Listing]:
    """Lists the classes, without samples, of the other splits if `listing` has names of classes."""
    has_names = not are_own_numbers(listing.classes)
    for field in listing.fields:
        if field.kind in CLASS_KINDS and field.names:
            has_names = True
    packed = find_split_of_tables(root, options)
    if not has_names or not packed:
        return {}

    listings = {}
    for split, paths in find_other_splits(root, packed).items():
        try:
            listings[split] = list_classes_of_tables(paths, options)
        except PackError:
            continue  # the test split of a contest, say, has no column of labels
    return listings


def list_classes_of_tables(paths: TablePaths, options: SourceOptions) -> Listing:
    """The classes and fields of a split, without samples.

    Labels that are numbers without names are the same in all splits, and are not read.
    """
    columns: ColumnChoice | None = None
    classes = TableClasses({})
    labels: set[Any] = set()
    for name in paths.names:
        with open_table(paths.kind, paths.folder / name) as file:
            from fastpipe.sources.tables import arrow_columns  # needs pyarrow

            columns = arrow_columns.choose_table_columns(
                file.schema, options, name, lambda _: False, lambda _: ()
            )
            if not classes.schema_names:
                classes.schema_names = arrow_columns.detection_names(file.schema)
            classes.add(file, columns)
            label = columns.label
            has_new_names = columns.classes is None and label is not None
            if label is not None and has_new_names and file.holds_texts(label):
                labels.update(file.column(label, SCAN_ROWS))
    assert columns is not None  # a split has a file
    settled, _ = settle_fields(
        columns,
        classes.texts(),
        classes.box_objects(),
        options,
        readable(str(paths.folder)),
    )
    labels.discard(None)
    # The schemas of two splits may list the names in different orders.
    names = sorted(labels) if columns.classes is None else list(columns.classes)
    return Listing(paths.folder, names, [], [], fields=settled.fields)
