"""A cell of a table -> the boxes that it holds."""

from __future__ import annotations

import re
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.sources.field_values import parse_list

# Cells, in small letters, of a row whose image has no box.
NO_BOX = frozenset(("", "[]", "no_box", "nan", "none", "null"))


def parse_boxes(cell: object) -> list[list[float]] | None:
    """The boxes in one cell, four numbers each; None if the cell holds something else.

    A cell may be "[1, 2, 3, 4]", a list of such lists, "1 2 3 4", "1 2 3 4;5 6 7 8", or empty.
    """
    if is_missing(cell) or cell == []:
        return []
    boxes: Any = _parse_box_text(cell.strip()) if isinstance(cell, str) else cell
    if isinstance(boxes, list) and boxes and not isinstance(boxes[0], (list, tuple)):
        boxes = [boxes]  # the four numbers of a single box
    try:
        numbers = [[float(number) for number in box] for box in boxes]
    except (TypeError, ValueError):
        return None
    return numbers if all(len(box) == 4 for box in numbers) else None


def _parse_box_text(text: str) -> list[Any]:
    if not text.startswith(("[", "(")):
        return [
            re.split(r"[\s,]+", part.strip())
            for part in text.split(";")
            if part.strip()
        ]
    try:
        return parse_list(text.replace("(", "[").replace(")", "]"))
    except ImageError:
        # numpy prints an array without commas: [1. 2. 3. 4.]
        return [re.split(r"[\s,]+", text.strip("[]() "))]


def is_missing(cell: object) -> bool:
    """Whether a cell is empty, or says that there is no box."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in NO_BOX)
