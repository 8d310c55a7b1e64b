"""The members of a tar's samples, or the fields of a packed dataset -> the fields of a source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from fastpipe.dataset.format.fields import Field, member
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
_POSSIBLE_KINDS = ("text", "json", "bytes", "mask", "image", "array")  # of members


def fields_of(endings: Collection[str]) -> tuple[SourceField, ...]:
    """The fields of members that are neither image nor label.

    KEY.txt is a text "txt", KEY.seg.png a mask "seg". If two endings would give one name, the whole
    ending is the name: KEY.note.txt is "note_txt" beside KEY.note.json.
    """
    # Ending -> the part of it that names the field: of "seg.png" it is "seg", of "txt" all.
    stems = {ending: ending.rpartition(".")[0] or ending for ending in sorted(endings)}
    name_counts = Counter(field_name(stem) for stem in stems.values())
    fields: dict[str, SourceField] = {}
    for ending, stem in stems.items():
        if name_counts[field_name(stem)] > 1:
            stem = ending
        # The whole endings a-b.txt and a_b.txt give one name, too.
        name = field_name(stem, fields)
        kind = _KINDS_OF_MEMBERS.get(ending.rpartition(".")[2], "bytes")
        fields[name] = SourceField(name, kind, column=ending)
    return tuple(fields.values())


def chosen_member_fields(
    wishes: Iterable[FieldColumn], endings: Collection[str]
) -> tuple[SourceField, ...]:
    """The fields that a user asks for, of members with these endings. PackError: one is missing."""
    kinds = {field.column: field.kind for field in fields_of(endings)}
    fields = []
    for wish in wishes:
        if wish.column not in kinds:
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
    ending = member(field)
    return SourceField(
        field.name,
        field.kind,
        in_note=ending is None,
        names=field.names,
        flip_pairs=field.flip_pairs,
        column=ending or NOTE,
    )
