"""The values of a column -> the kind of field that holds them without loss; and each as a field takes it.

Note [kinds of columns]
A kind is taken only where all values say the same: docs/sources.md has the table. A missing value has no number, so it
makes a column of numbers "json". In a CSV file, a text counts as what it spells, if all texts of the column do.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastpipe.errors import ImageError, PackError
from fastpipe.sources.detections import CATEGORIES, Detections, detection, in_lists
from fastpipe.sources.listing import SourceField

_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
_PADDED = re.compile(r"0[0-9]+")
_WHOLE = re.compile(
    r"(-?(0|[1-9][0-9]{0,18}))\.0+"
)  # as pandas writes whole numbers if one of the column is missing
NO_LABELS = ("", "-1", "-1.0")  # in a CSV file, without the spaces around them
_FOURS = "lists of four numbers"  # how a value looks
_MEANING = {
    "padded": "text",
    "whole": "float",
    "-1": "int",
    "-1.0": "float",
    _FOURS: "json",
}  # of looks that matter to labels only
_MOST_FIRST = 1000  # values that are kept in any case
_MOST_DISTINCT = 2000  # values of a column that are kept apart
_FLAGS = {
    "0": 0,
    "1": 1,
    "-1": -1,
    "0.0": 0,
    "1.0": 1,
    "-1.0": -1,
    "true": 1,
    "false": 0,
}  # as texts, in small letters


class Seen:
    """The values of a column, one after the other."""

    def __init__(self, *, typed: bool, keeps_all: bool = False) -> None:
        self._typed = typed
        self._most = sys.maxsize if keeps_all else _MOST_DISTINCT
        self.count = 0
        self.detections = Detections()
        # Look -> the first such row. Of a list of numbers: how many there are, and whether there are fractions.
        self._looks: dict[Any, str] = {}
        self.first: list[str] = []  # the first values that differ, as texts
        self._texts: set[str] | None = (
            set()
        )  # the values, as texts; None: there are too many, or others among them

    def add(self, value: object, where: str) -> None:
        """One more value, of the row of this name; None: it is missing."""
        self.count += 1
        if self._typed or value is None:
            self.detections.add(value)
            self._see(value, _look(value), where)
            return
        text = str(value).strip()
        if self._texts is None or text not in self._texts:  # else it says nothing new
            self._see(text, _look_of_text(text), where)

    def _see(self, value: object, look: Any, where: str) -> None:
        if isinstance(look, tuple) and any(
            isinstance(one, tuple) and one[0] != look[0] for one in self._looks
        ):
            look = "json"  # lists of several lengths
        self._looks.setdefault(look, where)
        if len(self.first) < _MOST_FIRST and isinstance(value, (str, int, float)):
            self.first.append(str(value).strip())
        if self._texts is not None and value is not None:
            if isinstance(value, (str, int, float)) and len(self._texts) < self._most:
                self._texts.add(str(value).strip())
            else:
                self._texts = None

    @property
    def texts(self) -> set[str]:
        """All values that differ, as texts; none where they are too many, or lists or objects."""
        return (self._texts or set()) - {""}

    @property
    def repeats(self) -> bool:
        """Whether values come several times, as those of classes do."""
        return self._texts is not None and 0 < 2 * len(self._texts) <= self.count

    @property
    def flags(self) -> set[int]:
        """The numbers, if all values are 0 and 1, or -1 and 1, as one column of several for classes has them."""
        found = {_FLAGS.get(text.lower()) for text in self._texts or {""}}
        return {each for each in found if each is not None} if None not in found else set()

    @property
    def are_figures(self) -> bool:
        """Whether there are numbers, and besides them only missing values."""
        figures = {"int", "whole", "float", "padded", *NO_LABELS}
        return bool(self._looks.keys() & figures) and self._looks.keys() <= {*figures, "none"}

    @property
    def are_fractions(self) -> bool:
        """Whether there are numbers, and a fraction among them."""
        return "float" in self._looks and self.are_figures

    @property
    def are_lists(self) -> bool:
        """Whether there are lists among the values, also as Python writes them."""
        lists = {look for look in self._looks if isinstance(look, tuple)} | self._looks.keys() & {
            "no list",
            "json",
            _FOURS,
        }
        return bool(lists) or any(text.startswith("[") for text in self.texts)

    @property
    def are_fours(self) -> bool:
        """Whether all values are lists of four numbers, lists of these, empty lists or missing, as a column of boxes
        has them.
        """
        fours = {
            look
            for look in self._looks
            if look == _FOURS or (isinstance(look, tuple) and look[0] == 4)
        }
        return bool(fours) and self._looks.keys() <= {*fours, "none", "no list"}

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
        return (
            "floats"
            if len(lists) == len(looks) and any(fractions for _, fractions in lists)
            else "json"
        )

    def are_numbers(self, column: str) -> bool:
        """Whether the labels of a CSV file are numbers, not names. PackError: it is not certain, or they are scores."""
        if self.are_fractions and not self._typed and not self._looks.keys() & {"int", "padded"}:
            raise PackError(
                f"{column}: {self._looks['float']} has a fraction; expected classes, as whole numbers or names. Scores "
                f"and angles are a field: --field score={column.rpartition('column ')[2]}"
            )
        if self._typed:  # in JSONL each value says it
            return False
        there = {
            look: where for look, where in self._looks.items() if look not in ("none", *NO_LABELS)
        }
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
    if kind == "classes" and (field.columns or isinstance(value, str)):
        return _flagged(value, field) if field.columns else _classes_in(value, field)
    if not typed and kind != "text" and value is not None:
        value = _parsed(value) if kind not in ("mask", "image") else value or None
    if kind == "int" and isinstance(value, bool):
        return int(value)
    if kind == "floats" and isinstance(value, (int, float)):
        return [value]
    if kind == "classes" and field.names and isinstance(value, list):
        for each in value:
            if not isinstance(each, int) or not 0 <= each < len(field.names):
                raise ImageError(
                    f"expected class numbers of 0 to {len(field.names) - 1:,}, got {each}"
                )
        return [field.names[each] for each in value]
    if kind == "boxes" and (lists := in_lists(value)) is not None:
        return detection(lists, field)
    return value


def _flagged(values: Sequence[Any], field: SourceField) -> list[str]:
    """The classes whose columns have a 1 in a row."""
    found = []
    for value, name in zip(values, field.columns, strict=True):
        flag = (
            0
            if value is None or str(value).strip() == ""
            else _FLAGS.get(str(value).strip().lower())
        )
        if flag is None:
            raise ImageError(f"column {name}: expected 0 or 1, or -1 or 1, got {value!r:.40}")
        if flag == 1:
            found.append(name)
    return found


def _classes_in(text: str, field: SourceField) -> list[Any]:
    """The classes in a text: "cat|dog"; or a list of Python or JSON, as pandas writes lists."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        found = listed(text)
    else:
        found = [
            part.strip() for part in (text.split(field.separator) if field.separator else [text])
        ]
    found = [each for each in dict.fromkeys(found) if each != ""]
    return found if field.names else [_whole(each) for each in found]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value


_ADJACENT = re.compile(
    r"(['\"])\s+\1"
)  # between the texts of an array as numpy prints it: ['cat' 'dog']


def listed(text: str) -> list[Any]:
    """A list as Python or JSON writes it. ImageError: it is none."""
    try:
        found = json_value(text)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(_ADJACENT.sub(r"\1, \1", text))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            found = None
    if not isinstance(found, (list, tuple)):
        raise ImageError(f"expected a list, such as ['cat', 'dog'], got {text[:60]!r}")
    return list(found)


def class_names(texts: Iterable[str], separator: str) -> tuple[str, ...]:
    """All names in the texts of a column, sorted; none where they are numbers. Lists that are damaged have none."""
    field, names = SourceField("", "classes", names=("",), separator=separator), set[str]()
    for text in texts:
        with contextlib.suppress(ImageError):
            names.update(map(str, _classes_in(text, field)))
    return () if all(re.fullmatch(r"[0-9]{1,9}", name) for name in names) else tuple(sorted(names))


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
    if value == []:
        return "no list"
    if _are_boxes(value):
        return _FOURS
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


def json_value(text: str) -> Any:
    """What a text in JSON says. NaN is not JSON, but often written, and stands for a missing value. ValueError."""
    return json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))


def _parsed(text: str) -> Any:
    text = text.strip()
    if not text:
        return None
    try:
        return json_value(text)
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
    labels = [value[name] for name in CATEGORIES if name in value]
    if len(value) != 1 + len(labels) or len(labels) > 1 or not _are_boxes(boxes):
        return False
    return all(isinstance(each, list) and _are_classes(each, len(boxes)) for each in labels)


def _are_classes(labels: list[Any], count: int) -> bool:
    """Whether there are so many classes: all are numbers, or all are names."""
    return len(labels) == count and {type(label) for label in labels} in (set(), {int}, {str})
