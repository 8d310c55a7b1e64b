"""The members of a tar's samples, or the fields of a packed dataset -> the fields of a source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from fastpipe.dataset.format.fields import ARRAY_KINDS, Field, member_ending
from fastpipe.dataset.format.picture_names import PICTURES
from fastpipe.errors import PackError
from fastpipe.sources.column_names import describe_columns, field_name
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.listing import SourceField

# With more endings, they are parts of names, as in photo.v1.2.jpg, and no fields.
MOST_FIELDS = 64
NOTE = "json"
# The kind of a member by the last part of its ending; of other members the bytes are kept.
_KINDS_OF_MEMBERS = {
    "txt": "text",
    "text": "text",
    "transcript": "text",
    "caption": "text",
    "json": "json",
    "npy": "array",
    "npz": "array",
    "safetensors": "array",
    "png": "mask",
    "jpg": "image",
    "jpeg": "image",
    "webp": "image",
    "tif": "image",
    "tiff": "image",
    "bmp": "image",
    "ppm": "image",
    "pgm": "image",
}
# Of members.
_POSSIBLE_KINDS = ("text", "json", "bytes", "mask", "image", "images", *ARRAY_KINDS)
_MAX_DIGITS = 6  # of the number of a picture in a list


def fields_of(endings: Collection[str]) -> tuple[SourceField, ...]:
    """The fields of members that are neither image nor label.

    KEY.txt is a text "txt", KEY.seg.png a mask "seg". If two endings would give one name, the whole
    ending is the name: KEY.note.txt is "note_txt" beside KEY.note.json. KEY.0.jpg and KEY.1.jpg are
    a list of pictures "images", KEY.page.0.jpg and KEY.page.1.jpg a list "page".
    """
    lists = _lists_in(endings)
    fields: dict[str, SourceField] = {}
    # Ending -> the part of it that names the field: of "seg.png" it is "seg", of "txt" all.
    stems = {}
    for ending in sorted(endings):
        place = place_in_list(ending)
        if place is None or place.list_name not in lists:
            stems[ending] = ending.rpartition(".")[0] or ending
    for list_name, column in lists.items():
        name = field_name(list_name or "images", fields)
        fields[name] = SourceField(name, "images", column=column)
    name_counts = Counter(field_name(stem) for stem in stems.values())
    for ending, stem in stems.items():
        if name_counts[field_name(stem)] > 1:
            stem = ending
        # The whole endings a-b.txt and a_b.txt give one name, too.
        name = field_name(stem, fields)
        fields[name] = SourceField(name, kind_of_member(ending), column=ending)
    return tuple(fields.values())


def kind_of_member(ending: str) -> str:
    """The kind of field that a file with this ending has by itself."""
    return _KINDS_OF_MEMBERS.get(ending.rpartition(".")[2], "bytes")


class PlaceInList(NamedTuple):
    """The place of a member in a list of pictures."""

    list_name: str  # "page" of "page.2.jpg"; "" of "2.jpg"
    number: int


def place_in_list(ending: str) -> PlaceInList | None:
    """The place of KEY.NUMBER.jpg or KEY.NAME.NUMBER.jpg in its list; None for other members."""
    stem, _, kind = ending.rpartition(".")
    list_name, _, number = stem.rpartition(".")
    if kind not in PICTURES or not number.isdigit() or len(number) > _MAX_DIGITS:
        return None
    return PlaceInList(list_name, int(number))


def _lists_in(endings: Iterable[str]) -> dict[str, str]:
    """The lists of pictures among endings: by name, the ending of a picture in it.

    A list has several pictures: KEY.v1.2.jpg alone is not of a list "v1". Only of the list without a
    name, KEY.0.jpg alone is enough.
    """
    by_list: dict[str, dict[int, str]] = {}
    for ending in sorted(endings):
        place = place_in_list(ending)
        if place is not None:
            by_list.setdefault(place.list_name, {})[place.number] = ending
    return {
        name: numbered[min(numbered)]
        for name, numbered in by_list.items()
        if len(numbered) > 1 or (not name and 0 in numbered)
    }


def chosen_member_fields(
    wishes: Iterable[FieldColumn], endings: Collection[str]
) -> tuple[SourceField, ...]:
    """The fields that a user asks for, of members with these endings. PackError: one is missing."""
    kinds = {ending: kind_of_member(ending) for ending in endings}
    for field in fields_of(endings):
        kinds[field.column] = field.kind
    fields = []
    for wish in wishes:
        if wish.column not in kinds:
            wish.check_kind(kinds)
            raise PackError(
                f"{wish}: no sample has a member with the ending {wish.column}; there are "
                f"{describe_columns(kinds)}"
            )
        if wish.kind is not None and wish.kind not in _POSSIBLE_KINDS:
            raise PackError(
                f"{wish}: expected one of the kinds {', '.join(_POSSIBLE_KINDS)} for a member of "
                "a tar. Store other values as json, or write them with fastpipe.Writer"
            )
        kind = wish.kind or kinds[wish.column]
        fields.append(SourceField(wish.name, kind, column=wish.column))
    return tuple(fields)


def field_of_dataset(field: Field) -> SourceField:
    """A field of a packed dataset, as its shards hold it."""
    # Values without a member of their own stand in the sample's JSON.
    ending = member_ending(field)
    return SourceField(
        field.name,
        field.kind,
        in_note=ending is None,
        names=field.names,
        flip_pairs=field.flip_pairs,
        column=ending or NOTE,
    )
