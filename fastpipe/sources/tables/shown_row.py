"""The name of a row -> the same in words, for a message."""

from __future__ import annotations

# In these files, rows are counted from 0; in texts their number is that of the line.
_COUNTED_ROWS = (".parquet", ".arrow", ".feather")


def show_row(name: str) -> str:
    """For example: train.csv, line 123. `name`: of a row, such as train.csv/000123."""
    file, separator, number = name.rpartition("/")
    if not separator or not number.isdecimal():
        return name
    noun = "row" if file.lower().endswith(_COUNTED_ROWS) else "line"
    return f"{file}, {noun} {int(number)}"
