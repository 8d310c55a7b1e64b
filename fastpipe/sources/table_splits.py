"""Parquet or Arrow files of the splits beside one -> the names of classes that their texts have.

Texts have no numbers, and a split may lack a class. So the classes of a split are those of all splits: only the columns
of labels and classes are read of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from fastpipe.errors import PackError
from fastpipe.sources.class_columns import settled_classes
from fastpipe.sources.files import SourcePath, files_below, names_in
from fastpipe.sources.listing import Listing
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables import (
    SCAN_ROWS,
    add_texts,
    open_table,
    saved_files,
    saved_splits,
    split_of,
)


class _Tables(NamedTuple):
    """The files of a split."""

    kind: str  # "parquet" or "arrow"
    folder: SourcePath
    names: Sequence[str]


def split_of_tables(root: SourcePath, how: SourceOptions) -> str:
    """The split that is packed; "": nothing says it."""
    return how.split or ("" if root.is_dir() else split_of(root.name))


def listings_of_others(
    listing: Listing, root: SourcePath, how: SourceOptions
) -> dict[str, Listing]:
    """By split, listings without samples, of splits that have texts where `listing` has names of classes."""
    are_numbers = listing.classes == [str(number) for number in range(len(listing.classes))]
    has_texts = bool(listing.classes) and not are_numbers
    if not has_texts and not any(
        field.kind == "classes" and field.names for field in listing.fields
    ):
        return {}
    listings = {}
    for split, tables in _others(root, how):
        with suppress(PackError):  # a split for a contest, say, has other columns
            found = _named_listing(tables, how)
            if found is not None:
                listings[split] = found
    return listings


def _others(root: SourcePath, how: SourceOptions) -> Iterator[tuple[str, _Tables]]:
    """The splits that are not packed, with their files."""
    packed = split_of_tables(root, how)
    if not packed:
        return
    folder = root if root.is_dir() else root.parent
    saved = saved_splits(root) if root.is_dir() else None
    if saved is not None:
        for split in saved:
            if split != packed:
                with suppress(PackError):  # it may have been removed
                    yield split, _Tables("arrow", folder, saved_files(folder, f"{split}/"))
        return
    names = files_below(root, hidden=False) if root.is_dir() else names_in(folder).files
    by_split: dict[str, list[str]] = {}
    for name in sorted(names):
        if name.lower().endswith(".parquet"):
            by_split.setdefault(split_of(name), []).append(name)
    for split, files in by_split.items():
        if split not in ("", packed):
            yield split, _Tables("parquet", folder, files)


def _named_listing(tables: _Tables, how: SourceOptions) -> Listing | None:
    """The classes and fields of a split; None: their names come from the schema, and are equal in all splits."""
    labels: set[Any] = set()
    texts: dict[str, set[str]] = {}
    fields: Any = ()
    for name in tables.names:
        with open_table(tables.kind, tables.folder / name) as file:
            from fastpipe.sources.parquet_arrow import columns_of_table

            columns = columns_of_table(file.schema, how, name)
            fields = columns.fields
            has_text_labels = bool(
                columns.label and columns.classes is None and file.holds_texts(columns.label)
            )
            has_text_fields = any(field.kind == "classes" and not field.names for field in fields)
            if not has_text_labels and not has_text_fields:
                return None
            add_texts(file, columns, texts)
            if has_text_labels and columns.label is not None:
                for group in file.groups():
                    cells = file.values(group, [columns.label], SCAN_ROWS)
                    labels.update(chain.from_iterable(values for (values,) in cells))
    settled, _ = settled_classes(fields, texts, how)
    return Listing(tables.folder, sorted(labels - {None}), [], [], fields=settled)
