"""Parquet or Arrow files of the splits beside one -> the names of classes in their texts.

Texts have no numbers, and a split may lack a class. So the classes of a split are those of all
splits. Of the others only the columns of labels and classes are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastpipe.errors import PackError
from fastpipe.sources.files import SourcePath
from fastpipe.sources.folders.split_classes import are_own_numbers
from fastpipe.sources.listing import Listing, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.class_columns import settle_classes
from fastpipe.sources.tables.table_paths import TablePaths, find_other_splits, split_of
from fastpipe.sources.tables.tables import SCAN_ROWS, add_texts, open_table


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
    """Lists the classes, without samples, of the other splits that have texts where `listing` has
    names of classes.
    """
    has_texts = not are_own_numbers(listing.classes)
    for field in listing.fields:
        if field.kind == "classes" and field.names:
            has_texts = True
    packed = find_split_of_tables(root, options)
    if not has_texts or not packed:
        return {}

    listings = {}
    for split, paths in find_other_splits(root, packed).items():
        try:
            listing_of_split = _list_classes(paths, options)
        except PackError:
            continue  # the test split of a contest, say, has no column of labels
        if listing_of_split is not None:
            listings[split] = listing_of_split
    return listings


def _list_classes(paths: TablePaths, options: SourceOptions) -> Listing | None:
    """The classes and fields of a split.

    None if its labels are numbers, and the schema has the names of all fields' classes.
    """
    labels: set[Any] = set()
    texts: dict[str, set[str]] = {}
    fields: tuple[SourceField, ...] = ()
    for name in paths.names:
        with open_table(paths.kind, paths.folder / name) as file:
            from fastpipe.sources.tables import arrow_columns  # needs pyarrow

            columns = arrow_columns.choose_table_columns(file.schema, options, name)
            fields = columns.fields
            label = columns.label
            if label is not None:
                has_names = not _has_unnamed_classes(fields)
                if columns.classes is not None and has_names:
                    # The schemas of two splits may list the names in different orders.
                    names = list(columns.classes)
                    return Listing(paths.folder, names, [], [], fields=fields)
                # Labels that are numbers are the same in all splits.
                has_new_names = columns.classes is None and file.holds_texts(label)
                if not has_new_names:
                    label = None
            if label is None and not _has_unnamed_classes(fields):
                return None
            add_texts(file, columns, texts)
            if label is not None:
                labels.update(file.column(label, SCAN_ROWS))
    settled_fields, _ = settle_classes(fields, texts, options)
    labels.discard(None)
    return Listing(paths.folder, sorted(labels), [], [], fields=settled_fields)


def _has_unnamed_classes(fields: Iterable[SourceField]) -> bool:
    """Whether the classes of some field are texts, whose names the schema does not have."""
    return any(field.kind == "classes" and not field.names for field in fields)
