"""dataset.json -> the fields of its samples: kinds, numbers and files, checked (docs/explanation/format.md)."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastpipe.dataset.format.array_file import ARRAY_DTYPES, MAX_AXES
from fastpipe.dataset.format.sample_layout import PNG_MAGIC
from fastpipe.dataset.format.shard_list import count, one_of
from fastpipe.errors import nearest_name

FIELDS_FOLDER = "fields"

KINDS = (
    "int",
    "floats",
    "classes",
    "text",
    "json",
    "bytes",
    "boxes",
    "keypoints",
    "mask",
    "image",
    "array",
    "images",
    "map",
)
# Names that people write for a kind, those of Python's types among them -> the kind.
_KIND_BY_OTHER_NAME = {
    "integer": "int",
    "number": "int",
    "int64": "int",
    "long": "int",
    "float": "floats",
    "float32": "floats",
    "double": "floats",
    "vector": "floats",
    "str": "text",
    "string": "text",
    "caption": "text",
    "label": "classes",
    "labels": "classes",
    "category": "classes",
    "multilabel": "classes",
    "dict": "json",
    "list": "json",
    "bbox": "boxes",
    "bboxes": "boxes",
    "points": "keypoints",
    "landmarks": "keypoints",
    "masks": "mask",
    "segmentation": "mask",
    "picture": "image",
    "pictures": "images",
    "ndarray": "array",
    "tensor": "array",
    "depth": "map",
}


def describe_kind(kind: object) -> str:
    """The end of a message about what is no kind: the kinds, and the one that is meant."""
    # People also pass types of Python.
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    meant = _KIND_BY_OTHER_NAME.get(name.lower()) or nearest_name(name, KINDS)
    hint = "" if meant is None else f"; did you mean {meant!r}?"
    return f"expected one of {', '.join(KINDS)}{hint}"


# Only the source can name their classes or points.
NAMED_KINDS = ("boxes", "mask", "keypoints")
# Each value is a picture of its own, a member of the shard.
PICTURE_KINDS = ("mask", "image")
# Each value is a .npy file, a member of the shard. A map is an array that lies on the picture.
ARRAY_KINDS = ("array", "map")
# Of maps. The engine's threads crop and resize them.
MAP_DTYPES = ("float16", "float32", "uint8", "uint16")
MAX_MAP_CHANNELS = 4096
MAX_MAP_SIDE = 65535  # in pixels
# Each value is a file of its own, a member of the shard. The column has a record of each, so the
# engine reads the value itself when a batch needs it.
FILE_KINDS = (*PICTURE_KINDS, *ARRAY_KINDS, "images")
# Values that move where their picture is turned, mirrored or cropped.
SPATIAL_KINDS = ("boxes", "keypoints", *PICTURE_KINDS, "map")
# Values that are numbers of classes.
CLASS_KINDS = ("boxes", "classes", "mask")
# The most bytes of one sample's text, JSON or bytes. They are read whole, and damaged offsets must
# not cost all memory.
MAX_VALUE_BYTES = 256 << 20
# The most pictures in the list of one sample. A batch has memory for all of them, and damaged offsets
# must not cost all memory.
MAX_PICTURES = 1 << 12

# The endings of kinds whose values are members of the shard; all others stand in KEY.json.
_MEMBERS = {
    "text": "txt",
    "bytes": "bin",
    "mask": "png",
    "image": "jpg",
    "array": "npy",
    "images": "jpg",
    "map": "npy",
}
# Names that mean something else in a batch, in KEY.json or beside KEY.jpg.
RESERVED = frozenset(
    [
        "image",
        "label",
        "id",
        "key",
        "valid",
        "epoch",
        "path",
        "reencoded",
        "fastpipe",
        "cls",
        "jpg",
        "fpc",
    ]
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_HASH = re.compile(r"[0-9a-f]{16}")

# One record a sample of a mask or image, in the shard of the sample: 26 bytes, packed,
# little-endian.
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
# Kinds whose members may be larger than the image of a sample. They count where an order is made.
LARGE_KINDS = ("images", *ARRAY_KINDS)
# Values of "format".
NO_IMAGE = 0
PNG = 1
JPEG = 2


def array_record_dtype(axes: int) -> np.dtype[Any]:
    """One record a sample of an array with so many axes: 20 bytes, and 4 for each axis.

    As FIELD_IMAGE_DTYPE: packed, little-endian, of a file in the shard of the sample.
    """
    return np.dtype(
        [
            ("offset", "<u8"),
            ("size", "<u4"),  # of the file, with its header, in bytes
            ("shape", "<u4", (axes,)),
            ("xxh3_64", "<u8"),
        ]
    )


@dataclass(frozen=True)
class Field:
    """One field that all samples have, or may have."""

    name: str
    kind: str
    width: int = 0  # numbers of a value of kind "floats"
    points: int = 0  # of a value of kind "keypoints"
    classes: int = 0  # of kind "classes"
    # The names of classes or points, if the source has them; of boxes and masks by label, "" in a
    # gap.
    names: tuple[str, ...] = ()
    labelled: bool = False  # boxes with labels
    # Of arrays and maps, as torch names it.
    dtype: str = ""
    # Of the arrays; None for an axis in which they differ.
    shape: tuple[int | None, ...] = ()
    # Names of the sidecar files, and their XXH3-64 in hex.
    files: Mapping[str, str] = field(default_factory=dict)
    # Points that change places in a mirrored image, if the source says so.
    flip_pairs: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        """The options that are set; of the names the first ones, and no files."""
        values = [f"{self.name!r}, {self.kind!r}"]
        options = (
            "width",
            "points",
            "classes",
            "names",
            "labelled",
            "flip_pairs",
            "dtype",
            "shape",
        )
        for option in options:
            value = getattr(self, option)
            if value:
                values.append(f"{option}={reprlib.repr(value)}")
        return f"Field({', '.join(values)})"


def check_name(name: object) -> str:
    """The name, if a field may have it; else ValueError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(
            "expected a field's name of small letters, digits and _, a letter first, at most 64 "
            f"characters, and none of {', '.join(sorted(RESERVED))}; got {name!r}"
        )
    return name


def sidecars(field: Field) -> tuple[str, ...]:
    """The names of a field's files in DST/fields: its values first, then offsets, then labels."""
    values_file = f"{field.name}.npy"
    offsets_file = f"{field.name}.offsets.npy"
    if field.kind in ("text", "json", "bytes"):
        return f"{field.name}.bytes.npy", offsets_file
    if field.kind not in ("classes", "boxes", "keypoints", "images"):
        return (values_file,)
    if field.labelled:
        return values_file, offsets_file, f"{field.name}.labels.npy"
    return values_file, offsets_file


def member_ending(
    field: Field, image_format: int = JPEG, number: int = 0
) -> str | None:
    """The name, without "KEY.", of a field's member of the shard; None: KEY.json has its value.

    `number`: of the picture in a list of pictures.
    """
    if field.kind not in _MEMBERS:
        return None
    ending = _MEMBERS[field.kind]
    if field.kind in ("image", "images") and image_format == PNG:
        ending = "png"
    if field.kind == "images":
        return f"{field.name}.{number}.{ending}"
    return f"{field.name}.{ending}"


def image_format_of(data: bytes) -> int:
    """PNG or JPEG: of the file of a mask or an image."""
    return PNG if data.startswith(PNG_MAGIC) else JPEG


def read_fields(info: Mapping[str, Any]) -> dict[str, Field]:
    """The fields in a dataset.json, in its order.

    Raises:
        KeyError, TypeError, ValueError: an entry is missing or impossible.
    """
    entries = info["fields"]
    if not isinstance(entries, dict):
        raise TypeError(f"fields: expected an object, got {entries!r}")
    return {
        check_name(name): _read_field(name, entry) for name, entry in entries.items()
    }


# The number that dataset.json has for fields of a kind.
_NUMBERS = {"floats": "width", "keypoints": "points", "classes": "classes"}


def describe_field(field: Field) -> dict[str, Any]:
    """The entry of a field in dataset.json."""
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
    if field.kind in ARRAY_KINDS:
        entry["dtype"] = field.dtype
        entry["shape"] = list(field.shape)
    entry["files"] = {file: field.files[file] for file in sidecars(field)}
    return entry


def _read_field(name: str, entry: Any) -> Field:
    """The field that an entry describes. KeyError, TypeError, ValueError: it is impossible."""

    def check(is_good: bool, expected: str) -> None:
        if not is_good:
            raise ValueError(f"field {name}: expected {expected}, got {entry!r:.300}")

    if not isinstance(entry, dict):
        raise TypeError(f"field {name}: expected an object, got {entry!r}")
    kind = one_of(entry["kind"], KINDS)
    own_number = {}  # of some kinds: width, points or classes
    if kind in _NUMBERS:
        number_name = _NUMBERS[kind]
        own_number[number_name] = count(entry[number_name])

    names = entry.get("names", [])
    check(_is_list_of_texts(names), "a list of names")
    labelled = entry["labelled"] if kind == "boxes" else False
    check(isinstance(labelled, bool), "true or false for labelled")
    dtype = ""
    shape: tuple[int | None, ...] = ()
    if kind in ARRAY_KINDS:
        dtypes = MAP_DTYPES if kind == "map" else ARRAY_DTYPES
        dtype = one_of(entry["dtype"], dtypes)
        shape = _read_shape(entry["shape"])
        check(len(shape) <= MAX_AXES, f"a shape of at most {MAX_AXES} axes")
    if kind == "map":
        has_axes = len(shape) in (2, 3)
        channels = shape[2] if len(shape) == 3 else 1
        has_channels = channels is not None and 1 <= channels <= MAX_MAP_CHANNELS
        expected = (
            f"(height, width) or (height, width, 1 to {MAX_MAP_CHANNELS:,} channels)"
        )
        check(has_axes and has_channels, f"the shape {expected} of a map")
    files = entry["files"]
    check(isinstance(files, dict), "the files as an object of names and hashes")
    field = Field(
        name,
        kind,
        **own_number,
        names=tuple(names),
        labelled=labelled,
        dtype=dtype,
        shape=shape,
        files=files,
        flip_pairs=tuple(tuple(pair) for pair in entry.get("flip_pairs", [])),
    )

    if names:
        expected_count = field.classes or field.points or len(names)
        has_names = kind in ("classes", *NAMED_KINDS)
        check(
            has_names and len(names) == expected_count,
            "as many names as classes or points; other kinds have none",
        )
    check(_are_flip_pairs(field), "flip_pairs of two points, each point once")
    expected_files = sidecars(field)
    check(tuple(files) == expected_files, f"the files {', '.join(expected_files)}")
    for digest in files.values():
        is_hash = isinstance(digest, str) and _HASH.fullmatch(digest) is not None
        check(is_hash, "hashes of 16 hex digits")
    return field


def _read_shape(lengths: Any) -> tuple[int | None, ...]:
    """TypeError, ValueError: an axis has an impossible length."""
    return tuple(None if length is None else count(length) for length in lengths)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_flip_pairs(field: Field) -> bool:
    """Whether these are pairs, of points that the field has, each point once."""
    points = []
    for pair in field.flip_pairs:
        if len(pair) != 2:
            return False
        points += [count(point) for point in pair]
    # A field of which no sample has a value has 0 points, and any number may be right.
    greatest = max(points, default=-1)
    has_points = not field.points or greatest < field.points
    has_each_once = len(set(points)) == len(points)
    return has_points and has_each_once
