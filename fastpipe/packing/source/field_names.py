"""The columns of a source, or the endings of a WebDataset's members -> image, label, and fields of a name and kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable
from itertools import count
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.format.fields import RESERVED, Field, member
from fastpipe.packing.source.listing import SourceField
from fastpipe.packing.source.options import FieldColumn, SourceOptions

MOST_FIELDS = 64  # with more endings, they are parts of names, as in photo.v1.2.jpg, and no fields
NOTE = "json"
_MOST_CHARACTERS = 64  # of a field's name
_MOST_SHOWN = 20  # names in a message

_ENDINGS = "jpg jpeg jpe jfif png apng webp bmp dib tif tiff gif avif jp2 j2k ppm pgm pbm pnm tga ico heic heif fpc"
PICTURES = frozenset(_ENDINGS.split())
# By the last part of the ending; of other members the bytes are kept.
_KINDS = {
    **dict.fromkeys(("txt", "text", "transcript", "caption"), "text"),
    "json": "json",
    "png": "mask",
    **dict.fromkeys(("jpg", "jpeg", "webp", "tif", "tiff", "bmp", "ppm", "pgm"), "image"),
}
_OF_MEMBERS = ("text", "json", "bytes", "mask", "image")

# Columns with the path of an image, if there is no --image-column.
_IMAGES = "path file_name filename file filepath file_path image image_path image_file img img_path"
IMAGE_COLUMNS = frozenset(_IMAGES.split())
FILE_NAME = "file_name"
_LABEL = "label"


def fields_of(endings: Collection[str]) -> tuple[SourceField, ...]:
    """The fields of members that are neither image nor label: KEY.txt is a text "txt", KEY.seg.png a mask "seg".

    Where two endings would give one name, the whole ending is the name: KEY.note.txt and KEY.note.json are "note_txt"
    and "note_json".
    """
    short = {ending: _field_name(ending.rpartition(".")[0] or ending) for ending in sorted(endings)}
    taken = Counter(short.values())
    found: dict[str, SourceField] = {}
    for ending, name in short.items():
        name = _field_name(name if taken[name] == 1 else ending, found)  # such as a-b.txt and a_b.txt
        found[name] = SourceField(name, _KINDS.get(ending.rpartition(".")[2], "bytes"), column=ending)
    return tuple(found.values())


def fields_asked(asked: Iterable[FieldColumn], endings: Collection[str]) -> tuple[SourceField, ...]:
    """The same for the fields that a user asks for."""
    kinds = {field.column: field.kind for field in fields_of(endings)}
    found = []
    for field in asked:
        if field.column not in kinds:
            raise PackError(f"{field}: no sample has a member with the ending {field.column}; there are {named(kinds)}")
        if field.kind is not None and field.kind not in _OF_MEMBERS:
            raise PackError(
                f"{field}: expected one of the kinds {', '.join(_OF_MEMBERS)} for a member of a tar. Store values of "
                "other kinds as json, or write them with fastpipe.Writer"
            )
        found.append(SourceField(field.name, field.kind or kinds[field.column], column=field.column))
    return tuple(found)


def field_of_dataset(field: Field) -> SourceField:
    """The same for a field of a packed dataset, in its shards."""
    ending = member(field)
    return SourceField(field.name, field.kind, ending is None, field.names, field.flip_pairs, ending or NOTE)


def _field_name(like: str, taken: Container[str] = ()) -> str:
    """A field's name like a column or ending; with _ or a number behind it where another field is called so."""
    name = re.sub(r"[^a-z0-9_]", "_", like)[:60]
    if not name[:1].isalpha():
        name = f"field_{name}"[:60]
    free = name
    for number in count(2):
        if free not in taken and free not in RESERVED:
            break
        free = f"{free}_" if len(free) < _MOST_CHARACTERS else f"{name[:55]}_{number}"
    return free


class Columns(NamedTuple):
    """What is read of a table: the columns with images, labels and fields."""

    image: str
    label: str | None
    fields: tuple[SourceField, ...]
    has_paths: bool = True  # not bytes of images
    classes: tuple[str, ...] | None = None  # names of the label's numbers; None: nothing says them

    def read(self) -> list[str]:
        """Names of the columns that a sample is made of; its label is known before."""
        return list(dict.fromkeys([self.image, *(field.column for field in self.fields)]))


def choose_columns(
    table: str,
    columns: Collection[str],
    how: SourceOptions,
    images: Collection[str],
    kind_of: Callable[[str], str],
    further: str = "",
) -> Columns:
    """Finds the columns that are asked for, or that are certain; PackError: it is for the user to choose.

    Args:
        table: names it in messages.
        columns: that it has; `images`: those that may hold the images.
        how: what the user says.
        kind_of: tells the kind of field that holds the values of a column; asked only where the user says none.
        further: an ending of columns with further images, which their fields' names do not have.
    """
    image, label = how.image_column, how.label_column
    said = {f"--image-column {image}": image, f"--label-column {label}": label}
    for option, column in (said | {str(each): each.column for each in how.fields or ()}).items():
        if column is not None and column not in columns:
            raise PackError(f"{option}: {table} has no such column; expected one of {named(columns)}")
    if image is None and images:
        image, *others = images
        if others:
            raise PackError(
                f"{table} has several columns that may hold the images: {named(images)}. --image-column picks one"
            )
    elif image is None:
        such_as = FILE_NAME if further else "path, file_name or image"
        raise PackError(
            f"{table}: expected a column with images, or with their paths such as {such_as}; got {named(columns)}. "
            "--image-column names it"
        )
    if label is None and _LABEL in columns and _LABEL not in (image, *(each.column for each in how.fields or ())):
        label = _LABEL
    asked = how.fields
    if asked is None:
        names: dict[str, str] = {}  # A-b and a_b give a_b and a_b_
        for column in columns:
            if column not in (image, label):
                names[_field_name(column.removesuffix(further).lower(), names)] = column
        asked = tuple(FieldColumn(*each) for each in names.items())
    fields = (SourceField(each.name, each.kind or kind_of(each.column), column=each.column) for each in asked)
    return Columns(image, label, tuple(fields))


def named_as_image(columns: Iterable[str], how: SourceOptions) -> list[str]:
    """The columns that are called as if they held the paths of the images; one that is a field does not."""
    taken = {each.column for each in how.fields or ()}
    return [name for name in columns if name not in taken and name.lower() in IMAGE_COLUMNS]


def named(columns: Iterable[str]) -> str:
    """Names of columns, for messages."""
    shown = sorted(columns)
    return ", ".join(map(readable, shown[:_MOST_SHOWN])) + (" ..." if len(shown) > _MOST_SHOWN else "") or "none"
