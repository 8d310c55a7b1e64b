"""A JSON object that says the classes of images -> a row for each image.

Programs write it in four ways: {"a.jpg": "cat"}; {"a.jpg": {"p": "a cat"}}, as the parts of DiffusionDB
with their prompts; {"cat": ["a.jpg", "b.jpg"]}, as Food-101's train.json, also with the names of splits;
and {"labels": [["a.jpg", 0]]}, as StyleGAN's dataset.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError
from fastpipe.sources.files import SourcePath
from fastpipe.sources.folders.splits import split_of_name
from fastpipe.sources.json_stream import object_entries
from fastpipe.sources.tables.rows import Row, row_name

_LABELS = "labels"


def find_json_mapping(path: SourcePath) -> Callable[[], Iterator[Row]] | None:
    """Returns what reads the rows of a file; None if it is another JSON object."""
    try:
        first = next(object_entries(path), None)
        if first is None:
            return None
        name, index, value = first
        if index < 0:
            is_class = isinstance(value, (str, int)) and not isinstance(value, bool)
            if is_class and is_picture(name):
                return partial(_rows_of_paths, path)
            if isinstance(value, dict) and value and is_picture(name):
                return partial(_rows_of_values, path)
        elif isinstance(value, str):
            if is_picture(value) or "/" in value:
                names = {name for name, _, _ in object_entries(path)}
                are_splits = all(split_of_name(name) is not None for name in names)
                column = "split" if are_splits else "label"
                return partial(_rows_of_lists, path, column)
        elif name == _LABELS and _is_pair(value):
            return partial(_rows_of_pairs, path)
    except PackError:
        pass  # it is damaged; its reader says so
    return None


def _is_pair(value: Any) -> bool:
    """Whether a value is the path of an image, and its label."""
    is_list = isinstance(value, list) and len(value) == 2
    return is_list and isinstance(value[0], str) and is_picture(value[0])


def _rows_of_paths(path: SourcePath) -> Iterator[Row]:
    """The rows of an object with a class for each path."""
    for number, (name, _, value) in enumerate(object_entries(path), 1):
        yield Row(row_name(path.name, number), {"path": name, "label": value})


def _rows_of_values(path: SourcePath) -> Iterator[Row]:
    """The rows of an object with an object for each path."""
    for number, (name, _, value) in enumerate(object_entries(path), 1):
        where = row_name(path.name, number)
        if isinstance(value, dict):
            yield Row(where, {"path": name, **_without_path(value)})
        else:
            yield Row(where, problem=f"expected an object of values, got {value!r:.60}")


def _without_path(values: dict[str, Any]) -> dict[str, Any]:
    """The values of an image, without a path of its own: the object is called after the file."""
    return {name: value for name, value in values.items() if name != "path"}


def _rows_of_lists(path: SourcePath, column: str) -> Iterator[Row]:
    """The rows of an object with a list of paths for each class, or for each split."""
    for number, (name, _, value) in enumerate(object_entries(path), 1):
        yield Row(row_name(path.name, number), {"path": value, column: name})


def _rows_of_pairs(path: SourcePath) -> Iterator[Row]:
    """The rows of a list of paths and labels."""
    for number, (name, _, value) in enumerate(object_entries(path), 1):
        where = row_name(path.name, number)
        if name != _LABELS:
            continue
        if _is_pair(value):
            yield Row(where, {"path": value[0], "label": value[1]})
        else:
            problem = f"expected the path of an image and its label, got {value!r:.60}"
            yield Row(where, problem=problem)
