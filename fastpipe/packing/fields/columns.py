"""A value as a shard holds it -> its piece of each column, the sidecar files of its field."""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.engine.pictures import size_of
from fastpipe.format.fields import FIELD_IMAGE_DTYPE, JPEG, PNG, Field
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.mask import png_header

VALUES, LENGTHS, LABELS = "values", "lengths", "labels"
_INTEGERS = {"int": "<i8", "classes": "<i4"}


class Column(NamedTuple):
    """A sidecar file: what stands in it.

    Attributes:
        part: VALUES, LENGTHS or LABELS: of which pieces it is made.
        dtype: of its values.
        width: numbers a value, as trailing axes.
    """

    part: str
    dtype: np.dtype[Any]
    width: tuple[int, ...] = ()


def columns(field: Field) -> tuple[Column, ...]:
    """The columns of a field, in the order of `fastpipe.format.fields.sidecars`."""
    offsets = Column(LENGTHS, np.dtype("<i8"))
    if field.kind in ("text", "json", "bytes"):
        return Column(VALUES, np.dtype("u1")), offsets
    if field.kind in ("mask", "image"):
        return (Column(VALUES, FIELD_IMAGE_DTYPE),)
    if field.kind == "boxes":
        labels = (Column(LABELS, np.dtype("<i8")),) if field.labelled else ()
        return (Column(VALUES, np.dtype("<f4"), (4,)), offsets, *labels)
    if field.kind == "keypoints":
        return Column(VALUES, np.dtype("<f4"), (field.points, 3)), offsets
    if field.kind == "floats":
        return (Column(VALUES, np.dtype("<f4"), (field.width,)),)
    values = Column(VALUES, np.dtype(_INTEGERS[field.kind]))
    return (values, offsets) if field.kind == "classes" else (values,)


@functools.cache
def parts_of(kind: str) -> tuple[str, ...]:
    """Of which parts the columns of a kind are made; boxes may have labels."""
    return tuple(column.part for column in columns(Field("", kind, labelled=True)))


def piece(kind: str, value: Stored, offset: int) -> dict[str, bytes]:
    """The bytes that a value adds to each part.

    Args:
        kind: of the field.
        value: as it stands in the shard.
        offset: of its member's first byte in the shard.

    Raises:
        ImageError, KeyError, TypeError, ValueError: there is no such value; only in a damaged shard.
    """
    note, member = value
    if kind in ("text", "bytes"):
        return _piece(member or b"", len(member or b""))
    if kind == "json":
        text = json.dumps(note, ensure_ascii=False, separators=(",", ":")).encode()
        return _piece(text, len(text))
    if kind in ("mask", "image"):
        return _piece(_record(member, offset), 1)
    if kind == "boxes":
        boxes, labels = (note["boxes"], note.get("labels", [])) if note else ([], [])
        return _piece(np.array(boxes, "<f4").tobytes(), len(boxes), np.array(labels, "<i8").tobytes())
    if kind in ("floats", "keypoints"):
        return _piece(np.array(note or [], "<f4").tobytes(), len(note or []))
    numbers = np.array([note] if kind == "int" else note or [], _INTEGERS[kind])
    return _piece(numbers.tobytes(), len(numbers))


def _piece(values: bytes, length: int, labels: bytes = b"") -> dict[str, bytes]:
    return {VALUES: values, LENGTHS: length.to_bytes(8, "little"), LABELS: labels}


def _record(data: bytes | None, offset: int) -> bytes:
    record = np.zeros((), FIELD_IMAGE_DTYPE)
    if data is not None:
        if data.startswith(b"\xff\xd8"):
            (width, height), bits, form = size_of(data), 8, JPEG
        else:
            width, height, bits, _ = png_header(data)
            form = PNG
        record[()] = (offset, len(data), width, height, bits, form, xxhash.xxh3_64_intdigest(data))
    return record.tobytes()
