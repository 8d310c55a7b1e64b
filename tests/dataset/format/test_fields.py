"""format/fields: what dataset.json says of fields is checked."""

from __future__ import annotations

from typing import Any

import pytest

from fastpipe.dataset.format.fields import (
    FIELD_IMAGE_DTYPE,
    KINDS,
    Field,
    check_name,
    describe_field,
    member_ending,
    read_fields,
)
from fastpipe.dataset.format.fields import sidecars as files_of

NUMBERS: dict[str, dict[str, Any]] = {
    "floats": {"width": 3},
    "keypoints": {"points": 17},
    "classes": {"classes": 2, "names": ("ant", "bee")},
    "boxes": {"labelled": True},
    "array": {"dtype": "bfloat16", "shape": (None, 6)},
    "map": {"dtype": "float16", "shape": (None, None, 2)},
}


def make(kind: str, **changes: Any) -> Field:
    bare = Field("field", kind, **{**NUMBERS.get(kind, {}), **changes})
    return Field(
        "field",
        kind,
        **{**NUMBERS.get(kind, {}), **changes},
        files=dict.fromkeys(files_of(bare), "0" * 16),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_described_reads_back(kind: str) -> None:
    field = make(kind)
    assert read_fields({"fields": {"field": describe_field(field)}}) == {"field": field}


def test_the_record_of_an_image_is_as_the_page_says() -> None:
    assert FIELD_IMAGE_DTYPE.itemsize == 26
    fields = FIELD_IMAGE_DTYPE.fields
    assert fields is not None
    places = {name: value[1] for name, value in fields.items()}
    assert places == {
        "offset": 0,
        "size": 8,
        "width": 12,
        "height": 14,
        "bits": 16,
        "format": 17,
        "xxh3_64": 18,
    }


def test_members() -> None:
    assert [member_ending(make(kind)) for kind in ("text", "bytes", "mask", "image", "boxes")] == [
        "field.txt",
        "field.bin",
        "field.png",
        "field.jpg",
        None,
    ]
    assert member_ending(make("image"), image_format=1) == "field.png"


def test_names_that_no_field_may_have() -> None:
    for name in [
        "",
        "Caption",
        "2d",
        "a.b",
        "a/b",
        "image",
        "label",
        "id",
        "key",
        "a" * 65,
        "ä",
        None,
    ]:
        with pytest.raises(ValueError, match="expected a field's name"):
            check_name(name)
    check_name("a" * 64)


# (a kind, a change to its entry, what is said of it)
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"kind": "words"}, "expected one of"),
    ("text", {"kind": 3}, "expected one of"),
    ("text", {"names": ["ant"]}, "other kinds have none"),
    ("floats", {"width": -1}, "whole number"),
    ("floats", {"width": None}, "whole number"),
    ("keypoints", {"points": "3"}, "whole number"),
    ("classes", {"names": ["ant"]}, "expected as many names as classes"),
    ("classes", {"names": [1, 2]}, "expected a list of names"),
    ("keypoints", {"flip_pairs": [[0, 1, 2]]}, "expected flip_pairs of two"),
    ("keypoints", {"flip_pairs": [[0, 0]]}, "expected flip_pairs of two"),
    ("keypoints", {"flip_pairs": [[0, 10**6]]}, "expected flip_pairs of two"),
    ("keypoints", {"flip_pairs": [[0, -1]]}, "whole number"),
    ("keypoints", {"flip_pairs": 3}, "not iterable"),
    ("classes", {"names": "ant"}, "expected a list of names"),
    ("boxes", {"labelled": 1}, "true or false"),
    ("boxes", {"labelled": False}, "expected the files"),
    ("int", {"files": {"../field.npy": "0" * 16}}, "expected the files"),
    ("int", {"files": {"field.npy": "g" * 16}}, "16 hex digits"),
    ("int", {"files": {"field.npy": 10**15}}, "16 hex digits"),
    ("int", {"files": ["field.npy"]}, "expected the files"),
]


def test_an_impossible_entry_is_refused() -> None:
    for kind, change, words in WRONG:
        entry = {**describe_field(make(kind)), **change}
        with pytest.raises((ValueError, TypeError), match=words):
            read_fields({"fields": {"field": entry}})
    for entries in (None, [], "text", {"field": None}, {"Field": {}}):
        with pytest.raises((ValueError, TypeError)):
            read_fields({"fields": entries})
