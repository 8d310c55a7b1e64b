"""A file with a row for each image -> the function that reads its rows."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, open_unchanged
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.joined_column import (
    assume_split,
    find_joined_column,
    split_joined,
)
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.table_text import detect_text_form
from fastpipe.sources.tables.tables import read_metadata_rows
from fastpipe.sources.tables.text_rows import csv_rows, json_array_rows, json_rows

# Files of metadata, as Hugging Face's ImageFolder names them.
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")

_HEAD_BYTES = 1 << 16


def choose_reader(
    path: SourcePath, kind: str, options: SourceOptions
) -> tuple[Callable[[], Iterator[Row]], list[Assumption]]:
    """Chooses the function that reads the rows, by the kind of the file and its first lines."""
    if kind == "csv":
        try:
            form = detect_text_form(path, options.encoding)
        except OSError as problem:
            raise PackError(
                f"cannot read {readable(str(path))}: {problem.strerror}"
            ) from problem
        read_rows = partial(csv_rows, path, form, options.encoding)
        joined = find_joined_column(form.header, form.first_row, options)
        if joined is None:
            return read_rows, list(form.assumed)
        return partial(split_joined, read_rows, joined), [
            *form.assumed,
            assume_split(joined),
        ]
    if kind == "parquet":
        return partial(read_metadata_rows, path, options), []
    if detect_json_layout(path, options.encoding) == "array":
        return partial(json_array_rows, path, options.encoding), []
    return partial(json_rows, path, options.encoding), []


def detect_json_layout(path: SourcePath, encoding: str | None = None) -> str:
    """Detects what a .json file is: an "array" of objects, "lines" with an object each, or one
    "object". Files with other endings are "lines". Raises OSError or PackError.
    """
    if path.suffix.lower() != ".json":
        return "lines"
    with open_unchanged(path) as file:
        head = open_as_utf8(file, encoding, str(path)).read(_HEAD_BYTES)
    head = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if head.startswith(b"["):
        return "array"
    first_line, _, rest = head.partition(b"\n")
    try:
        first_record: Any = json.loads(first_line)
    except (ValueError, RecursionError):
        return "object"
    # One object in one line, or over several lines, is the file of another format, such as COCO.
    if isinstance(first_record, dict) and rest.lstrip().startswith(b"{"):
        return "lines"
    return "object"
