"""dataset.json -> the fields of its samples: kinds, numbers and files, checked (docs/format.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastpipe.format.shard_list import count, text

FIELDS_FOLDER = "fields"

KINDS = ("int", "floats", "classes", "text", "json", "bytes", "boxes", "keypoints", "mask", "image")
NAMED_KINDS = ("boxes", "mask", "keypoints")  # whose names the source has, if anyone
# Kinds whose values are members of the shard, and the endings of these; all others stand in KEY.json.
# Of one sample's text, JSON or bytes: they are read whole. A file whose offsets lie must not cost memory.
MOST_VALUE_BYTES = 256 << 20

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
    """One field that all samples have, or may have.

    Attributes:
        name: of the field.
        kind: one of KINDS.
        width: numbers of a value of kind "floats".
        points: points of an object of kind "keypoints".
        classes: number of classes of kind "classes".
        names: theirs, if they were given by name; of boxes and masks, by label, where the source has them: "" is the
            name of a gap; of keypoints, of the points.
        flip_pairs: of keypoints, the points that change places in a mirrored image, where the source says it.
        labelled: boxes have labels.
        files: names of the sidecar files, and their XXH3-64 in hex.
    """

    name: str
    kind: str
    width: int = 0
    points: int = 0
    classes: int = 0
    names: tuple[str, ...] = ()
    labelled: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    flip_pairs: tuple[tuple[int, int], ...] = ()


def is_name(name: object) -> bool:
    """Whether a field may have this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name not in RESERVED


def check_name(name: object) -> str:
    """Checks a field's name.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(name, str) or not is_name(name):
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
    """What follows "KEY." in the name of a field's member of the shard; None: its value stands in KEY.json.

    Args:
        image_format: JPEG or PNG, for a field of kind "image".
    """
    ending = _MEMBERS.get(field.kind)
    if field.kind == "image" and image_format == PNG:
        ending = "png"
    return None if ending is None else f"{field.name}.{ending}"


def read_fields(info: Mapping[str, Any]) -> dict[str, Field]:
    """The fields in the content of a dataset.json, in its order.

    Raises:
        KeyError, TypeError, ValueError: an entry is missing or impossible. `Index` makes a DatasetError of it.
    """
    entries = info["fields"]
    if not isinstance(entries, dict):
        raise TypeError(f"fields: expected an object, got {entries!r}")
    return {check_name(name): _read_field(name, entry) for name, entry in entries.items()}


def describe_field(field: Field) -> dict[str, Any]:
    """A field -> its entry in dataset.json."""
    entry: dict[str, Any] = {"kind": field.kind}
    if field.kind in _NUMBERS:
        number = _NUMBERS[field.kind]
        entry[number] = getattr(field, number)
    if field.names:
        entry["names"] = list(field.names)
    if field.flip_pairs:
        entry["flip_pairs"] = [list(pair) for pair in field.flip_pairs]
    if field.kind == "boxes":
        entry["labelled"] = field.labelled
    return {**entry, "files": {file: field.files[file] for file in sidecars(field)}}


def _read_pairs(name: str, pairs: Any, points: int) -> tuple[tuple[int, int], ...]:
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"field {name}: expected pairs of points' numbers, got {pairs!r:.60}")
    flat = [count(point) for pair in pairs for point in pair]
    if len(set(flat)) < len(flat) or (points and max(flat, default=0) >= points):
        raise ValueError(f"field {name}: expected each point once, and numbers below {points}; got {pairs!r:.60}")
    return tuple((one, other) for one, other in pairs)


# The number that belongs to a kind.
_NUMBERS = {"floats": "width", "keypoints": "points", "classes": "classes"}


def _read_field(name: str, entry: Any) -> Field:
    if not isinstance(entry, dict):
        raise TypeError(f"field {name}: expected an object, got {entry!r}")
    kind = text(entry["kind"])
    if kind not in KINDS:
        raise ValueError(f"field {name}: expected one of the kinds {', '.join(KINDS)}, got {kind!r}")
    numbers = {}
    if kind in _NUMBERS:
        numbers[_NUMBERS[kind]] = count(entry[_NUMBERS[kind]])
    names = entry.get("names", [])
    expected = numbers.get("classes", numbers.get("points"))
    if not isinstance(names, list):
        raise TypeError(f"field {name}: expected a list of names, got {names!r:.60}")
    if names and kind not in ("classes", *NAMED_KINDS):
        raise ValueError(f"field {name}: expected no names for the kind {kind}, got {names!r:.60}")
    if names and expected not in (None, 0, len(names)):
        raise ValueError(f"field {name}: expected {expected} names, got {len(names)}")
    labelled = entry["labelled"] if kind == "boxes" else False
    if not isinstance(labelled, bool):
        raise TypeError(f"field {name}: expected true or false for labelled, got {labelled!r}")
    files = entry["files"]
    pairs = _read_pairs(name, entry.get("flip_pairs", []), numbers.get("points", 0))
    found = Field(
        name, kind, **numbers, names=tuple(map(text, names)), labelled=labelled, files=files, flip_pairs=pairs
    )
    if not isinstance(files, dict) or tuple(files) != sidecars(found):
        raise ValueError(f"field {name}: expected the files {', '.join(sidecars(found))}, got {files!r}")
    for file, digest in files.items():
        if not _HASH.fullmatch(text(digest)):
            raise ValueError(f"field {name}: expected a hash of 16 hex digits for {file}, got {digest!r}")
    return found
