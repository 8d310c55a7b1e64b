"""A table and the pictures in a folder -> whether the table lists them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from itertools import islice

from fastpipe.errors import PackError
from fastpipe.sources.files import SourcePath
from fastpipe.sources.rows import Row
from fastpipe.sources.table_text import detect_text_form
from fastpipe.sources.text_rows import csv_rows, json_rows

_ROWS_READ = 20


def lists_images(
    table: SourcePath, pictures: Collection[str], encoding: str | None = None
) -> bool:
    """Whether at least half of the first rows of a table name a picture.

    Args:
        table: a file of CSV, TSV or JSONL, or a list.
        pictures: the names of some files, without folders. A table may write them with any folder,
            and without the ending.
    """
    names = set(pictures)
    names.update(os.path.splitext(name)[0] for name in pictures)
    row_count = 0
    naming_count = 0
    try:
        rows: Iterator[Row]
        if table.suffix.lower() in (".jsonl", ".ndjson", ".json"):
            rows = json_rows(table, encoding)
        else:
            rows = csv_rows(table, detect_text_form(table, encoding), encoding)
        for row in islice(rows, _ROWS_READ):
            row_count += 1
            values = [value for value in row.values.values() if isinstance(value, str)]
            last_parts = {
                value.replace("\\", "/").rpartition("/")[2].strip() for value in values
            }
            if not names.isdisjoint(last_parts):
                naming_count += 1
    except (PackError, OSError):
        return False
    return naming_count > 0 and 2 * naming_count >= row_count
