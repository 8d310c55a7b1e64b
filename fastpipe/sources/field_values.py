"""A value of a column -> the value as its field takes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fastpipe.dataset.format.fields import ARRAY_KINDS, PICTURE_KINDS
from fastpipe.errors import ImageError
from fastpipe.machine.parser import parse_again_on_system_error
from fastpipe.sources.annotations.detections import make_boxes_value, read_box_lists
from fastpipe.sources.listing import SourceField
from fastpipe.sources.tables.column_kinds import FLAGS, json_value, parse_text

_CLASS_NUMBER = re.compile(r"[0-9]{1,9}")
# Between the texts of an array as numpy prints it: ['cat' 'dog'].
_NO_COMMA = re.compile(r"(['\"])\s+\1")


def field_value(value: Any, field: SourceField, *, typed: bool = True) -> Any:
    """A value of a column as its field takes it.

    Args:
        value: the value as its source has it; None if it is missing.
        field: the field.
        typed: whether values are of JSON or Parquet; else they are the texts of a CSV file.

    Raises:
        ImageError: the field cannot take the value.
    """
    kind = field.kind
    if kind == "classes" and field.columns:
        return _read_flags(value, field)
    if kind == "classes" and isinstance(value, str):
        return _read_classes(value, field)

    if not typed and value is not None and kind != "text":
        is_path = kind in PICTURE_KINDS
        if kind in ARRAY_KINDS:
            # Numbers are written as a list.
            is_path = not str(value).lstrip().startswith("[")
        if is_path:
            value = value or None
        else:
            value = parse_text(value)

    if kind == "images" and value == "":
        return None
    # A field of numbers may come from a column of true and false, or of single numbers.
    if kind == "int" and isinstance(value, bool):
        return int(value)
    if kind == "floats" and isinstance(value, (int, float)):
        return [value]
    if kind == "classes" and field.names and isinstance(value, list):
        return [_class_in_list(entry, field) for entry in value]
    if kind == "boxes":
        lists = read_box_lists(value)
        if lists is not None:
            return make_boxes_value(lists, field)
    return value


def name_of_class(number: object, names: Sequence[str]) -> str:
    """The name of the class with this number. ImageError: there is no such class."""
    if not isinstance(number, int) or not 0 <= number < len(names):
        raise ImageError(
            f"expected class numbers of 0 to {len(names) - 1:,}, got {number!s:.40}"
        )
    return names[number]


def _class_in_list(entry: object, field: SourceField) -> str:
    """The name of a class in a list. ImageError: it is no class of the field."""
    if field.source_names:
        return name_of_class(entry, field.source_names)
    # A number would be no position in names that were sorted.
    if not isinstance(entry, str):
        raise ImageError(
            f"expected names of classes, as in other rows; got {entry!s:.40}"
        )
    return entry


def _read_flags(values: Sequence[Any], field: SourceField) -> list[str]:
    """The classes whose columns have a 1 in this row."""
    classes = []
    for value, name in zip(values, field.columns, strict=True):
        text = ""
        if value is not None:
            text = str(value).strip().lower()
        flag = FLAGS.get(text)
        if text and flag is None:
            raise ImageError(
                f"column {name}: expected 0 or 1, or -1 or 1, got {value!r:.40}"
            )
        if flag == 1:
            classes.append(name)
    return classes


def _read_classes(text: str, field: SourceField) -> list[Any]:
    """The classes in a text: names, or numbers if the field has no names."""
    classes = _split_classes(text, field.separator)
    if field.names:
        return classes
    numbers: list[Any] = []
    for part in classes:
        if isinstance(part, str) and _CLASS_NUMBER.fullmatch(part):
            numbers.append(int(part))
        else:
            numbers.append(part)
    return numbers


def _split_classes(text: str, separator: str) -> list[Any]:
    """The parts of a text, each once: of "cat|dog", or of a list as Python and pandas write it."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        parts = parse_list(text)
    elif separator:
        parts = [part.strip() for part in text.split(separator)]
    else:
        parts = [text]
    # In "cat||dog" and in "cat|" a part is empty.
    return [part for part in dict.fromkeys(parts) if part != ""]


def class_names(texts: Iterable[str], separator: str) -> tuple[str, ...]:
    """All names in the texts of a column, sorted; empty if all of them are numbers."""
    names: set[str] = set()
    for text in texts:
        try:
            names.update(map(str, _split_classes(text, separator)))
        except ImageError:
            pass  # a damaged list; its image is rejected when it is packed
    if all(map(_CLASS_NUMBER.fullmatch, names)):
        return ()
    return tuple(sorted(names))


def parse_list(text: str) -> list[Any]:
    """A list as JSON, Python or numpy writes it. ImageError if the text is something else."""
    try:
        value = json_value(text)
    except (ValueError, RecursionError):
        try:
            python_text = _NO_COMMA.sub(r"\1, \1", text)
            value = parse_again_on_system_error(lambda: ast.literal_eval(python_text))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            value = None
    if not isinstance(value, (list, tuple)):
        raise ImageError(f"expected a list, such as ['cat', 'dog'], got {text[:60]!r}")
    return list(value)
