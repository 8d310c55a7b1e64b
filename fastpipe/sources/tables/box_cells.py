"""A cell of a table -> the boxes that it holds."""

from __future__ import annotations

import re
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.sources.field_values import parse_list

# Cells, in small letters, of a row whose image has no box.
NO_BOX = frozenset(("", "[]", "no_box", "nan", "none", "null"))
# The sides of boxes in objects, as COTS writes them.
_SIDES = ("x", "y", "width", "height")
_OBJECTS = re.compile(r"\[\s*\{")
_SPACE_OR_COMMA = re.compile(r"[\s,]+")


def parse_boxes(cell: object) -> list[list[float]] | None:
    """The boxes in one cell, four numbers each; None if the cell holds something else.

    A cell may be "[1, 2, 3, 4]", a list of such lists, "1 2 3 4", "1 2 3 4;5 6 7 8", or empty; or
    "[{'x': 1, 'y': 2, 'width': 3, 'height': 4}]".
    """
    if is_missing(cell) or cell == []:
        return []
    boxes: Any = cell
    if isinstance(cell, str):
        boxes = _parse_box_text(cell.strip())
    if (
        isinstance(boxes, list)
        and boxes
        and not isinstance(boxes[0], (list, tuple, dict))
    ):
        boxes = [boxes]  # the four numbers of a single box
    parsed = []
    try:
        for box in boxes:
            if isinstance(box, dict):
                box = [box.get(side) for side in _SIDES]
            parsed.append([float(number) for number in box])
    except (TypeError, ValueError):
        return None
    if any(len(box) != 4 for box in parsed):
        return None
    return parsed


def has_sides_of_boxes(cell: str) -> bool:
    """Whether a cell is a list of objects with x, y, width and height."""
    return _OBJECTS.match(cell) is not None and parse_boxes(cell) is not None


def _parse_box_text(text: str) -> list[Any]:
    """The boxes in a text, or the four numbers of the only one; they may still be texts."""
    if text.startswith(("[", "(")):
        try:
            return parse_list(text.replace("(", "[").replace(")", "]"))
        except ImageError:
            # numpy prints an array without commas: [1. 2. 3. 4.]
            return [_SPACE_OR_COMMA.split(text.strip("[]() "))]
    boxes: list[Any] = []
    for part in text.split(";"):
        numbers = part.strip()
        # A ";" may also stand behind the last box.
        if numbers:
            boxes.append(_SPACE_OR_COMMA.split(numbers))
    return boxes


def is_missing(cell: object) -> bool:
    """Whether a cell is empty, or says that there is no box."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in NO_BOX)
