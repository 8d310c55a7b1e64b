"""dataset.json -> the fields of its samples: kinds, numbers and files, checked (docs/format.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastpipe.format.sample_layout import PNG_MAGIC
from fastpipe.format.shard_list import count, one_of

FIELDS_FOLDER = "fields"

KINDS = ("int", "floats", "classes", "text", "json", "bytes", "boxes", "keypoints", "mask", "image")
NAMED_KINDS = ("boxes", "mask", "keypoints")  # whose names the source has, if anyone
# Of one sample's text, JSON or bytes: they are read whole. A file whose offsets lie must not cost memory.
MOST_VALUE_BYTES = 256 << 20

# Kinds whose values are members of the shard, and the endings of these; all others stand in KEY.json.
_MEMBERS = {"text": "txt", "bytes": "bin", "mask": "png", "image": "jpg"}
# Names that mean something else in a batch, in KEY.json or beside KEY.jpg.
RESERVED = frozenset(
    ["image", "label", "id", "key", "valid", "epoch", "path", "reencoded", "fastpipe", "cls", "jpg", "fpc"]
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_HASH = re.compile(r"[0-9a-f]{16}")

# One record a sample of a mask or image: 26 bytes, packed, little-endian. The shard is the sample's.
FIELD_IMAGE_DTYPE = np.dtype(
    [
        ("offset", "<u8"),  # of the file's first byte in the shard, in bytes
        ("size", "<u4"),  # of the file, in bytes
        ("width", "<u2"),  # in pixels
        ("height", "<u2"),
        ("bits", "u1"),  # of a pixel's value: 8 or 16; 8 for an image
        ("format", "u1"),  # NO_IMAGE: the sample has none, and all is 0
        ("xxh3_64", "<u8"),  # XXH3-64 of the file's bytes, seed 0
    ]
)
NO_IMAGE, PNG, JPEG = 0, 1, 2


@dataclass(frozen=True)
class Field:
    """One field that all samples have, or may have."""

    name: str
    kind: str
    width: int = 0  # numbers of a value of kind "floats"
    points: int = 0  # of a value of kind "keypoints"
    classes: int = 0  # of kind "classes"
    names: tuple[str, ...] = ()  # of classes or points, if the source has them; of boxes, masks by label, "" in a gap
    labelled: bool = False  # boxes with labels
    files: Mapping[str, str] = field(default_factory=dict)  # names of the sidecar files, and their XXH3-64 in hex
    flip_pairs: tuple[tuple[int, int], ...] = ()  # points that change places in a mirrored image, if the source says it


def check_name(name: object) -> str:
    """The name, if a field may have it; else ValueError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(
            f"expected a field's name of small letters, digits and _, a letter first, at most 64 characters, and none "
            f"of {', '.join(sorted(RESERVED))}; got {name!r}"
        )
    return name


def sidecars(field: Field) -> tuple[str, ...]:
    """The names of a field's files in DST/fields: its values first, then offsets, then labels."""
    name, kind = field.name, field.kind
    if kind in ("text", "json", "bytes"):
        return f"{name}.bytes.npy", f"{name}.offsets.npy"
    if kind not in ("classes", "boxes", "keypoints"):
        return (f"{name}.npy",)
    labels = (f"{name}.labels.npy",) if field.labelled else ()
    return (f"{name}.npy", f"{name}.offsets.npy", *labels)


def member(field: Field, image_format: int = JPEG) -> str | None:
    """What follows "KEY." in the name of a field's member of the shard; None: its value stands in KEY.json."""
    if field.kind == "image" and image_format == PNG:
        return f"{field.name}.png"
    return f"{field.name}.{_MEMBERS[field.kind]}" if field.kind in _MEMBERS else None


def image_format_of(data: bytes) -> int:
    """PNG or JPEG: of the file of a mask or an image."""
    return PNG if data.startswith(PNG_MAGIC) else JPEG


def read_fields(info: Mapping[str, Any]) -> dict[str, Field]:
    """The fields in a dataset.json, in its order. KeyError, TypeError, ValueError: one is missing or impossible."""
    entries = info["fields"]
    if not isinstance(entries, dict):
        raise TypeError(f"fields: expected an object, got {entries!r}")
    return {check_name(name): _read_field(name, entry) for name, entry in entries.items()}


def describe_field(field: Field) -> dict[str, Any]:
    entry = {"kind": field.kind, **{number: getattr(field, number) for number in _NUMBERS.get(field.kind, ())}}
    if field.names:
        entry["names"] = list(field.names)
    if field.flip_pairs:
        entry["flip_pairs"] = [list(pair) for pair in field.flip_pairs]
    if field.kind == "boxes":
        entry["labelled"] = field.labelled
    return {**entry, "files": {file: field.files[file] for file in sidecars(field)}}


# The number that belongs to a kind.
_NUMBERS = {"floats": ("width",), "keypoints": ("points",), "classes": ("classes",)}


def _read_field(name: str, entry: Any) -> Field:
    if not isinstance(entry, dict):
        raise TypeError(f"field {name}: expected an object, got {entry!r}")
    kind = one_of(entry["kind"], KINDS)
    numbers = {number: count(entry[number]) for number in _NUMBERS.get(kind, ())}
    names, pairs, files = entry.get("names", []), entry.get("flip_pairs", []), entry["files"]
    labelled = entry["labelled"] if kind == "boxes" else False
    found = Field(
        name, kind, **numbers, names=tuple(names), labelled=labelled, files=files, flip_pairs=tuple(map(tuple, pairs))
    )
    hashes = files.values() if isinstance(files, dict) else ()
    points = [count(point) for pair in found.flip_pairs for point in pair]
    in_pairs = {2}.issuperset(map(len, found.flip_pairs)) and len({*points}) == len(points)
    has_names = kind in ("classes", *NAMED_KINDS) and len(names) == (found.classes or found.points or len(names))
    for good, expected in (
        (isinstance(names, list) and all(isinstance(each, str) for each in names), "a list of names"),
        (not names or has_names, "as many names as classes or points; other kinds have none"),
        (isinstance(labelled, bool), "true or false for labelled"),
        (in_pairs and max(points, default=-1) < (found.points or 2**63), "flip_pairs of two points, each point once"),
        (isinstance(files, dict) and tuple(files) == sidecars(found), f"the files {', '.join(sidecars(found))}"),
        (all(isinstance(each, str) and _HASH.fullmatch(each) for each in hashes), "hashes of 16 hex digits"),
    ):
        if not good:
            raise ValueError(f"field {name}: expected {expected}, got {entry!r:.300}")
    return found
