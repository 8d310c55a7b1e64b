"""The first lines of a table of text -> an error if its columns have the pixels of images as numbers.

FER2013 has all pixels of an image as a text in one cell, and MNIST as CSV has a column for each pixel.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, open_binary
from fastpipe.sources.tables.likely import is_label_name

# The header and the first row of images of 128 x 128 in colour.
_START_BYTES = 1 << 19
# Fewer numbers are points, boxes or flags as often as pixels. The smallest known images are 8 x 8.
_MIN_PIXELS = 64
_NAME_OF_PIXEL = re.compile(r"(?:pixels?|px|p)[-_ ]?\d+|\d+x\d+", re.IGNORECASE)
_SEPARATORS = ",;\t"


class _Pixels(NamedTuple):
    """Where the pixels of an image stand in a table.

    Attributes:
        place: for a message.
        num_pixels: of an image.
        expression: of Python, for the texts of the numbers in `row`.
        label: of Python, for the label in `row`; "": none is known.
        reader: of Python's module csv, for the rows.
    """

    place: str
    num_pixels: int
    expression: str
    label: str
    reader: str


def refuse_pixels(path: SourcePath) -> None:
    """Raises PackError, with a program to write, if a table has pixels as numbers."""
    pixels = _find_pixels(path)
    if pixels is None:
        return
    label = f", label={pixels.label}" if pixels.label else ""
    raise PackError(
        f"{readable(str(path))}: the pixels of images are numbers in {pixels.place}, and fastpipe "
        "does not read these. Write the images with fastpipe.Writer; if a column says the split, write a "
        "dataset for each split:\n"
        f'    with open({path.name!r}) as file, fastpipe.Writer("DST") as writer:\n'
        f"        for row in {pixels.reader}(file):\n"
        f"            pixels = np.array({pixels.expression}, np.uint8).reshape"
        f"{_shape(pixels.num_pixels)}\n"
        f"            writer.add(pixels{label})"
    )


def _shape(count: int) -> str:
    """The shape of an image of so many numbers, for Python: gray and square, if that fits."""
    side = math.isqrt(count)
    if side * side == count:
        return f"({side}, {side})"
    side = math.isqrt(count // 3)
    if 3 * side * side == count:
        return f"({side}, {side}, 3)"
    return "(HEIGHT, WIDTH)"


def _find_pixels(path: SourcePath) -> _Pixels | None:
    """The pixels in the first row of a table; None if it has none."""
    rows = _first_rows(path)
    if not rows:
        return None
    header = [name.strip() for name in rows[0]]
    cells = rows[-1]
    if len(cells) != len(header) or any(map(is_picture, cells)):
        return None
    for column, cell in zip(header, cells, strict=True):
        numbers = cell.split()
        if len(numbers) >= _MIN_PIXELS and _are_pixels(numbers):
            label = _label_in(header, cells, column)
            return _Pixels(
                f"the column {column!r}",
                len(numbers),
                f"row[{column!r}].split()",
                label,
                "csv.DictReader",
            )
    return _find_wide(header, cells)


def _find_wide(header: Sequence[str], cells: Sequence[str]) -> _Pixels | None:
    """As `_find_pixels`, where each pixel has a column."""
    reader = "csv.reader"
    if _are_pixels(header):
        # MNIST as CSV has no header, and the label first.
        count = len(header) - 1
        is_square = math.isqrt(count) ** 2 == count
        if count < _MIN_PIXELS or not is_square:
            return None
        place = "each line"
        return _Pixels(place, count, "row[1:]", "int(row[0])", reader)

    pixel_columns = [name for name in header if _NAME_OF_PIXEL.fullmatch(name)]
    values = dict(zip(header, cells, strict=True))
    if len(pixel_columns) < _MIN_PIXELS:
        return None
    if not _are_pixels([values[column] for column in pixel_columns]):
        return None
    first = pixel_columns[0]
    prefix = re.sub(r"\d.*", "", first)
    expression = f"[row[name] for name in row if name.startswith({prefix!r})]"
    if not prefix:
        expression = '[row[name] for name in row if "x" in name]'
    label = _label_in(header, cells, *pixel_columns)
    place = f"the columns {first} to {pixel_columns[-1]}"
    return _Pixels(place, len(pixel_columns), expression, label, "csv.DictReader")


def _label_in(header: Sequence[str], cells: Sequence[str], *pixel_columns: str) -> str:
    """The label of a row, for Python; "" if no column has whole numbers."""
    candidates: list[str] = []
    for column, cell in zip(header, cells, strict=True):
        if column not in pixel_columns and cell.strip().isdigit():
            candidates.append(column)
    likely = [column for column in candidates if is_label_name(column)]
    for column in likely or candidates:
        return f"int(row[{column!r}])"
    return ""


def _are_pixels(texts: Sequence[str]) -> bool:
    """Whether all texts are whole numbers from 0 to 255."""
    return all(
        text.strip().isascii() and text.strip().isdigit() and int(text) <= 255
        for text in texts
    )


def _first_rows(path: SourcePath) -> list[list[str]]:
    """The header and the first row, or the only row; none if they cannot be read."""
    try:
        with open_binary(path) as file:
            start = file.read(_START_BYTES) or b""
    except OSError:
        return []
    text = start.decode("utf-8-sig", "replace")
    first_line, _, rest = text.partition("\n")
    separator = max(_SEPARATORS, key=first_line.count)
    lines = [first_line, rest.partition("\n")[0]]
    try:
        rows = csv.reader([line for line in lines if line.strip()], delimiter=separator)
        return list(islice(rows, 2))
    except csv.Error:
        return []  # a cell is too long, or the text is none of a table
