"""The first lines of a text file with a table -> its separator, and the names of its columns.

Usually the first row is a header. Where the first row has the path of an image, there is no header:
the file is a list, as Caffe, MXNet (.lst) and keras-retinanet write it.

Note [lines before the header]
Empty lines, Excel's `sep=;`, a number of rows (CelebA) and comments that begin with "#" may stand
before the header. They are passed over, because a header that is read as a row, or a row that is
read as a header, would shift or lose values.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.column_choice import find_image_like_columns
from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, open_binary
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions

# Endings of files with a path a line, which may have no header.
LISTS = (".txt", ".lst", ".list")
# Stands for any number of spaces and tabs. Of the values, only a path may have spaces in it.
SPACES = " "
_HEAD_BYTES = 1 << 16
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# x1,y1,x2,y2,class, as keras-yolo3 writes boxes behind a path.
_BOX_OF_KERAS_YOLO = re.compile(r"\d+(\.\d+)?(,\d+(\.\d+)?){4}")
# Flickr8k.token.txt has the number of the caption behind the name of the picture.
_NUMBERED_CAPTION = re.compile(r".+\.(jpe?g|png)#\d+", re.IGNORECASE)
# Excel's first line, which says the separator of the lines below.
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)

# The first column of Vertex AI's lists of images. A line of boxes ends with four corners.
_VERTEX_SPLITS = ("TRAIN", "TRAINING", "VALIDATION", "TEST", "UNASSIGNED", "")
_NUM_VERTEX_NUMBERS = 8


class TextForm(NamedTuple):
    """How a table is written as text."""

    # The text between two values, or SPACES.
    separator: str
    # The names of the columns if the file has no header; else ().
    columns: tuple[str, ...] = ()
    # The number of lines before the header or the first row.
    skipped: int = 0
    assumed: tuple[Assumption, ...] = ()
    # The cells of the header and of the first row, if there is a header.
    header: tuple[str, ...] = ()
    first_row: tuple[str, ...] = ()
    # Whether the first value has no spaces, and the last one may have some.
    has_ids: bool = False
    # Whether the first value is the name of a picture with the number of a caption behind it.
    has_caption_numbers: bool = False

    def split_at_spaces(self, line: str) -> list[str]:
        """Splits a line of a table whose separator is SPACES."""
        if self.has_ids:
            return line.strip().split(None, len(self.columns) - 1)
        if self.columns[:1] == ("path",):
            # Only the path may have spaces, and it stands first: split from the right.
            return line.strip().rsplit(None, len(self.columns) - 1)
        return line.split()


def detect_text_form(path: SourcePath, encoding: str | None = None) -> TextForm:
    """Detects from its first lines how a file is written.

    Raises:
        PackError: fastpipe does not read files of this kind.
        OSError: the file cannot be read.
    """
    with open_binary(path) as file:
        head_bytes = open_as_utf8(file, encoding, str(path)).read(_HEAD_BYTES)
    # The head may end inside a character.
    head = head_bytes.decode("utf-8-sig", "replace")
    suffix = path.suffix.lower()
    if suffix in (".tsv", ".tab"):
        separators = ["\t"]
    elif suffix in LISTS:
        separators = ["\t", ",", ";", SPACES]
    else:
        separators = [",", ";", "\t", "|"]

    # Not splitlines(), which also cuts at other characters than the reader of the rows.
    lines = [line.rstrip("\r") for line in head.split("\n")]
    skipped = _count_lines_before_header(lines, separators)
    for line in lines[:skipped]:
        named_separator = _SEPARATOR_LINE.fullmatch(line)
        if named_separator is not None:
            separators = [named_separator[1]]
    # The last line of a long file may be cut off.
    if len(head_bytes) == _HEAD_BYTES and len(lines) > skipped + 1:
        lines.pop()
    first_rows = [line for line in lines[skipped:] if line.strip()]
    lines = first_rows[:3]
    if not lines:
        return TextForm(separators[0], skipped=skipped)

    # The separators that split the first line. A line of one value has none.
    candidates = []
    for separator in separators:
        if len(_split_line(lines[0], separator)) > 1:
            candidates.append(separator)
    if not candidates:
        candidates = separators[:1]
    for separator in candidates:
        cells = _split_line(lines[0], separator)
        if len(cells) > 1 and _NUMBERED_CAPTION.fullmatch(cells[0]):
            return TextForm(
                separator,
                ("path", "caption"),
                skipped=skipped,
                has_caption_numbers=True,
            )
        if any(map(is_picture, cells)):
            form = _form_without_header(path, separator, cells, first_rows)
            return form._replace(skipped=skipped)

    if len(lines) > 1:
        for separator in separators:
            names = _split_line(lines[0], separator)
            if _has_unnamed_paths(names, _split_line(lines[1], separator)):
                return TextForm(separator, ("path", *names), skipped=skipped + 1)
    rows = [tuple(_split_line(line, candidates[0])) for line in (*lines[:2], "")]
    return TextForm(candidates[0], skipped=skipped, header=rows[0], first_row=rows[1])


def _has_unnamed_paths(names: Sequence[str], first_row: Sequence[str]) -> bool:
    """Whether the paths stand first and have no name in the header, as CelebA and R write it."""
    if len(first_row) != len(names) + 1 or "" in names or not first_row[-1]:
        return False
    if not is_picture(first_row[0]):
        return False
    # If the header names the paths, the row has one cell too many for another reason.
    return not find_image_like_columns(names, SourceOptions())


def _count_lines_before_header(lines: Sequence[str], separators: Sequence[str]) -> int:
    """Counts the lines before the header. See Note [lines before the header]."""
    for count, line in enumerate(lines):
        if not _is_before_header(line, lines[count + 1 :], separators):
            return count
    return 0


def _is_before_header(
    line: str, following: Sequence[str], separators: Sequence[str]
) -> bool:
    """Whether a line is neither header nor row, by the lines that follow it."""
    if not line.strip() or _SEPARATOR_LINE.fullmatch(line):
        return True
    is_comment = line.startswith("#")
    if not is_comment and not line.strip().isdigit():
        return False
    for other in following:
        if not other.strip() or (is_comment and other.startswith("#")):
            continue
        # "#filename,label" of VIA is a header: it has as many cells as the row below it.
        for separator in separators:
            num_cells = len(_split_line(line, separator))
            if len(_split_line(other, separator)) > num_cells:
                return True
        return False
    return False


def _split_line(line: str, separator: str) -> list[str]:
    """The cells of a line; none if a quote is open, say."""
    if separator == SPACES:
        return line.split()
    try:
        cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def _form_without_header(
    path: SourcePath, separator: str, cells: Sequence[str], rows: Sequence[str]
) -> TextForm:
    """The form of a file whose first row has these values. One of them is a path.

    `rows` are the first rows, as the file has them.
    """
    path_index = 0
    while not is_picture(cells[path_index]):
        path_index += 1
    if separator == SPACES:
        before = cells[:path_index]
        after = cells[path_index + 1 :]
        if any(map(_BOX_OF_KERAS_YOLO.fullmatch, after)):
            raise PackError(
                f"{readable(str(path))} has boxes as x1,y1,x2,y2,class behind each path, as "
                "keras-yolo3 writes them, which fastpipe does not read; write a CSV file with a "
                "row for each box: path,x1,y1,x2,y2,class"
            )
        if path_index == 0 and _have_several_labels(rows):
            text = (
                f"{path.name}: it has no header row and several texts behind some paths; its columns "
                "are read as path, tags"
            )
            option = "--field tags=tags:classes --separator ' '"
            assumed = (Assumption(text, option),)
            return TextForm(separator, ("path", "tags"), assumed=assumed, has_ids=True)
        if before and not any(map(_NUMBER.fullmatch, before)):
            # These are no values before the path: the path has spaces in it.
            cells = [" ".join(cells[: path_index + 1]), *after]
            path_index = 0

    columns = _name_columns(path, cells, path_index)
    text = describe_columns(path, columns)
    return TextForm(separator, columns, assumed=(Assumption(text),))


def describe_columns(path: SourcePath, columns: Sequence[str]) -> str:
    """Says how the columns of a table without a header row are read."""
    if len(columns) == 1:
        reading = f"its only column is read as the {columns[0]}"
    else:
        reading = f"its columns are read as {', '.join(columns)}"
    return f"{path.name}: it has no header row, and {reading}"


def _have_several_labels(rows: Sequence[str]) -> bool:
    """Whether each row has a path without spaces, and some have more texts behind it than others.

    DTD has the classes of an image so.
    """
    cells_of_rows = [row.split() for row in rows]
    counts = {len(cells) for cells in cells_of_rows}
    return len(counts) > 1 and all(
        len(cells) > 1 and is_picture(cells[0]) for cells in cells_of_rows
    )


def _name_columns(
    path: SourcePath, cells: Sequence[str], path_index: int
) -> tuple[str, ...]:
    """Names the columns of a list by the look of its first row."""
    # An empty cell may be a number: keras-retinanet writes PATH,,,,, for an image without boxes.
    are_numbers = [not cell or _NUMBER.fullmatch(cell) is not None for cell in cells]
    if len(cells) == 2 and path_index == 0 and not is_picture(cells[1]):
        return "path", "label"
    if len(cells) == 6 and path_index == 0 and all(are_numbers[1:5]):
        return "path", "x1", "y1", "x2", "y2", "class"  # as keras-retinanet writes them
    if len(cells) == 8 and path_index == 0 and _is_row_of_sku110k(cells, are_numbers):
        return ("path", "x1", "y1", "x2", "y2", "class", "image_width", "image_height")
    if len(cells) == 8 and path_index == 5 and _is_row_of_makesense(cells, are_numbers):
        return ("class", "x", "y", "w", "h", "path", "image_width", "image_height")
    if _is_row_of_vertex(cells, are_numbers, path_index):
        # Between these corners stand the two others, or nothing.
        box = ("xmin", "ymin", "column_6", "column_7", "xmax", "ymax")
        columns = ("split", "path", "class", *box, "column_10", "column_11")
        return columns if path_index == 1 else columns[1:]
    if len(cells) == 3 and path_index == 1 and cells[0].upper() in _VERTEX_SPLITS:
        return "split", "path", "label"  # as Vertex AI writes them
    is_mxnet = path.suffix.lower() == ".lst" and len(cells) == 3
    if is_mxnet and path_index == 2 and all(are_numbers[:2]):
        return "index", "label", "path"  # as MXNet writes them
    names = [f"column_{number}" for number in range(1, len(cells) + 1)]
    names[path_index] = "path"
    return tuple(names)


def _is_row_of_sku110k(cells: Sequence[str], are_numbers: Sequence[bool]) -> bool:
    """Whether a row is a path, the corners of a box, its class, and the size of the image."""
    if "" in cells or not all(are_numbers[1:5]) or not all(are_numbers[6:]):
        return False
    left, top, right, bottom = map(float, cells[1:5])
    width, height = map(float, cells[6:])
    return 0 <= left < right <= width + 1 and 0 <= top < bottom <= height + 1


def _is_row_of_makesense(cells: Sequence[str], are_numbers: Sequence[bool]) -> bool:
    """Whether a row is a class, a box as x, y, width, height, its image, and the image's size."""
    if "" in cells or not all(are_numbers[1:5]) or not all(are_numbers[6:]):
        return False
    left, top, box_width, box_height = map(float, cells[1:5])
    width, height = map(float, cells[6:])
    fits_across = left >= 0 and box_width > 0 and left + box_width <= width + 1
    fits_down = top >= 0 and box_height > 0 and top + box_height <= height + 1
    return fits_across and fits_down


def _is_row_of_vertex(
    cells: Sequence[str], are_numbers: Sequence[bool], path_index: int
) -> bool:
    """Whether a row is of Vertex AI: perhaps a split, then a path, a class and corners as shares.

    Format: https://cloud.google.com/vertex-ai/docs/image-data/object-detection/prepare-data
    """
    numbers = cells[path_index + 2 :]
    if path_index > 1 or len(numbers) != _NUM_VERTEX_NUMBERS:
        return False
    if path_index == 1 and cells[0].upper() not in _VERTEX_SPLITS:
        return False
    if not all(are_numbers[path_index + 2 :]):
        return False
    return all(0 <= float(cell) <= 1 for cell in numbers if cell)


def read_column_names(path: SourcePath, encoding: str | None = None) -> Sequence[str]:
    """Reads the names of a table's columns. Raises OSError or PackError."""
    form = detect_text_form(path, encoding)
    return form.columns or form.header
