"""A table whose classes are numbers -> the file beside it that names them.

Cassava has label_num_to_disease_map.json beside train.csv, and many lists have classes.txt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.class_lists import read_called_class_lists
from fastpipe.sources.folders.splits import FEW
from fastpipe.sources.json_stream import object_entries
from fastpipe.sources.numbered_classes import has_names_of_numbers
from fastpipe.sources.options import quote_for_shell
from fastpipe.sources.tables.likely import is_label_name
from fastpipe.sources.tables.listed_images import ALL_ROWS, first_cells, first_rows

_LABEL = "label"


class _NamesFile(NamedTuple):
    """A file with names of classes."""

    path: Path
    # The numbers that it names.
    numbers: Set[int]


def find_names_beside(table: SourcePath, numbers: Set[int]) -> Path | None:
    """The file beside a table that has a name for each of the numbers of its classes; or None."""
    return _find_fitting(_files_with_names(table), numbers)


def option_of_names_beside(table: SourcePath) -> str:
    """The option that names the classes of a table whose labels are numbers; "" if none is needed."""
    files = _files_with_names(table)
    # Only then all rows of the table are read.
    if not files or not isinstance(table, Path):
        return ""
    numbers: set[int] = set()
    for text in _labels_in(table):
        if not (text.isascii() and text.isdigit()):
            return ""
        numbers.add(int(text))
    file = _find_fitting(files, numbers)
    return "" if file is None else f" --classes-from {quote_for_shell(str(file))}"


def _find_fitting(files: Sequence[_NamesFile], numbers: Set[int]) -> Path | None:
    """The first file that names all numbers; None if they do not begin at 0.

    In a list, names of classes that begin at 1 would be one off.
    """
    if 0 not in numbers:
        return None
    for file in files:
        if numbers <= file.numbers:
            return file.path
    return None


def _files_with_names(table: SourcePath) -> list[_NamesFile]:
    """The files beside a table that may name its classes, objects of JSON first."""
    folder = table.parent
    files: list[_NamesFile] = []
    if not isinstance(folder, Path):
        return files  # behind a URL, each look at a file is a request
    for path in find_json_names(folder):
        files.append(_NamesFile(path, _numbers_in(path)))
    for path, lines in read_called_class_lists(folder):
        if path != table and _are_names(lines):
            files.append(_NamesFile(path, set(range(len(lines)))))
    return files


def find_json_names(folder: Path) -> Iterator[Path]:
    """The files in a folder that are JSON objects of numbers and names."""
    for name in names_in(folder, FEW).files:
        path = folder / name
        if has_names_of_numbers(path):
            yield path


def _labels_in(table: Path) -> set[str]:
    """The texts in the only column of a table that holds labels; none if that is not certain."""
    rows = first_cells(table, ALL_ROWS)
    if rows:
        columns = [column for column in rows[0] if is_label_name(column)]
        if _LABEL in rows[0]:
            columns = [_LABEL]
        if len(columns) != 1:
            return set()
        return {row.get(columns[0], "").strip() for row in rows}
    lines = first_rows(table)
    # A path and a number.
    if any(len(line) != 2 for line in lines):
        return set()
    return {line[1].strip() for line in lines}


def _numbers_in(file: Path) -> set[int]:
    """The numbers that have a name in an object such as {"0": "cat"}."""
    numbers = set()
    try:
        for name, _, _ in object_entries(file):
            if name.isdecimal():
                numbers.add(int(name))
    except PackError:
        return set()  # it is damaged
    return numbers


def _are_names(lines: Collection[str]) -> bool:
    """Whether lines may be the names of classes, and no list of images and their labels."""
    if len(set(lines)) < len(lines):
        return False
    has_letters = all(any(map(str.isalpha, line)) for line in lines)
    return has_letters and not _list_images(lines)


def _list_images(lines: Iterable[str]) -> bool:
    return any(is_picture(word) for line in lines for word in line.split())
