"""Lines with a number and the name of a class -> the name of each value of a mask.

ADE20K has such a table: objectInfo150.txt, with the columns Idx, Ratio, Train, Val, Stuff, Name.
Roboflow has _classes.csv beside its masks, with the columns Pixel Value and Class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.errors import PackError
from fastpipe.sources.files import SourcePath, open_binary
from fastpipe.sources.json_stream import object_entries

_LINE = re.compile(r"(\d{1,5})\s*[\s,;:=]\s*(.*\S)")
# The file in which Roboflow names the values of masks. Beside other images it has one column a class.
VALUE_NAMES = "_classes.csv"
_VALUE_COLUMN = "pixel value"
_MAX_BYTES = 1 << 20
_NUMBER_COLUMNS = (
    _VALUE_COLUMN,
    "idx",
    "index",
    "id",
    "value",
    "number",
    "class_id",
    "label_id",
)
_NAME_COLUMNS = ("name", "class", "class_name", "label", "label_name", "category")
_SEPARATORS = ("\t", ",", ";")


def parse_numbered_names(lines: Iterable[str]) -> tuple[str, ...]:
    """The names by number, "" for numbers without one; () if lines have no number and name."""
    texts = [line.strip() for line in lines if line.strip()]
    names = _read_table(texts)
    if names is None:
        names = _read_lines(texts)
    if not names or max(names) >= MAX_CLASSES:
        return ()
    return tuple(names.get(number, "") for number in range(max(names) + 1))


def read_value_names(path: SourcePath) -> tuple[str, ...]:
    """The names by pixel value in a table as Roboflow's; () if it is none, or cannot be read."""
    try:
        with open_binary(path) as file:
            text = (file.read(_MAX_BYTES) or b"").decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ()
    lines = text.splitlines()
    if not lines or _VALUE_COLUMN not in lines[0].lower():
        return ()
    return parse_numbered_names(lines)


def has_names_of_numbers(path: SourcePath) -> bool:
    """Whether a file is a JSON object such as {"0": "cat"}, by its first entry."""
    if not path.name.lower().endswith(".json"):
        return False
    try:
        name, index, value = next(object_entries(path))
    except (PackError, OSError, StopIteration):
        return False  # it is JSON of another kind
    return index < 0 and name.isdecimal() and isinstance(value, str)


def _read_table(texts: Sequence[str]) -> Mapping[int, str] | None:
    """Number -> name, of lines below a header; None if there is no header."""
    if not texts:
        return None
    for separator in _SEPARATORS:
        header = [cell.strip().lower() for cell in texts[0].split(separator)]
        numbers = [name for name in _NUMBER_COLUMNS if name in header]
        titles = [name for name in _NAME_COLUMNS if name in header]
        if not numbers or not titles:
            continue
        number_index = header.index(numbers[0])
        name_index = header.index(titles[0])
        pairs = []
        for text in texts[1:]:
            cells = [cell.strip() for cell in text.split(separator)]
            if len(cells) <= max(number_index, name_index):
                return {}
            pairs.append((cells[number_index], cells[name_index]))
        return _by_number(pairs)
    return None


def _read_lines(texts: Sequence[str]) -> Mapping[int, str]:
    pairs = []
    for text in texts:
        match = _LINE.fullmatch(text)
        if match is None:
            return {}
        pairs.append((match[1], match[2]))
    return _by_number(pairs)


def _by_number(pairs: Sequence[tuple[str, str]]) -> dict[int, str]:
    """Number -> name; empty if a number is not a whole one or is listed twice, or a name is empty."""
    names: dict[int, str] = {}
    for number, name in pairs:
        if not number.isdecimal() or int(number) in names or not name:
            return {}
        names[int(number)] = name
    return names
