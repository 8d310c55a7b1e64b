"""A list of colours beside masks -> the class of each colour.

CamVid has label_colors.txt, with lines such as "64 128 64<tab>Animal". Other datasets have
class_dict.csv, with a header name,r,g,b. The number of a class is that of its line, from 0 on.
CVAT's labelmap.txt has NAME:RED,GREEN,BLUE:PARTS:ACTIONS.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import find_colour_list
from fastpipe.sources.files import SourcePath, names_in, open_unchanged
from fastpipe.sources.folders.splits import FEW

Colour: TypeAlias = tuple[int, int, int]  # red, green, blue

_MAX_BYTES = 1 << 20
_RED_GREEN_BLUE = (("r", "g", "b"), ("red", "green", "blue"))
_NAMES = ("name", "class", "class_name", "classname", "label", "label_name", "category")
_NUMBERS = r"(\d{1,3})[ \t,;]+(\d{1,3})[ \t,;]+(\d{1,3})"
# A line without a header: the name stands behind the colour or before it.
_NAME_BEHIND = re.compile(rf"{_NUMBERS}[ \t,;:]+([^\d\s,;].*)")
_NAME_BEFORE = re.compile(rf"(.*[^\d\s,;:])[ \t,;:]+{_NUMBERS}:*")


class ColourList(NamedTuple):
    """The colours of classes, by the numbers of the classes, and their names."""

    file: SourcePath
    colours: tuple[Colour, ...]
    names: tuple[str, ...]


def find_colours(folders: Iterable[SourcePath]) -> ColourList | None:
    """The first list of colours in one of the folders; None if none has one.

    Raises:
        PackError: it cannot be read as colours, or a colour has two classes.
    """
    for folder in dict.fromkeys(folders):
        name = find_colour_list(folder, names_in(folder, FEW).files)
        if name is not None:
            return read_colours(folder / name)
    return None


def read_colours(file: SourcePath) -> ColourList:
    """The colours in a list. PackError: see `find_colours`."""
    try:
        with open_unchanged(file) as opened:
            text = opened.read(_MAX_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise PackError(
            f"cannot read the colours of masks in {readable(str(file))}: {problem}"
        ) from problem
    # The number of a line -> its text.
    lines: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            lines[number] = line.strip()

    columns = _parse_header(next(iter(lines.values()), ""))
    if columns is not None:
        del lines[next(iter(lines))]
    colours: dict[Colour, int] = {}  # colour -> its line
    names = []
    for number, line in lines.items():
        if columns is None:
            entry = _parse_line(line)
        else:
            entry = _parse_cells(line, columns)
        if entry is None:
            raise PackError(
                f"{readable(str(file))}, line {number}: expected the name of a class and its red, "
                f"green and blue from 0 to 255, such as Animal,64,128,64; got {line[:60]!r}"
            )
        name, colour = entry
        if colour in colours:
            raise PackError(
                f"{readable(str(file))}: lines {colours[colour]} and {number} have the same colour "
                f"{colour}, so nothing says which class its pixels have; remove one of them"
            )
        colours[colour] = number
        names.append(name)
    return ColourList(file, tuple(colours), tuple(names))


def _parse_header(line: str) -> Mapping[str, int] | None:
    """The places of name, r, g and b in the cells of a line; None if the line is no header."""
    cells = [cell.strip().lower() for cell in _split(line)]
    for words in _RED_GREEN_BLUE:
        if not set(words) <= set(cells):
            continue
        columns = {}
        for channel, word in zip("rgb", words, strict=True):
            columns[channel] = cells.index(word)
        for word in _NAMES:
            if word in cells:
                columns["name"] = cells.index(word)
                return columns
    return None


def _parse_cells(line: str, columns: Mapping[str, int]) -> tuple[str, Colour] | None:
    cells = _split(line)
    try:
        numbers = [cells[columns[channel]] for channel in "rgb"]
        return _make_entry(cells[columns["name"]], numbers)
    except IndexError:
        return None


def _parse_line(line: str) -> tuple[str, Colour] | None:
    behind = _NAME_BEHIND.fullmatch(line)
    if behind is not None:
        return _make_entry(behind[4], behind.groups()[:3])
    before = _NAME_BEFORE.fullmatch(line)
    if before is not None:
        return _make_entry(before[1], before.groups()[1:])
    return None


def _make_entry(name: str, numbers: Sequence[str]) -> tuple[str, Colour] | None:
    """The name and the colour; None if the numbers are no colour."""
    try:
        red, green, blue = map(int, numbers)
    except ValueError:
        return None
    if not 0 <= min(red, green, blue) <= max(red, green, blue) <= 255:
        return None
    return name.strip(), (red, green, blue)


def _split(line: str) -> list[str]:
    separator = ";" if ";" in line and "," not in line else ","
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return []
