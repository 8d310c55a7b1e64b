"""A column with a picture and its class in one text -> rows with two columns.

Kaggle's Understanding Clouds has Image_Label with 0011165.jpg_Fish, and the first table of
Severstal's steel has ImageId_ClassId with 0002cc93b.jpg_1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.rows import Row

_JOINED_NAME = re.compile(
    r"(image|image_?id|img|file_?name)_(label|class|class_?id)", re.I
)


def find_joined_column(
    names: Sequence[str], first_row: Sequence[str], options: SourceOptions
) -> str | None:
    """The column that holds a picture and its class; None if there is none."""
    if options.image_column in names:
        return None
    for name, cell in zip(names, first_row, strict=False):
        is_named = _JOINED_NAME.fullmatch(name) is not None
        if is_named and name not in options.field_columns and _split(cell):
            return name
    return None


def picture_in_joined(text: str) -> str:
    """The picture in a text with a picture and its class; the text itself if it is another one."""
    if is_picture(text):
        return text
    parts = _split(text)
    return parts[0] if parts else text


def split_joined(read_rows: Callable[[], Iterator[Row]], column: str) -> Iterator[Row]:
    """The rows with a column of the picture and one of the class in place of the joined one."""
    picture_column, class_column = _new_columns(column)
    for row in read_rows():
        if row.problem is None:
            parts = _split(str(row.values[column]))
            if not parts:
                problem = (
                    f"column {column}: expected an image and a class, such as a.jpg_1, got "
                    f"{row.values[column]!r:.60}"
                )
                yield Row(row.where, problem=problem)
                continue
            values = {picture_column: parts[0], class_column: parts[1], **row.values}
            del values[column]
            row = row._replace(values=values)
        yield row


def assume_split(column: str) -> Assumption:
    """The assumption that a column is two."""
    picture_column, class_column = _new_columns(column)
    text = (
        f"column {column!r} has an image and a class in one text, as a.jpg_1, and is read as two: "
        f"{picture_column!r} and {class_column!r}"
    )
    return Assumption(text)


def _new_columns(column: str) -> tuple[str, str]:
    match = _JOINED_NAME.fullmatch(column)
    assert match is not None  # `find_joined_column` has looked
    return match[1], match[2]


def _split(text: str) -> tuple[str, ...]:
    """The picture and the class in a text; () if it holds something else."""
    picture, _, class_text = text.strip().rpartition("_")
    # The name of a class may have the separator in it.
    while picture and not is_picture(picture):
        picture, _, more = picture.rpartition("_")
        class_text = f"{more}_{class_text}"
    if not picture or not class_text:
        return ()
    return picture, class_text
