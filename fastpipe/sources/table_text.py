"""The first lines of a text file with a table -> what separates its values, and what its columns are called.

A header row is the rule. Where the first row has the path of an image, there is none: the file is a list, as Caffe,
MXNet (.lst) and keras-retinanet write it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.encodings import as_utf8
from fastpipe.sources.files import SourcePath, open_binary
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import is_picture

LISTS = (".txt", ".lst", ".list")  # endings of files with a path a line, which may have no header
SPACES = " "  # any number of spaces and tabs between the values, and none in them but in a path
_HEAD_BYTES = 1 << 16
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_BOXES_BEHIND = re.compile(
    r"\d+(\.\d+)?(,\d+(\.\d+)?){4}"
)  # x1,y1,x2,y2,class, as keras-yolo3 has them


class TextForm(NamedTuple):
    """How a table is written as text."""

    separator: str
    columns: tuple[str, ...] = ()  # names that are not in the file; (): its first row has them
    skipped: int = 0  # lines before the first row
    assumed: tuple[Assumption, ...] = ()

    def spaced(self, line: str) -> list[str]:
        """The values of a line that are separated by spaces; a path in the first column may hold some."""
        if self.columns[:1] == ("path",):
            return line.strip().rsplit(None, len(self.columns) - 1)
        return line.split()


def text_form(path: SourcePath, encoding: str | None = None) -> TextForm:
    """How a file is written, by its first lines. PackError: they are of a kind that is not read. OSError."""
    with open_binary(path) as file:
        head = as_utf8(file, encoding, str(path)).read(_HEAD_BYTES).decode("utf-8-sig", "replace")
    lines = [line for line in head.splitlines()[:4] if line.strip()]
    is_list = path.suffix.lower() in LISTS
    if not lines:
        return TextForm(_usual(path))
    if (
        is_list and len(lines) > 2 and lines[0].strip().isdigit()
    ):  # as CelebA has it: how many rows there are
        names, first = lines[1].split(), lines[2].split()
        if len(first) == len(names) + 1:
            return TextForm(SPACES, ("path", *names), skipped=2)
        return TextForm(SPACES, skipped=1)
    separators = ["\t", ",", ";", SPACES] if is_list else [",", ";", "\t", "|"]
    if path.suffix.lower() in (".tsv", ".tab"):
        separators = ["\t"]
    several = [separator for separator in separators if len(_cells(lines[0], separator)) > 1]
    for separator in several or separators[:1]:
        cells = _cells(lines[0], separator)
        if any(map(is_picture, cells)):
            return _without_header(path, separator, cells)
    return TextForm(several[0] if several else separators[0])


def _usual(path: SourcePath) -> str:
    return "\t" if path.suffix.lower() in (".tsv", ".tab") else ","


def _cells(line: str, separator: str) -> list[str]:
    if separator == SPACES:
        return line.split()
    try:
        return [
            cell.strip()
            for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
        ]
    except csv.Error:
        return []


def _without_header(path: SourcePath, separator: str, cells: Sequence[str]) -> TextForm:
    """The columns of a file whose first row has these values, one of them a path."""
    name, at = (
        readable(str(path)),
        next(number for number, cell in enumerate(cells) if is_picture(cell)),
    )
    if separator == SPACES:
        behind = cells[at + 1 :]
        if any(map(_BOXES_BEHIND.fullmatch, behind)):
            raise PackError(
                f"{name} has boxes as x1,y1,x2,y2,class behind each path, as keras-yolo3 has them, which fastpipe does "
                "not read; write a CSV file with a row for each box: path,x1,y1,x2,y2,class"
            )
        if at and not any(map(_NUMBER.fullmatch, cells[:at])):  # spaces in the path
            cells, at = [" ".join(cells[: at + 1]), *behind], 0
    columns = _names(path, cells, at)
    more = [
        each
        for each, cell in zip(columns, cells, strict=True)
        if each != "path" and is_picture(cell)
    ]
    assumed = [
        Assumption(
            f"{path.name}: it has no header row, and its columns are taken as {', '.join(columns)}"
        )
    ]
    if more:
        field = f"--field mask={more[0]}:mask"
        assumed.append(Assumption(f"column {more[0]!r} of paths is stored as text", field))
    return TextForm(separator, columns, assumed=tuple(assumed))


def _names(path: SourcePath, cells: Sequence[str], at: int) -> tuple[str, ...]:
    numbers = [not cell or _NUMBER.fullmatch(cell) is not None for cell in cells]
    if len(cells) == 2 and at == 0 and not is_picture(cells[1]):
        return "path", "label"
    if len(cells) == 6 and at == 0 and all(numbers[1:5]):  # keras-retinanet's
        return "path", "x1", "y1", "x2", "y2", "class"
    if (
        len(cells) == 3 and at == 2 and all(numbers[:2]) and path.suffix.lower() == ".lst"
    ):  # MXNet's
        return "index", "label", "path"
    return tuple("path" if number == at else f"column_{number + 1}" for number in range(len(cells)))


def header_of(path: SourcePath, encoding: str | None = None) -> Iterator[str]:
    """The names of a table's columns. OSError, PackError."""
    form = text_form(path, encoding)
    if form.columns:
        yield from form.columns
        return
    with open_binary(path) as file:
        text = as_utf8(file, encoding, str(path))
        for _ in range(form.skipped):
            text.readline()
        line = text.readline(_HEAD_BYTES).decode("utf-8-sig", "replace")
    yield from _cells(line, form.separator)
