"""The columns of a source, or the endings of a WebDataset's members -> image, label, and fields of a name and kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from itertools import count

from fastpipe.errors import PackError
from fastpipe.format.fields import RESERVED, Field, member
from fastpipe.packing.source.listing import Part, SourceField
from fastpipe.packing.source.options import FieldColumn, SourceOptions

MOST_FIELDS = 64  # with more endings, they are parts of names, as in photo.v1.2.jpg, and no fields
NOTE = "json"
_MOST_CHARACTERS = 64  # of a field's name

# By the last part of the ending; of other members the bytes are kept.
_KINDS = {
    **dict.fromkeys(("txt", "text", "transcript", "caption"), "text"),
    "json": "json",
    "png": "mask",
    **dict.fromkeys(("jpg", "jpeg", "webp", "tif", "tiff", "bmp", "ppm", "pgm"), "image"),
}

_OF_MEMBERS = ("text", "json", "bytes", "mask", "image")


def fields_of(endings: Collection[str]) -> list[tuple[str, SourceField]]:
    """Endings and fields: KEY.txt is a text "txt", KEY.seg.png a mask "seg", KEY.mp3 bytes "mp3".

    Where two endings would give one name, the whole ending is the name: KEY.note.txt and KEY.note.json are "note_txt"
    and "note_json".

    Args:
        endings: of the members that are neither image nor label, in small letters.
    """
    short = {ending: field_name(ending.rpartition(".")[0] or ending) for ending in sorted(endings)}
    taken = Counter(short.values())
    found: dict[str, tuple[str, SourceField]] = {}
    for ending, name in short.items():
        name = name if taken[name] == 1 else field_name(ending)
        name = free_name(name, found)  # such as a-b.txt and a_b.txt
        found[name] = ending, SourceField(name, _KINDS.get(ending.rpartition(".")[2], "bytes"))
    return list(found.values())


def fields_asked(asked: Collection[FieldColumn], endings: Collection[str]) -> list[tuple[str, SourceField]]:
    """The same for the fields that a user asks for, by the endings of their members.

    Raises:
        PackError: no member has such an ending, or it cannot be of such a kind.
    """
    kinds = {ending: field.kind for ending, field in fields_of(endings)}
    for field in asked:
        if field.column not in kinds:
            raise PackError(
                f"--field {field.name}={field.column}: no sample has a member with the ending {field.column}; there "
                f"are {', '.join(sorted(kinds)[:20]) or 'none'}"
            )
        if field.kind is not None and field.kind not in _OF_MEMBERS:
            raise PackError(
                f"--field {field.name}={field.column}:{field.kind}: expected one of the kinds {', '.join(_OF_MEMBERS)} "
                "for a member of a tar. Store values of other kinds as json, or write them with fastpipe.Writer"
            )
    return [(field.column, SourceField(field.name, field.kind or kinds[field.column])) for field in asked]


def fields_of_dataset(fields: Collection[Field]) -> list[tuple[str, SourceField]]:
    """The same for the shards of a packed dataset."""
    found: list[tuple[str, SourceField]] = []
    for field in fields:
        ending = member(field)
        found.append(
            (ending or NOTE, SourceField(field.name, field.kind, ending is None, field.names, field.flip_pairs))
        )
    return found


def parts_of(fields: Collection[tuple[str, SourceField]], members: Mapping[str, Part]) -> tuple[Part | None, ...]:
    """Where the value of each field is, of a sample with these members."""
    return tuple(members.get(ending) for ending, _ in fields)


def field_name(ending: str) -> str:
    """A field's name like an ending."""
    name = re.sub(r"[^a-z0-9_]", "_", ending)[:60]
    if not name[:1].isalpha():
        name = f"field_{name}"[:60]
    return f"{name}_" if name in RESERVED else name


def free_name(name: str, taken: Container[str]) -> str:
    """A field's name that no other field has: the name itself, or with _ or a number behind it."""
    free = name
    for number in count(2):
        if free not in taken and free not in RESERVED:
            break
        free = f"{free}_" if len(free) < _MOST_CHARACTERS else f"{name[:55]}_{number}"
    return free


# Columns with the path of an image, if there is no --image-column.
_IMAGES = "path file_name filename file filepath file_path image image_path image_file img img_path"
IMAGE_COLUMNS = frozenset(_IMAGES.split())
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


_ENDINGS = "jpg jpeg jpe jfif png apng webp bmp dib tif tiff gif avif jp2 j2k ppm pgm pbm pnm tga ico heic heif fpc"
PICTURES = frozenset(_ENDINGS.split())
