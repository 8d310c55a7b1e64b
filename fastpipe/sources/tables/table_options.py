"""A table and the images that it lists -> the options without which it cannot be packed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fastpipe.sources.column_choice import find_image_like_columns
from fastpipe.sources.folders.folder_roles import is_called_target
from fastpipe.sources.folders.splits import meaning_of_split
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables.joined_column import find_joined_column
from fastpipe.sources.tables.listed_images import first_cells
from fastpipe.sources.tables.split_column import has_splits
from fastpipe.sources.tables.written_names import folded_stem


def describe_options_of_table(
    table: Path, pictures: Collection[str], images: Path
) -> str:
    """The options that name the column of images, and the split; "" if none is needed.

    Args:
        table: a file of CSV, TSV or JSONL.
        pictures: the names of some images that it may list.
        images: their folder.
    """
    rows = first_cells(table)
    if not rows:
        return ""
    options = ""
    columns = list(rows[0])
    picture_stems = {folded_stem(name) for name in pictures}
    image_columns = []
    for column in columns:
        # Not a column of masks, which may lie beside the images.
        stems = {folded_stem(row.get(column, "")) for row in rows}
        if picture_stems & stems and not is_called_target(column.partition("_")[0]):
            image_columns.append(column)
    known_columns = find_image_like_columns(columns, SourceOptions())
    # A column with a picture and its class is found by itself, and with the option it is not split.
    joined_column = find_joined_column(columns, list(rows[0].values()), SourceOptions())
    if joined_column is not None:
        known_columns.append(joined_column)
    if image_columns and not set(image_columns) & set(known_columns):
        options += f" --image-column {quote_for_shell(image_columns[0])}"
    for column in columns:
        if has_splits(column, {row.get(column, "") for row in rows}):
            split = images.name if meaning_of_split(images.name) else "all"
            options += f" --split {quote_for_shell(split)}"
            break
    return options
