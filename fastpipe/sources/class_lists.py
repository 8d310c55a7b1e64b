"""classes.csv beside a table of boxes -> the number of each class.

keras-retinanet writes a line NAME,NUMBER for each class, without a header.
"""

from __future__ import annotations

import csv
import re

from fastpipe.sources.files import SourcePath, open_unchanged

CLASS_LIST = "classes.csv"
_MAX_BYTES = 1 << 20
_NUMBER = re.compile(r"\s*[0-9]{1,4}\s*")


def read_class_list(folder: SourcePath) -> dict[str, int] | None:
    """The numbers of the classes by name; None if there is no such file, or if it has others."""
    path = folder / CLASS_LIST
    if not path.is_file():
        return None
    with open_unchanged(path) as file:
        content = file.read(_MAX_BYTES)
    try:
        lines = content.decode("utf-8-sig").splitlines()
        rows = [cells for cells in csv.reader(lines, strict=True) if cells]
    except (UnicodeDecodeError, csv.Error):
        return None

    numbers: dict[str, int] = {}
    for cells in rows:
        if len(cells) != 2 or not _NUMBER.fullmatch(cells[1]):
            return None
        numbers[cells[0].strip()] = int(cells[1])
    # Two classes of one number would be one class.
    is_certain = bool(rows) and len(set(numbers.values())) == len(numbers) == len(rows)
    return numbers if is_certain else None
