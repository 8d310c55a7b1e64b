"""The names of a source's columns, of any form -> the image, the label, and names for fields of the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fastpipe.packing.source.options import FieldColumn, SourceOptions
from fastpipe.packing.source.tar_fields import field_name, free_name

# Columns with the path of an image, if there is no --image-column.
IMAGE_COLUMNS = frozenset(
    [
        "path",
        "file_name",
        "filename",
        "file",
        "filepath",
        "file_path",
        "image",
        "image_path",
        "image_file",
        "img",
        "img_path",
    ]
)
FILE_NAME = "file_name"
_LABEL = "label"


def named_as_image(names: Collection[str], how: SourceOptions, *, metadata: bool = False) -> list[str]:
    """The columns that are called as if they held the paths of the images, sorted.

    Args:
        names: of all columns.
        how: what the user says; a column that is a field is no image.
        metadata: Hugging Face's ImageFolder: file_name is the image, *_file_name are further ones.
    """
    if metadata and FILE_NAME in names:
        return [FILE_NAME]
    taken = {each.column for each in how.fields or ()}
    called = (lambda name: name.endswith("_" + FILE_NAME)) if metadata else (lambda name: name.lower() in IMAGE_COLUMNS)
    return sorted(name for name in names if name not in taken and called(name))


def label_column(names: Collection[str], how: SourceOptions, image: str) -> str | None:
    """The column with the labels; None: there is none."""
    if how.label_column is not None:
        return how.label_column
    return _LABEL if _LABEL in names and _LABEL not in (image, *(each.column for each in how.fields or ())) else None


def own_fields(columns: Iterable[str], *, metadata: bool = False) -> list[FieldColumn]:
    """Fields that are called after their columns, with names that differ: A-b and a_b give a_b and a_b_."""
    taken: set[str] = set()
    found = []
    for column in columns:
        called = column.removesuffix("_" + FILE_NAME) if metadata else column
        name = free_name(field_name(called.lower()), taken)
        taken.add(name)
        found.append(FieldColumn(name, column))
    return found
