"""The values of a column -> the kind of field that holds them without loss; and each as a field takes it.

Note [kinds of columns]
A kind is taken only where all values say the same: docs/sources.md has the table. A missing value has no number, so it
makes a column of numbers "json". In a CSV file, a text counts as what it spells, if all texts of the column do.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from fastpipe.errors import ImageError, PackError
from fastpipe.sources.listing import SourceField

_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
_PADDED = re.compile(r"0[0-9]+")
_WHOLE = re.compile(r"(-?(0|[1-9][0-9]{0,18}))\.0+")  # as pandas writes whole numbers if one of the column is missing
NO_LABELS = ("", "-1", "-1.0")  # in a CSV file, without the spaces around them
_MEANING = {"padded": "text", "whole": "float", "-1": "int", "-1.0": "float"}  # of looks that matter to labels only
_CATEGORIES = ("categories", "category", "labels", "label")


class Seen:
    """The values of a column, one after the other."""

    def __init__(self, *, typed: bool) -> None:
        self._typed = typed
        self.count = 0
        # Look -> the first such row. Of a list of numbers: how many there are, and whether there are fractions.
        self._looks: dict[Any, str] = {}

    def add(self, value: object, where: str) -> None:
        """One more value, of the row of this name; None: it is missing."""
        self.count += 1
        look = _look(value) if self._typed or value is None else _look_of_text(str(value).strip())
        if isinstance(look, tuple) and any(isinstance(one, tuple) and one[0] != look[0] for one in self._looks):
            look = "json"  # lists of several lengths
        self._looks.setdefault(look, where)

    @property
    def kind(self) -> str:
        """See Note [kinds of columns]."""
        looks = {_MEANING.get(look, look) for look in self._looks}
        there = looks - {"none"}
        scalars = looks & {"int", "float"}
        if not self._typed and ("text" in looks or not there or (scalars and looks != scalars)):
            return "text"
        if looks and looks == scalars:
            return "int" if looks == {"int"} else "floats"
        if there in ({"text"}, {"boxes"}):
            return str(*there)
        lists = [look for look in looks if isinstance(look, tuple)]
        return "floats" if len(lists) == len(looks) and any(fractions for _, fractions in lists) else "json"

    def are_numbers(self, column: str) -> bool:
        """Whether the labels of a CSV file are numbers, not names. PackError: it is not certain."""
        there = {look: where for look, where in self._looks.items() if look not in ("none", *NO_LABELS)}
        others = [where for look, where in there.items() if look not in ("int", "whole")]
        if others and "int" in there and not there.keys() <= {"int", "padded"}:
            raise PackError(
                f"{column}: labels are numbers ({there['int']}) and names ({others[0]}); expected only one of both. In "
                'JSONL, 7 is a number and "7" is a name'
            )
        return not others


def field_value(value: Any, field: SourceField, *, typed: bool = True) -> Any:
    """A value of a column as a field takes it, or an ImageError that says why it cannot; not `typed`: as CSV has it."""
    kind = field.kind
    if not typed and kind != "text" and value is not None:
        value = _parsed(value) if kind not in ("mask", "image") else value or None
    if kind == "int" and isinstance(value, bool):
        return int(value)
    if kind == "floats" and isinstance(value, (int, float)):
        return [value]
    if kind == "classes" and field.names and isinstance(value, list):
        for each in value:
            if not isinstance(each, int) or not 0 <= each < len(field.names):
                raise ImageError(f"expected class numbers of 0 to {len(field.names) - 1:,}, got {each}")
        return [field.names[each] for each in value]
    if kind == "boxes" and isinstance(value, dict) and "bbox" in value:
        labels = next((value[name] for name in _CATEGORIES if value.get(name) is not None), None)
        corners = xyxy(value["bbox"] or [])
        return {"boxes": corners} if labels is None else {"boxes": corners, "labels": labels}
    return value


def xyxy(boxes: Any) -> list[list[float]]:
    """Boxes as COCO has them -> left, top, right and bottom of each, or an ImageError that says why there are none."""
    if not _are_boxes(boxes):
        raise ImageError(f"expected boxes of four numbers: x, y, width, height; got {boxes!r:.60}")
    return [[x, y, x + width, y + height] for x, y, width, height in boxes]


def _look(value: object) -> Any:
    if value is None:
        return "none"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return "int"
    if isinstance(value, float) and math.isfinite(value):
        return "float"
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return len(value), any(isinstance(each, float) for each in value)
    return "boxes" if isinstance(value, Mapping) and _is_detection(value) else "json"


def _look_of_text(text: str) -> Any:
    if text in NO_LABELS:
        return text or "none"
    if text[0] not in "[{+-.0123456789":
        return "text"
    if _PADDED.fullmatch(text):
        return "padded"
    if (whole := _WHOLE.fullmatch(text)) and _look(int(whole[1])) == "int":
        return "whole"
    try:
        look = _look(_parsed(text))
    except ImageError:
        return "text"
    return look if text[0] in "[{" or look in ("int", "float") else "text"


def _parsed(text: str) -> Any:
    text = text.strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if _FLOAT.fullmatch(text):  # such as .5, which is none in JSON
            return float(text)
        raise ImageError(f"expected a value in JSON, got {text[:40]!r}") from None


def _is_number(value: object) -> bool:
    return _look(value) in ("int", "float")


def _are_boxes(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(box, list) and len(box) == 4 and all(map(_is_number, box)) for box in value
    )


def _is_detection(value: Mapping[Any, Any]) -> bool:
    """Whether it is the value of Hugging Face's object detection: boxes, and a number for each, and nothing else."""
    boxes: Any = value.get("bbox")
    labels = [value[name] for name in _CATEGORIES if name in value]
    if len(value) != 1 + len(labels) or len(labels) > 1 or not _are_boxes(boxes):
        return False
    return all(isinstance(each, list) and [type(n) for n in each] == [int] * len(boxes) for each in labels)
