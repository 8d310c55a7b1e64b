"""A value as a shard holds it -> its piece of each column, the sidecar files of its field."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.engine.pictures import size_of
from fastpipe.format.columns import row_dtype
from fastpipe.format.fields import FIELD_IMAGE_DTYPE, JPEG, PNG, Field, sidecars
from fastpipe.format.sample_layout import PNG_MAGIC, Stored

VALUES, LENGTHS, LABELS = "values", "lengths", "labels"
_INTEGERS = np.dtype("<i8")
_BITS_AT = 24  # of a sample, in a PNG


class Column(NamedTuple):
    """A sidecar file: of which pieces it is made, VALUES, LENGTHS or LABELS; its dtype; trailing axes of a value."""

    part: str
    dtype: np.dtype[Any]
    width: tuple[int, ...] = ()


def columns(field: Field) -> tuple[Column, ...]:
    """The columns of a field, in the order of `fastpipe.format.fields.sidecars`."""
    row = row_dtype(field)
    values = Column(VALUES, row.base, row.shape)
    return (values, Column(LENGTHS, _INTEGERS), Column(LABELS, _INTEGERS))[: len(sidecars(field))]


def parts_of(kind: str) -> tuple[str, ...]:
    """Of which parts the columns of a kind are made; boxes may have labels."""
    return (VALUES, LENGTHS, LABELS)[: len(sidecars(Field("", kind, labelled=True)))]


@cache
def _dtype(kind: str) -> np.dtype[Any]:
    return row_dtype(Field("", kind, width=1)).base


def piece(kind: str, value: Stored, offset: int) -> dict[str, bytes]:
    """What a value, with a member at `offset`, adds to each part; KeyError, TypeError, ValueError: a damaged shard."""
    note, values, labels = value.note, value.member or b"", b""
    if kind == "json":
        values = json.dumps(note, ensure_ascii=False, separators=(",", ":")).encode()
    elif kind == "boxes" and note:
        note, labels = note["boxes"], np.array(note.get("labels", []), _INTEGERS).tobytes()
    length = len(values)
    if kind in ("mask", "image"):
        values, length = _record(kind, value.member, offset), 1
    elif kind not in ("text", "json", "bytes"):
        numbers = np.array([note] if kind == "int" else note or [], _dtype(kind))
        values, length = numbers.tobytes(), len(numbers)
    return {VALUES: values, LENGTHS: length.to_bytes(8, "little"), LABELS: labels}


def _record(kind: str, data: bytes | None, offset: int) -> bytes:
    record = np.zeros((), FIELD_IMAGE_DTYPE)
    if data is not None:
        form = PNG if data.startswith(PNG_MAGIC) else JPEG
        size = size_of(data)
        bits = data[_BITS_AT] if kind == "mask" else 8
        record[()] = (offset, len(data), *size, bits, form, xxhash.xxh3_64_intdigest(data))
    return record.tobytes()
