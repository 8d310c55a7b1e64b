"""A file with a row for each image -> the function that reads its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from fastpipe.sources.files import SourcePath, unreadable
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.headless_lists import find_headless_list
from fastpipe.sources.tables.joined_column import (
    assume_split,
    find_joined_column,
    split_joined,
)
from fastpipe.sources.tables.json_mappings import find_json_mapping
from fastpipe.sources.tables.numbered_captions import read_numbered_captions
from fastpipe.sources.tables.pixel_tables import refuse_pixels
from fastpipe.sources.tables.point_tables import KINDS as POINT_KINDS
from fastpipe.sources.tables.point_tables import find_point_table
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.synset_strings import COLUMNS as SYNSET_COLUMNS
from fastpipe.sources.tables.synset_strings import has_synsets, rows_with_synsets
from fastpipe.sources.tables.table_text import LISTS, TextForm, detect_text_form
from fastpipe.sources.tables.tables import read_metadata_rows
from fastpipe.sources.tables.text_rows import (
    csv_rows,
    detect_json_layout,
    json_array_rows,
    json_rows,
)

# Files of metadata, as Hugging Face's ImageFolder names them.
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


class RowReader(NamedTuple):
    """How the rows of a file are read."""

    # Begins to read the rows.
    read_rows: Callable[[], Iterator[Row]]
    assumed: list[Assumption]
    # Names of the classes by number; None: the labels of the rows say them.
    classes: tuple[str, ...] | None = None
    # Column -> the kind of its field, where the format says it. Then values have types, as in JSON.
    kinds: Mapping[str, str] = {}


def choose_reader(path: SourcePath, kind: str, options: SourceOptions) -> RowReader:
    """Chooses the function that reads the rows, by the kind of the file and its first lines."""
    if kind == "csv":
        read_points = find_point_table(path, options)
        if read_points is not None:
            return RowReader(read_points, [], kinds=POINT_KINDS)
        try:
            form = detect_text_form(path, options.encoding)
        except OSError as problem:
            raise unreadable(path, problem) from problem
        refuse_pixels(path)
        return _choose_text_reader(path, form, options)
    if kind == "parquet":
        return RowReader(partial(read_metadata_rows, path, options), [])
    layout = detect_json_layout(path, options.encoding)
    if layout == "array":
        return RowReader(partial(json_array_rows, path, options.encoding), [])
    if layout == "object":
        read_mapping = find_json_mapping(path)
        if read_mapping is not None:
            return RowReader(read_mapping, [])
    return RowReader(partial(json_rows, path, options.encoding), [])


def _choose_text_reader(
    path: SourcePath, form: TextForm, options: SourceOptions
) -> RowReader:
    """The reader of a table in text. If it seems to have a header, it may be a list without one."""
    if form.has_caption_numbers:
        text = (
            f"{path.name}: it has the number of a caption behind each name; the captions of an "
            "image are in the order of these numbers"
        )
        read_captions = partial(read_numbered_captions, path, form, options.encoding)
        return RowReader(read_captions, [Assumption(text)])
    read_rows = partial(csv_rows, path, form, options.encoding)
    if not form.columns and path.suffix.lower() in LISTS:
        headless = find_headless_list(path, form, options)
        if headless is not None:
            return RowReader(
                headless.read_rows, list(headless.assumed), headless.classes
            )
    # The user may take another column as the label.
    is_label_free = options.label_column in (None, "label")
    is_of_kaggle = is_label_free and form.header == SYNSET_COLUMNS
    if is_of_kaggle and has_synsets(next(read_rows(), None)):
        return RowReader(partial(rows_with_synsets, read_rows), [])
    joined = find_joined_column(form.header, form.first_row, options)
    if joined is not None:
        assumed = [*form.assumed, assume_split(joined)]
        return RowReader(partial(split_joined, read_rows, joined), assumed)
    return RowReader(read_rows, list(form.assumed))
