"""The values of a column -> the kind of field that holds them without loss.

Note [kinds of columns]
A kind is chosen only if it fits all values: docs/reference/sources.md has the table. A missing value has no
number, so it makes a column of numbers "json". In a CSV file, texts count as the numbers, lists or
objects that they spell if all texts of the column do.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import ImageError, PackError
from fastpipe.sources.annotations.detections import CATEGORIES, Detections
from fastpipe.sources.annotations.run_lengths import are_runs
from fastpipe.sources.tables.regression import describe_fraction
from fastpipe.sources.tables.shown_row import show_row

# Texts of a CSV file that mean "no label", without the spaces around them.
NO_LABELS = ("", "-1", "-1.0")
# Texts of a column that says of each row whether it has one class, in small letters.
FLAGS = {
    "0": 0,
    "1": 1,
    "-1": -1,
    "0.0": 0,
    "1.0": 1,
    "-1.0": -1,
    "true": 1,
    "false": 0,
}
_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
_PADDED = re.compile(r"0[0-9]+")
# Pandas writes whole numbers so if one of the column is missing.
_WHOLE_FLOAT = re.compile(r"(-?(0|[1-9][0-9]{0,18}))\.0+")
# A whole number as a text, in either form.
_ID = re.compile(r"([0-9]{1,19})(?:\.0+)?")
_MAX_FIRST = 1000  # values that are kept in any case
_MAX_DISTINCT = 2000  # different values that are kept, unless all are
# A longer text is no name of a class. Captions of a million rows are not kept in memory.
_MAX_CHARACTERS = 4096


class _Vector(NamedTuple):
    """The type of a list of numbers."""

    length: int
    has_fraction: bool


# The type of one value is a _Vector or one of these texts:
#   none, text, int, float, boxes (an object of object detection), json (any other value);
#   of texts also _RUNS; of those in a CSV file also padded (007), whole (7.0), -1 and -1.0;
#   of lists also _EMPTY, _BOX_LIST, _NAME_LIST and _POINT_LIST.
_EMPTY = "empty list"
_BOX_LIST = "list of lists of four numbers"
_NAME_LIST = "list of names of images"
_POINT_LIST = "list of points, each of two or three numbers"
_RUNS = "run lengths of a mask"
# Types that matter only to labels -> the types that fields know.
_FIELD_TYPES: dict[Any, str] = {
    "padded": "text",
    "whole": "float",
    "-1": "int",
    "-1.0": "float",
    _BOX_LIST: "json",
    _NAME_LIST: "json",
    _POINT_LIST: "json",
    _RUNS: "text",
}
_NUMBER_TYPES = frozenset(("int", "whole", "float", "padded", *NO_LABELS))


class ColumnSummary:
    """A summary of the values of a column, to which `add` adds one value after the other.

    Args:
        typed: whether values are of JSON or Parquet; else they are the texts of a CSV file.
        keeps_all: keep all different texts, however many there are, also those in lists.

    Attributes:
        items: with `keeps_all`, all different texts in lists.
    """

    def __init__(self, *, typed: bool, keeps_all: bool = False) -> None:
        self._typed = typed
        self._max_distinct = _MAX_DISTINCT
        if keeps_all:
            self._max_distinct = sys.maxsize
        self._keeps_all = keeps_all
        self.count = 0
        self.detections = Detections()
        self.items: set[str] = set()
        self.first: list[str] = []  # the first different values, as texts
        self._fraction = ""  # the first number with a fraction, as text
        self._types: dict[Any, str] = {}  # type -> the first row with such a value
        # The different values as texts; None if there are too many, or values of other types.
        self._texts: set[str] | None = set()
        # The number of values when there were too many different ones; 0 before that.
        self._count_at_limit = 0

    def add(self, value: object, where: str) -> None:
        """Adds the value of the row called `where`; None if it is missing."""
        self.count += 1
        if self._keeps_all and isinstance(value, list):
            self.items.update(text for text in value if isinstance(text, str))
        if self._typed or value is None:
            self.detections.add(value)
            self._add(value, _type_of(value), where)
            return
        text = str(value).strip()
        # Most texts of large tables come again. They need no second look.
        if self._texts is None or text not in self._texts:
            self._add(text, _type_of_text(text), where)

    def _add(self, value: object, value_type: Any, where: str) -> None:
        if isinstance(value_type, _Vector):
            for other in self._types:
                if isinstance(other, _Vector) and other.length != value_type.length:
                    value_type = "json"  # lists of several lengths are no vectors
                    break
        if value_type == "float" and value_type not in self._types:
            self._fraction = str(value)
        self._types.setdefault(value_type, where)

        if value is None:
            return
        text = ""
        is_kept = isinstance(value, (str, int, float))
        if is_kept:
            text = str(value).strip()
        # A user who asks for all texts gets the long ones, too.
        if len(text) > _MAX_CHARACTERS and not self._keeps_all:
            is_kept = False
        if is_kept and len(self.first) < _MAX_FIRST:
            self.first.append(text)
        # The texts in a list are kept as items.
        has_items = self._keeps_all and isinstance(value, list)
        if self._texts is not None and not has_items:
            if is_kept and len(self._texts) < self._max_distinct:
                self._texts.add(text)
            else:
                # From here on the set would be incomplete, so it says nothing.
                self._texts = None
                self._count_at_limit = self.count

    @property
    def texts(self) -> set[str]:
        """All different values as texts; empty if there are too many, or lists or objects."""
        return (self._texts or set()) - {""}

    @property
    def repeats(self) -> bool:
        """Whether values come several times, as those of classes do."""
        return self._texts is not None and 0 < 2 * len(self._texts) <= self.count

    @property
    def names_come_again(self) -> bool:
        """Whether values come several times, also where there are too many to keep them all."""
        if self._texts is None:
            return self._count_at_limit >= 2 * self._max_distinct
        return self.repeats

    @property
    def are_all_different(self) -> bool:
        """Whether each value comes once, as far as values are kept."""
        if self._texts is None:
            return self._count_at_limit == self._max_distinct + 1
        return 0 < len(self._texts) == self.count

    @property
    def flags(self) -> set[int]:
        """The numbers of a column with 0 and 1, or -1 and 1, only; empty for other columns."""
        numbers = set()
        for text in self._texts or ():
            number = FLAGS.get(text.lower())
            if number is None:
                return set()
            numbers.add(number)
        return numbers

    @property
    def is_numeric(self) -> bool:
        """Whether all values are numbers or missing, and not all are missing."""
        types = self._types.keys()
        return not types.isdisjoint(_NUMBER_TYPES) and types <= {*_NUMBER_TYPES, "none"}

    @property
    def has_fractions(self) -> bool:
        """Whether all values are numbers or missing, and some have a fraction."""
        return "float" in self._types and self.is_numeric

    @property
    def are_lists(self) -> bool:
        """Whether there are lists or objects among the values, or lists as Python writes them."""
        for value_type in self._types:
            is_list = value_type in (_EMPTY, _BOX_LIST, _NAME_LIST, _POINT_LIST, "json")
            if is_list or isinstance(value_type, _Vector):
                return True
        # Python's lists have single quotes, so they are no JSON: ['cat', 'dog'].
        return any(text.startswith("[") for text in self.texts)

    @property
    def are_pictures(self) -> bool:
        """Whether the values are called like files of pictures, as far as values are kept."""
        texts = [text for text in self.first if text]
        return bool(texts) and all(map(is_picture, texts))

    @property
    def has_missing(self) -> bool:
        """Whether values are missing, or empty texts."""
        return "none" in self._types or "" in self.first

    @property
    def has_name_lists(self) -> bool:
        """Whether there are lists of names of pictures among the values."""
        return _NAME_LIST in self._types

    @property
    def has_point_lists(self) -> bool:
        """Whether there are lists of points, such as [[10, 20], [12, 25]], among the values."""
        return _POINT_LIST in self._types

    @property
    def are_empty_lists(self) -> bool:
        """Whether all values are empty lists or missing."""
        return self._types.keys() <= {_EMPTY, "none"}

    @property
    def are_boxes(self) -> bool:
        """Whether all values are four numbers, lists of these, empty or missing; not all empty."""
        has_boxes = False
        for value_type in self._types:
            is_box = isinstance(value_type, _Vector) and value_type.length == 4
            if is_box or value_type == _BOX_LIST:
                has_boxes = True
            elif value_type not in ("none", _EMPTY):
                return False
        return has_boxes

    @property
    def has_runs(self) -> bool:
        """Whether there are run lengths of masks among the values."""
        return _RUNS in self._types

    @property
    def are_runs(self) -> bool:
        """Whether all values are run lengths of masks, missing or -1; not all missing."""
        return self.has_runs and self._types.keys() <= {_RUNS, "none", "-1"}

    @property
    def kind(self) -> str:
        """The kind of field. See Note [kinds of columns]."""
        types = {_FIELD_TYPES.get(value_type, value_type) for value_type in self._types}
        present = types - {"none"}
        numbers = types & {"int", "float"}
        has_others = types != numbers
        if not self._typed:
            # One text that spells nothing makes the other cells of a CSV column texts as well.
            is_mixed = bool(numbers) and has_others
            if "text" in types or not present or is_mixed:
                return "text"
        if numbers == {"int"} and not has_others:
            return "int"
        if numbers and not has_others:
            return "floats"
        if present == {"text"}:
            return "text"
        if present == {"boxes"}:
            return "boxes"

        has_fraction = False
        for value_type in types:
            if not isinstance(value_type, _Vector):
                return "json"
            has_fraction = has_fraction or value_type.has_fraction
        # Lists of whole numbers only may be anything, such as the ids of objects.
        if has_fraction:
            return "floats"
        return "json"

    def are_numbers(self, column: str, *, is_chosen: bool) -> bool:
        """Whether the labels of a CSV file are numbers, and not names.

        Typed labels need no such rule, as 7 is a number there and "7" a name: False.

        Args:
            column: the column, as "TABLE, column NAME".
            is_chosen: whether the user has chosen it for the labels.

        Raises:
            PackError: labels are numbers and names, or fractions such as scores.
        """
        if self._typed:
            return False
        # Versions such as 1.5 beside 007 may be names.
        if self.has_fractions and "padded" not in self._types:
            row = show_row(self._types["float"])
            raise PackError(describe_fraction(column, row, self._fraction, is_chosen))

        # Type of a label -> the first row that has one.
        rows = dict(self._types)
        for no_label in ("none", *NO_LABELS):
            rows.pop(no_label, None)
        names = []  # the rows with labels that are no numbers
        for value_type, where in rows.items():
            if value_type not in ("int", "whole"):
                names.append(where)
        # 007 beside 10 is a name, and then 10 is one, too.
        are_padded = rows.keys() <= {"int", "padded"}
        if names and "int" in rows and not are_padded:
            raise PackError(
                f"{column}: labels are numbers ({show_row(rows['int'])}) and names "
                f"({show_row(names[0])}); expected "
                'only one of both. In JSONL, 7 is a number and "7" is a name'
            )
        return not names and not self.are_ids

    @property
    def are_ids(self) -> bool:
        """Whether most texts are whole numbers too large for those of classes, as of products.

        Typed labels need no such rule, as a program wrote them.
        """
        if self._typed:
            return False
        numbers = [text for text in self.first if text not in NO_LABELS]
        num_ids = 0
        for text in numbers:
            match = _ID.fullmatch(text)
            if match is not None and int(match[1]) >= MAX_CLASSES:
                num_ids += 1
        return 2 * num_ids > len(numbers)


def _type_of(value: object) -> Any:
    """The type of a value of JSON or Parquet; see the list of types above."""
    if value is None:
        return "none"
    if isinstance(value, str):
        # A text that begins with a digit stands before ":" in the order of ASCII. Most need no look.
        if value < ":" and are_runs(value):
            return _RUNS
        return "text"
    if isinstance(value, bool):
        return "json"
    if isinstance(value, int):
        # A field of numbers has 64 bits. JSON can hold larger ones.
        fits = -(2**63) <= value < 2**63
        return "int" if fits else "json"
    if isinstance(value, float) and math.isfinite(value):
        return "float"
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return _Vector(len(value), any(isinstance(number, float) for number in value))
    if value == []:
        return _EMPTY
    if _are_boxes(value):
        return _BOX_LIST
    if isinstance(value, list) and all(_is_picture_name(entry) for entry in value):
        return _NAME_LIST
    if isinstance(value, list) and all(_is_point(entry) for entry in value):
        return _POINT_LIST
    if isinstance(value, Mapping) and _is_detection(value):
        return "boxes"
    return "json"


def _is_point(value: object) -> bool:
    if not isinstance(value, list) or len(value) not in (2, 3):
        return False
    return all(map(_is_number, value))


def _is_picture_name(value: object) -> bool:
    return isinstance(value, str) and is_picture(value)


def _type_of_text(text: str) -> Any:
    """The type that a text of a CSV file spells; see the list of types above."""
    if text in NO_LABELS:
        return text or "none"
    if text[0] not in "[{+-.0123456789":
        return "text"
    if _PADDED.fullmatch(text):
        return "padded"
    whole = _WHOLE_FLOAT.fullmatch(text)
    if whole is not None and _type_of(int(whole[1])) == "int":
        return "whole"
    try:
        value_type = _type_of(parse_text(text))
    except ImageError:
        return _type_of(text)
    # Infinity is a value of JSON here, but no number of a column.
    if text[0] in "[{" or value_type in ("int", "float"):
        return value_type
    return "text"


def parse_text(text: str) -> Any:
    """The value that a text of a CSV file spells in JSON; None if it is empty, else ImageError."""
    text = text.strip()
    if not text:
        return None
    try:
        return json_value(text)
    except (ValueError, RecursionError):
        if _FLOAT.fullmatch(text):  # such as .5, which JSON does not have
            return float(text)
        raise ImageError(f"expected a value in JSON, got {text[:40]!r}") from None


def json_value(text: str) -> Any:
    """The value of a text in JSON. NaN stands for a missing value, as many programs write it.

    Raises:
        ValueError: the text is not JSON.
    """
    return json.loads(text, parse_constant=_parse_constant)


def _parse_constant(name: str) -> float | None:
    if name == "NaN":
        return None
    return float(name)  # Infinity or -Infinity


# The numbers of a box by its form.
_NUMBERS_OF_BOXES = {
    "xywh": "x, y, width, height",
    "xyxy": "left, top, right, bottom",
    "cxcywh": "the centre's x and y, width, height",
}


def check_boxes(boxes: Any, box_format: str) -> list[list[float]]:
    """Boxes as they are. ImageError: a box does not have four numbers.

    `box_format`: one of BOX_FORMATS, for the message.
    """
    if not _are_boxes(boxes):
        raise ImageError(
            f"expected boxes of four numbers: {_NUMBERS_OF_BOXES[box_format]}; got {boxes!r:.60}"
        )
    checked: list[list[float]] = boxes
    return checked


def _are_boxes(value: object) -> bool:
    """Whether it is a list of lists of four numbers, or an empty list."""
    if not isinstance(value, list):
        return False
    for box in value:
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
            return False
    return True


def _is_number(value: object) -> bool:
    return _type_of(value) in ("int", "float")


def _is_detection(value: Mapping[Any, Any]) -> bool:
    """Whether an object has boxes and perhaps a class for each, and nothing else.

    This is the value of object detection in Hugging Face's datasets.
    """
    boxes: Any = value.get("bbox")
    categories = [value[name] for name in CATEGORIES if name in value]
    has_others = len(value) != 1 + len(categories)
    if len(categories) > 1 or has_others or not _are_boxes(boxes):
        return False
    if not categories:
        return True
    labels = categories[0]
    if not isinstance(labels, list) or len(labels) != len(boxes):
        return False
    # All are numbers, or all are names.
    return {type(label) for label in labels} in (set(), {int}, {str})
