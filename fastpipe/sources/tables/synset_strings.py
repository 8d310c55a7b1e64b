"""Kaggle's tables of ImageNet -> rows with the class of each image.

LOC_train_solution.csv and LOC_val_solution.csv have the columns ImageId and PredictionString, such
as "n01978930 85 1 499 272": the class and the corners of each box. All boxes of an image are of its
class. Other competitions have other texts in columns of these names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fastpipe.sources.tables.rows import Row

COLUMNS = ("ImageId", "PredictionString")
_BOX = r"(n\d{8})(?:\s+-?\d+){4}"
_STRING = re.compile(rf"\s*{_BOX}(?:\s+\1(?:\s+-?\d+){{4}})*\s*")


def has_synsets(row: Row | None) -> bool:
    """Whether a row of the columns `COLUMNS` is one of ImageNet."""
    if row is None or row.problem is not None:
        return False
    return _STRING.fullmatch(str(row.values[COLUMNS[1]])) is not None


def rows_with_synsets(read_rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows with the class as their label, beside the string."""
    for row in read_rows():
        if row.problem is None:
            text = row.values[COLUMNS[1]]
            match = _STRING.fullmatch(str(text))
            if match is None:
                row = row._replace(
                    problem=f"column {COLUMNS[1]}: expected one class with boxes, such as "
                    f"'n01978930 85 1 499 272', got {text!r:.60}"
                )
            else:
                row = row._replace(values={**row.values, "label": match[1]})
        yield row
