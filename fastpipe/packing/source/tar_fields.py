"""The endings of a WebDataset's members -> fields, with a name and a kind each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Mapping
from itertools import count

from fastpipe.errors import PackError
from fastpipe.format.fields import RESERVED, Field, member
from fastpipe.packing.source.listing import Part, SourceField
from fastpipe.packing.source.options import FieldColumn

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
